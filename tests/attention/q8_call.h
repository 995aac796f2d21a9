// SPDX-License-Identifier: Apache-2.0
// Float calls whose keys, values or both lie in q8_0 blocks; `plain` has the numbers of the blocks as doubles.
#pragma once
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/float_call.h"
#include "core/convert.h"

namespace posenc {

// Blocks of these numbers, which become those of the blocks: by the definition, with the scale in f16.
inline std::vector<std::uint8_t> in_blocks(std::vector<double>& x) {
  std::vector<std::uint8_t> blocks;
  for (std::size_t first = 0; first + 32 <= x.size(); first += 32) {
    double most = 0;
    for (std::size_t i = first; i < first + 32; ++i) most = std::max(most, std::fabs(x[i]));
    const std::uint16_t bits = f16_from(most / 127);
    const auto scale = static_cast<double>(f32_from_f16(bits));
    std::uint8_t bytes[2];
    std::memcpy(bytes, &bits, 2);
    blocks.insert(blocks.end(), bytes, bytes + 2);
    for (std::size_t i = first; i < first + 32; ++i) {
      const double q = scale == 0 ? 0 : std::fmax(-128, std::fmin(127, std::round(x[i] / scale)));
      blocks.push_back(static_cast<std::uint8_t>(static_cast<std::int8_t>(q)));
      x[i] = q * scale;
    }
  }
  blocks.push_back(0);  // not null where there are none
  return blocks;
}

struct Q8Call : FloatCall {
  using FloatCall::FloatCall;
  enum class Which { k, v, both };
  void use_blocks(Which which = Which::both) {
    if (which != Which::v) args.k = blocks_of(1, D);
    if (which != Which::k) args.v = blocks_of(2, V);
  }
  ConstHeads blocks_of(std::size_t n, Index dim) {
    blocks[n] = in_blocks(wide[n]);
    return key_blocks(tensor(std::as_const(blocks[n]).data(), {B, Tk, G, dim / 32 * 34}),
                      HeadsLayout::bthd);
  }
  // All numbers of a block of key j become NaN.
  void spoil(std::size_t n, Index j) {
    const Index bytes = (n == 1 ? D : V) / 32 * 34;
    const std::uint16_t nan = 0x7e00;
    std::memcpy(blocks[n].data() + j * G * bytes, &nan, sizeof nan);
  }
  std::vector<std::uint8_t> blocks[3];
};

}  // namespace posenc
