// SPDX-License-Identifier: Apache-2.0
// Element types of tensors and where tensors live.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "posenc/core/export.h"

namespace posenc::inline v0 {

// Sizes, offsets, strides and integer positions are 64-bit everywhere.
using Index = std::int64_t;
inline constexpr Index kUnbounded = INT64_MAX;

enum class DType : std::uint8_t { f64, f32, f16, bf16, i64, i32, u8 };
enum class Device : std::uint8_t { cpu, cuda };

// Bytes of one element.
constexpr Index size_of(DType t) noexcept {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType t) noexcept {
  return t <= DType::bf16;
}

// "f64", "f32", "f16", "bf16", "i64", "i32", "u8".
POSENC_API std::string_view dtype_name(DType) noexcept;
// The inverse. Throws std::invalid_argument naming the known types.
POSENC_API DType dtype_from_name(std::string_view);

template <class T>
struct dtype_of_t {
  static_assert(sizeof(T) == 0,
                "no dtype of this C++ type; 16-bit floats have none: give a void pointer and "
                "DType::f16 or DType::bf16, as in heads(tensor(p, DType::bf16, {t, h, d}), "
                "HeadsLayout::thd)");
};
template <>
struct dtype_of_t<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of_t<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_t<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_t<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_t<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;

}  // namespace posenc::v0
