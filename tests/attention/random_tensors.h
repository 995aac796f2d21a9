// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values at random, in any type of a call and as doubles.
#pragma once
#include <array>
#include <cstring>
#include <vector>

#include "attention/random_arrays.h"
#include "core/convert.h"
#include "posenc/core/key_blocks.h"

namespace posenc {

class RandomTensors : protected RandomArrays {
 protected:
  using RandomArrays::RandomArrays;

  // The same numbers in the type, u8: in q8_0 blocks, and as doubles.
  std::array<ConstHeads, 2> both(Index b, Index t, Index n, Index d, DType type) {
    if (type == DType::u8) return blocks(b, t, n, d);
    std::vector<Index> stride;
    const std::vector<Index> shape{b, t, n, d};
    const Index count = layout(shape, stride, doubles_) + 1;
    std::vector<double>& x = doubles_.back();
    halves_.emplace_back(static_cast<std::size_t>(count));
    floats_.emplace_back(static_cast<std::size_t>(count));
    std::vector<std::uint16_t>& h = halves_.back();
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = r_.normal();
      if (type == DType::bf16) x[i] = f32_from_bf16(h[i] = bf16_from(x[i]));
      if (type == DType::f16) x[i] = f32_from_f16(h[i] = f16_from(x[i]));
      if (type == DType::f32) x[i] = floats_.back()[i] = static_cast<float>(x[i]);
    }
    const void* data = x.data();
    if (type == DType::f32) data = floats_.back().data();
    if (type == DType::f16 || type == DType::bf16) data = h.data();
    return {heads(tensor(data, type, shape, stride), HeadsLayout::bthd),
            heads(tensor(static_cast<const void*>(x.data()), DType::f64, shape, stride),
                  HeadsLayout::bthd)};
  }
  DType any_type() {
    return std::array{DType::f32, DType::bf16, DType::f16,
                      DType::f64}[static_cast<std::size_t>(r_.integer(0, 3))];
  }

  DType type_ = DType::f64;  // of queries

 private:
  // Heads of blocks in any order of the other axes, from any byte on.
  std::array<ConstHeads, 2> blocks(Index b, Index t, Index n, Index d) {
    std::vector<Index> stride;
    const Index bytes = d / 32 * 34 + r_.integer(0, 3), first = r_.integer(0, 3);
    const Index count = layout({b, t, n}, stride, flags_) + 1;
    std::vector<std::uint8_t>& x = flags_.back();
    x.resize(static_cast<std::size_t>(count * bytes + first));
    for (std::uint8_t& byte : x) byte = static_cast<std::uint8_t>(r_.integer(0, 255));
    for (Index& s : stride) s *= bytes;
    doubles_.emplace_back();
    std::vector<double>& y = doubles_.back();
    for (Index i = 0; i < b * t * n * d; ++i) {
      const Index at = first + i / d / n / t * stride[0] + i / d / n % t * stride[1] +
                       i / d % n * stride[2] + i % d / 32 * 34;
      std::uint8_t* block = x.data() + at;
      if (i % 32 == 0) {
        const std::uint16_t scale = f16_from(0.013 * r_.normal());
        std::memcpy(block, &scale, sizeof scale);
      }
      std::uint16_t scale;
      std::memcpy(&scale, block, sizeof scale);
      y.push_back(static_cast<double>(f32_from_f16(scale)) *
                  static_cast<double>(static_cast<std::int8_t>(block[2 + i % 32])));
    }
    y.push_back(0);  // not null where it is empty
    const void* data = x.data() + first;
    stride.push_back(1);
    return {key_blocks(tensor(data, DType::u8, std::vector<Index>{b, t, n, d / 32 * 34}, stride),
                       HeadsLayout::bthd),
            heads(tensor(static_cast<const void*>(y.data()), DType::f64,
                         std::vector<Index>{b, t, n, d}),
                  HeadsLayout::bthd)};
  }
};

}  // namespace posenc
