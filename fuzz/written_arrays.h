// SPDX-License-Identifier: Apache-2.0
// Arrays as an input of a fuzz target writes them: {"name": ["f64", [2, 3], [0, 1.5]]}, that is dtype, shape, and
// numbers that are repeated until the array is full.
#pragma once
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "posenc/io/array.h"
#include "posenc/io/json.h"

namespace posenc::fuzz {

constexpr Index kMostElements = 4096;  // of one array

inline DType dtype_named(const Json& name) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
    if (name.is_string() && name.as_string() == dtype_name(t)) return t;
  return DType::f64;
}

// The bits of one number; of 16-bit floats cut, not rounded.
inline std::uint64_t bits_of(DType dtype, double x) {
  const auto f = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  const auto whole =
      static_cast<std::uint64_t>(static_cast<std::int64_t>(std::abs(x) < 0x1p62 ? x : 0));
  if (dtype == DType::f64) return std::bit_cast<std::uint64_t>(x);
  if (dtype == DType::f32) return f;
  if (dtype == DType::bf16) return f >> 16;
  if (dtype != DType::f16) return whole;
  const auto exponent = static_cast<int>(f >> 23 & 255) - 112;
  if (exponent <= 0 || exponent > 30) return 0;
  return (f >> 16 & 0x8000u) | (static_cast<std::uint32_t>(exponent) << 10) | (f >> 13 & 0x3ffu);
}

inline std::optional<Array> written_array(const Json& j) {
  if (!j.is_array() || j.as_array().size() != 3) return {};
  const Json &shape = j.as_array()[1], &numbers = j.as_array()[2];
  if (!shape.is_array() || !numbers.is_array() || shape.as_array().size() > 8) return {};
  std::vector<Index> sizes;
  Index count = 1;
  for (const Json& n : shape.as_array()) {
    if (!n.is_integer() || n.as_integer() < 0 || n.as_integer() > kMostElements) return {};
    sizes.push_back(n.as_integer());
    count *= n.as_integer();
    if (count > kMostElements) return {};
  }
  Array a = make_array(dtype_named(j.as_array()[0]), sizes);
  const auto size = static_cast<std::size_t>(size_of(a.dtype));
  const std::vector<Json>& list = numbers.as_array();
  for (std::size_t i = 0; !list.empty() && i < static_cast<std::size_t>(count); ++i) {
    const Json& x = list[i % list.size()];
    const std::uint64_t bits = bits_of(a.dtype, x.is_number() ? x.as_number() : 0);
    std::memcpy(a.bytes.data() + i * size, &bits, size);
  }
  return a;
}

// What written_array reads: the first numbers of an array. Nothing where the array is too large.
inline std::optional<Json> as_written(const Array& a) {
  if (a.count() > kMostElements) return {};
  Json shape = Json::array(), numbers = Json::array();
  for (const Index n : a.shape) shape.push(Json(n));
  const std::vector<double> values = a.doubles();
  for (std::size_t i = 0; i < values.size() && i < 32; ++i)
    numbers.push(Json(std::isfinite(values[i]) ? values[i] : 0.0));
  return Json::array({Json(dtype_name(a.dtype)), std::move(shape), std::move(numbers)});
}

inline Arrays written_arrays(const Json* object) {
  Arrays arrays;
  if (object == nullptr || !object->is_object()) return arrays;
  for (const auto& [name, j] : object->as_object())
    if (std::optional<Array> a = written_array(j)) arrays.insert_or_assign(name, std::move(*a));
  return arrays;
}

}  // namespace posenc::fuzz
