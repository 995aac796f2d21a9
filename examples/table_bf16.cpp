// SPDX-License-Identifier: Apache-2.0
// Prefill, then decode, in bfloat16 with a table of rows: q and k are slices of one packed tensor
// [token, q | k | v, channel], and one table serves all layers and users.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "posenc/posenc.h"

int main() {
  using namespace posenc;
  constexpr Index kQuery = 8, kKey = 2, kDim = 64, kPrompt = 5, kMost = 8;
  constexpr std::uint16_t kOne = 0x3f80;  // 1.0 in bfloat16
  const RotarySpec spec =
      resolve(Rope{.head_dim = kDim, .base = 500000, .pairing = Pairing::half_split});
  const RotaryPlan plan(spec, DType::bf16);
  const RotaryTable table(spec, kMost);  // positions 0 .. 7; rows in float32

  // 16-bit floats have no C++ type of their own: their memory comes with a dtype.
  std::vector<std::uint16_t> packed(kMost * (kQuery + 2 * kKey) * kDim, kOne);
  const auto turn = [&](Index first, Index tokens) {
    std::uint16_t* data = &packed[static_cast<std::size_t>(first * (kQuery + 2 * kKey) * kDim)];
    const Heads all =
        heads(tensor(static_cast<void*>(data), DType::bf16, {tokens, kQuery + 2 * kKey, kDim}),
              HeadsLayout::thd);
    const Heads q = slice_heads(all, 0, kQuery), k = slice_heads(all, kQuery, kKey);
    apply(plan, q, k, table, arange(first, tokens));  // in place; v stays as it is
  };
  turn(0, kPrompt);                                    // the prompt at once
  for (Index p = kPrompt; p < kMost; ++p) turn(p, 1);  // then token by token

  // Key head 0 of token 7: cos 7 - sin 7 and, half a head further, cos 7 + sin 7.
  const auto value = [&](Index channel) {
    const std::size_t at =
        static_cast<std::size_t>(((kMost - 1) * (kQuery + 2 * kKey) + kQuery) * kDim + channel);
    return std::ldexp(1 + (packed[at] & 0x7f) / 128.0, ((packed[at] >> 7) & 0xff) - 127) *
           (packed[at] & 0x8000 ? -1 : 1);
  };
  std::printf("key of token 7: %.4f %.4f\n", value(0), value(kDim / 2));
  const bool right = std::abs(value(0) - (std::cos(7.0) - std::sin(7.0))) < 1e-3 &&
                     std::abs(value(kDim / 2) - (std::cos(7.0) + std::sin(7.0))) < 8e-3;
  return right ? 0 : 1;
}
