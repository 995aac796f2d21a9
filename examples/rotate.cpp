// SPDX-License-Identifier: Apache-2.0
// Rotate queries and keys: the shortest useful program.
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"

int main() {
  using namespace posenc;
  // Llama-3 8B: 32 query heads, 8 key heads, 128 channels.
  const Rope rope{.head_dim = 128, .base = 500000, .pairing = Pairing::half_split};
  const RotaryPlan plan(resolve(rope), DType::f32);

  const Index tokens = 4;
  std::vector<float> q_data(tokens * 32 * 128, 1.0f), k_data(tokens * 8 * 128, 1.0f);
  const Heads q = heads(q_data.data(), tokens, 32, 128), k = heads(k_data.data(), tokens, 8, 128);

  plan.apply(q, k, arange(0, tokens));  // in place, q and k in one pass, no table
  std::printf("token 3, head 0: %.6f %.6f\n", q_data[3 * 32 * 128], q_data[3 * 32 * 128 + 64]);

  plan.apply(q, k, arange(0, tokens), RotateMode::inverse);  // and back
  std::printf("turned back:     %.6f %.6f\n", q_data[3 * 32 * 128], q_data[3 * 32 * 128 + 64]);
}
