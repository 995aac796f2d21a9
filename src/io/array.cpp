// SPDX-License-Identifier: Apache-2.0
#include "posenc/io/array.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/convert.h"
#include "posenc/core/error.h"

static_assert(std::endian::native == std::endian::little, "arrays in memory are little-endian");

namespace posenc::inline v0 {
namespace {

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

double element(DType t, const std::byte* p) {
  switch (t) {
    case DType::f64:
      return load<double>(p);
    case DType::f32:
      return static_cast<double>(load<float>(p));
    case DType::f16:
      return static_cast<double>(f32_from_f16(load<std::uint16_t>(p)));
    case DType::bf16:
      return static_cast<double>(f32_from_bf16(load<std::uint16_t>(p)));
    case DType::i64:
      return static_cast<double>(load<std::int64_t>(p));
    case DType::i32:
      return load<std::int32_t>(p);
    case DType::u8:
      return load<std::uint8_t>(p);
  }
  return 0;
}

Index whole(DType t, const std::byte* p) {
  if (t == DType::i64) return load<std::int64_t>(p);
  const double d = element(t, p);
  if (!(d >= -0x1p63 && d < 0x1p63) || d != std::floor(d))
    refuse_field("array", "values", "must be whole and fit 64 bits", d);
  return static_cast<Index>(d);
}

// Shape x size of an element, refused where it does not fit.
std::size_t checked_bytes(DType dtype, const std::vector<Index>& shape) {
  Index n = size_of(dtype);
  bool none = false;
  for (const Index s : shape) {
    if (s < 0) refuse_field("array", "sizes", "must not be negative", s);
    none = none || s == 0;
    if (s > 0 && n > kUnbounded / s)
      refuse("array", "the product of the sizes must fit 2^63 bytes, too large at a size", s);
    if (s > 0) n *= s;
  }
  return none ? 0 : static_cast<std::size_t>(n);
}

void check_bytes(const Array& a) {
  if (checked_bytes(a.dtype, a.shape) != a.bytes.size())
    refuse_field("array", "bytes", "must be as many as the shape needs",
                 static_cast<Index>(a.bytes.size()));
}

}  // namespace

Index Array::count() const {
  Index n = 1;
  for (const Index s : shape) n *= s;
  return n;
}

TensorView Array::view() {
  check_bytes(*this);
  return tensor(static_cast<void*>(bytes.data()), dtype, shape);
}

ConstTensorView Array::view() const {
  check_bytes(*this);
  return tensor(static_cast<const void*>(bytes.data()), dtype, shape);
}

std::vector<double> Array::doubles() const {
  check_bytes(*this);
  std::vector<double> r(static_cast<std::size_t>(count()));
  const auto step = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = element(dtype, bytes.data() + i * step);
  return r;
}

std::vector<Index> Array::integers() const {
  check_bytes(*this);
  std::vector<Index> r(static_cast<std::size_t>(count()));
  const auto step = static_cast<std::size_t>(size_of(dtype));
  for (std::size_t i = 0; i < r.size(); ++i) r[i] = whole(dtype, bytes.data() + i * step);
  return r;
}

Array make_array(DType dtype, std::vector<Index> shape) {
  Array a;
  a.bytes.resize(checked_bytes(dtype, shape));
  a.dtype = dtype;
  a.shape = std::move(shape);
  return a;
}

Array make_array(const ConstTensorView& v) {
  if (v.device != Device::cpu) refuse("array", "memory must be the CPU's");
  Array a = make_array(v.dtype, {v.shape.begin(), v.shape.begin() + v.rank});
  if (a.bytes.empty()) return a;
  if (is_dense(v)) {
    std::memcpy(a.bytes.data(), v.data, a.bytes.size());
    return a;
  }
  const Index size = size_of(v.dtype);
  std::array<Index, TensorView::kMaxRank> at{};
  const auto* from = static_cast<const std::byte*>(v.data);
  for (std::byte* to = a.bytes.data();; to += size) {
    std::memcpy(to, from, static_cast<std::size_t>(size));
    std::int32_t axis = v.rank - 1;
    for (; axis >= 0; --axis) {  // an odometer over the axes
      const auto i = static_cast<std::size_t>(axis);
      from += v.stride[i] * size;
      if (++at[i] < v.shape[i]) break;
      from -= v.stride[i] * size * v.shape[i];
      at[i] = 0;
    }
    if (axis < 0) return a;
  }
}

}  // namespace posenc::v0
