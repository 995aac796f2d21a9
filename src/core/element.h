// SPDX-License-Identifier: Apache-2.0
// One number of a tensor or of positions, widened; nothing is checked. Always inlined: files
// compiled with other flags include this, and the linker must not mix their copies.
#pragma once
#include <cstdint>

#include "core/convert.h"
#include "posenc/core/positions.h"

namespace posenc::inline v0::detail {

// Of u8, i32 or i64; of f64 when it is a whole number.
[[gnu::always_inline]] inline Index integer_element(const void* data, DType type,
                                                    Index at) noexcept {
  switch (type) {
    case DType::i64:
      return static_cast<const std::int64_t*>(data)[at];
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[at];
    case DType::u8:
      return static_cast<const std::uint8_t*>(data)[at];
    default:
      return static_cast<Index>(static_cast<const double*>(data)[at]);
  }
}
// Of u8, i32, i64 or f64.
[[gnu::always_inline]] inline double real_element(const void* data, DType type, Index at) noexcept {
  return type == DType::f64 ? static_cast<const double*>(data)[at]
                            : static_cast<double>(integer_element(data, type, at));
}
// Of a float type.
[[gnu::always_inline]] inline double float_element(const void* data, DType type,
                                                   Index at) noexcept {
  switch (type) {
    case DType::f64:
      return static_cast<const double*>(data)[at];
    case DType::f16:
      return f32_from_f16(static_cast<const std::uint16_t*>(data)[at]);
    case DType::bf16:
      return f32_from_bf16(static_cast<const std::uint16_t*>(data)[at]);
    default:
      return static_cast<double>(static_cast<const float*>(data)[at]);
  }
}

// x to an element of a float type, rounded once.
template <class T>
[[gnu::always_inline]] inline void put_element(void* data, DType type, Index at, T x) noexcept {
  if (type == DType::f64)
    static_cast<double*>(data)[at] = x;
  else if (type == DType::f32)
    static_cast<float*>(data)[at] = static_cast<float>(x);
  else
    static_cast<std::uint16_t*>(data)[at] = type == DType::f16 ? f16_from(x) : bf16_from(x);
}

// The same, added to what the element holds.
[[gnu::always_inline]] inline void add_element(void* data, DType type, Index at,
                                               double x) noexcept {
  put_element(data, type, at, float_element(data, type, at) + x);
}

[[gnu::always_inline]] inline Index position_offset(const Positions& p, Index axis, Index batch,
                                                    Index token) noexcept {
  return axis * p.axis_stride + batch * p.batch_stride + token * p.token_stride;
}
[[gnu::always_inline]] inline Index integer_position(const Positions& p, Index axis, Index batch,
                                                     Index token) noexcept {
  return integer_element(p.data, p.type, position_offset(p, axis, batch, token));
}
[[gnu::always_inline]] inline double real_position(const Positions& p, Index axis, Index batch,
                                                   Index token) noexcept {
  return real_element(p.data, p.type, position_offset(p, axis, batch, token));
}

// Towards minus infinity; n > 0.
[[gnu::always_inline]] inline Index floor_divide(Index a, Index n) noexcept {
  return a / n - (a % n < 0 ? 1 : 0);
}

}  // namespace posenc::v0::detail
