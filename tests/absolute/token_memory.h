// SPDX-License-Identifier: Apache-2.0
// Tensors of tokens in any dtype with holes and guards, for tests of what writes them.
#pragma once
#include <cstring>
#include <vector>

#include "core/convert.h"
#include "posenc/core/tensor_view.h"
#include "support/random.h"

namespace posenc::test {

inline constexpr Index kGuard = 64;

inline double widen(const std::byte* at, DType type) {
  if (type == DType::f64) {
    double x;
    std::memcpy(&x, at, 8);
    return x;
  }
  if (type == DType::f32) {
    float x;
    std::memcpy(&x, at, 4);
    return static_cast<double>(x);
  }
  std::uint16_t x;
  std::memcpy(&x, at, 2);
  return static_cast<double>(type == DType::f16 ? f32_from_f16(x) : f32_from_bf16(x));
}
inline void narrow(double x, DType type, std::byte* at) {
  if (type == DType::f64) {
    std::memcpy(at, &x, 8);
  } else if (type == DType::f32) {
    const auto y = static_cast<float>(x);
    std::memcpy(at, &y, 4);
  } else {
    const std::uint16_t y = type == DType::f16 ? f16_from(x) : bf16_from(x);
    std::memcpy(at, &y, 2);
  }
}
inline double ulp(DType type) {  // half a unit in the last place, relative
  return type == DType::f64   ? 0x1p-53
         : type == DType::f32 ? 0x1p-24
         : type == DType::f16 ? 0x1p-11
                              : 0x1p-8;
}

// [batch, tokens, width] with holes of `gap` elements between tokens, channels `step` apart,
// guards.
struct Tokens {
  DType type;
  Index batch, tokens, width, step, gap;
  std::vector<std::byte> memory;
  Tokens(DType t, Index b, Index n, Index w, Index s = 1, Index g = 0)
      : type(t),
        batch(b),
        tokens(n),
        width(w),
        step(s),
        gap(g),
        memory(static_cast<std::size_t>((b * n * (w * s + g) + 2 * kGuard) * size_of(t)),
               std::byte{0x5a}) {}
  Index at(Index b, Index t, Index c) const {
    return kGuard + (b * tokens + t) * (width * step + gap) + c * step;
  }
  std::byte* pointer(Index b, Index t, Index c) {
    return memory.data() + at(b, t, c) * size_of(type);
  }
  double get(Index b, Index t, Index c) { return widen(pointer(b, t, c), type); }
  TensorView view() {
    const Index shape[] = {batch, tokens, width};
    const Index row = width * step + gap, stride[] = {tokens * row, row, step};
    return tensor(static_cast<void*>(pointer(0, 0, 0)), type, shape, stride);
  }
  void fill(Random& random) {
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tokens; ++t)
        for (Index c = 0; c < width; ++c)
          narrow(static_cast<double>(random.integer(-128, 127)) / 64, type, pointer(b, t, c));
  }
  // What lies between and around the elements.
  std::vector<std::byte> holes() {
    std::vector<std::byte> copy = memory;
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tokens; ++t)
        for (Index c = 0; c < width; ++c)
          std::memset(copy.data() + at(b, t, c) * size_of(type), 0,
                      static_cast<std::size_t>(size_of(type)));
    return copy;
  }
};

}  // namespace posenc::test
