// SPDX-License-Identifier: Apache-2.0
// Context parallelism: every rank rotates its own shard of a long sequence, by true positions.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"

int main() {
  using namespace posenc;
  constexpr Index kTokens = 16, kRanks = 2, kDim = 8;
  const Rope rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::half_split};
  const RotaryPlan plan(resolve(rope), DType::f32);

  // All at once, for comparison.
  std::vector<float> whole(kTokens * kDim, 1.0f);
  plan.apply(heads(whole.data(), kTokens, 1, kDim), arange(0, kTokens));

  double difference = 0;
  for (Index rank = 0; rank < kRanks; ++rank) {
    // Zigzag: rank r owns chunks r and 2 ranks - 1 - r, so that causal work is balanced.
    const std::vector<Index> mine = shard_tokens(kTokens, kRanks, rank, ShardLayout::zigzag);
    std::vector<float> q(mine.size() * kDim, 1.0f);
    plan.apply(heads(q.data(), static_cast<Index>(mine.size()), 1, kDim),
               positions(std::span<const Index>(mine)));
    for (std::size_t t = 0; t < mine.size(); ++t)
      for (std::size_t d = 0; d < kDim; ++d) {
        const float other = whole[static_cast<std::size_t>(mine[t]) * kDim + d];
        difference = std::max(difference, static_cast<double>(std::abs(q[t * kDim + d] - other)));
      }
    std::printf("rank %d owns tokens %d to %d and %d to %d\n", static_cast<int>(rank),
                static_cast<int>(mine[0]), static_cast<int>(mine[3]), static_cast<int>(mine[4]),
                static_cast<int>(mine[7]));
  }
  std::printf("largest difference from the whole: %g\n", difference);
  return difference == 0 ? 0 : 1;
}
