// SPDX-License-Identifier: Apache-2.0
// One token at a time: rows once a step, shared by all layers; keys go to the cache rotated.
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"

int main() {
  using namespace posenc;
  constexpr Index kLayers = 4, kQueryHeads = 8, kKeyHeads = 2, kDim = 64, kMaxTokens = 16;
  const Rope rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::half_split};
  const RotaryPlan plan(resolve(rope), DType::f32);

  std::vector<float> q(kQueryHeads * kDim), rows(static_cast<std::size_t>(plan.row_columns()));
  std::vector<float> cache(kLayers * kMaxTokens * kKeyHeads *
                           kDim);  // [layer, token, head, channel]
  const TensorView row_view = tensor(rows.data(), {1, plan.row_columns()});

  for (Index position = 0; position < kMaxTokens; ++position) {
    plan.rows(arange(position, 1), row_view);  // one exact row for this step
    for (Index layer = 0; layer < kLayers; ++layer) {
      // Your projections write q, and k straight into its place in the cache.
      float* k =
          &cache[static_cast<std::size_t>((layer * kMaxTokens + position) * kKeyHeads * kDim)];
      for (float& x : q) x = 1;
      for (Index i = 0; i < kKeyHeads * kDim; ++i) k[i] = 1;
      plan.apply_rows(heads(q.data(), 1, kQueryHeads, kDim), heads(k, 1, kKeyHeads, kDim),
                      row_view);
    }
  }
  std::printf("key of token 15 in layer 3: %.6f %.6f\n",
              cache[(3 * kMaxTokens + 15) * kKeyHeads * kDim],
              cache[(3 * kMaxTokens + 15) * kKeyHeads * kDim + kDim / 2]);
}
