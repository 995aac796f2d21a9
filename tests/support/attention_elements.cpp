// SPDX-License-Identifier: Apache-2.0
// One element of any view, in double.
#include <cstdint>
#include <stdexcept>

#include "support/attention_parts.h"

namespace posenc::support {
namespace {

double load(const void* data, DType t, Index at) {
  switch (t) {
    case DType::f64:
      return static_cast<const double*>(data)[at];
    case DType::f32:
      return static_cast<const float*>(data)[at];
    case DType::i64:
      return static_cast<double>(static_cast<const Index*>(data)[at]);
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[at];
    case DType::u8:
      return static_cast<const std::uint8_t*>(data)[at];
    default:
      throw std::runtime_error("attention reference: f64 and f32 only");
  }
}
void store(void* data, DType t, Index at, double x) {
  if (t == DType::f64)
    static_cast<double*>(data)[at] = x;
  else if (t == DType::f32)
    static_cast<float*>(data)[at] = static_cast<float>(x);
  else
    throw std::runtime_error("attention reference: f64 and f32 only");
}

Index offset(const ConstHeads& x, Index b, Index t, Index h, Index d) {
  return (x.batch == 1 ? 0 : b * x.batch_stride) + (x.tokens == 1 ? 0 : t * x.token_stride) +
         h * x.head_stride + d * x.dim_stride;
}
Index offset(const ConstTensorView& v, std::initializer_list<Index> at) {
  if (v.rank != static_cast<std::int32_t>(at.size()))
    throw std::runtime_error("attention reference: rank");
  Index r = 0;
  std::size_t a = 0;
  for (const Index i : at) {
    if (v.shape[a] != 1) r += i * v.stride[a];
    ++a;
  }
  return r;
}

}  // namespace

double get(const ConstHeads& x, Index b, Index t, Index h, Index d) {
  return load(x.data, x.dtype, offset(x, b, t, h, d));
}
void put(const Heads& x, Index b, Index t, Index h, Index d, double y) {
  store(x.data, x.dtype, offset(x, b, t, h, d), y);
}
void add(const Heads& x, Index b, Index t, Index h, Index d, double y) {
  if (x.data != nullptr) put(x, b, t, h, d, get(x, b, t, h, d) + y);
}
double get(const ConstTensorView& v, std::initializer_list<Index> at, double none) {
  return v.empty() ? none : load(v.data, v.dtype, offset(v, at));
}
Index get_integer(const ConstTensorView& v, std::initializer_list<Index> at) {
  if (v.dtype != DType::i64) return static_cast<Index>(get(v, at));
  return static_cast<const Index*>(v.data)[offset(v, at)];
}
void put(const TensorView& v, std::initializer_list<Index> at, double x) {
  if (!v.empty()) store(v.data, v.dtype, offset(v, at), x);
}
void add(const TensorView& v, std::initializer_list<Index> at, double x) {
  if (!v.empty()) put(v, at, get(v, at) + x);
}
double get_pair(const ConstTensorView& v, Index heads, Index b, Index h, Index i, Index j,
                double none) {
  if (v.rank == 2) return get(v, {i, j}, none);
  return v.empty() ? none : get(v, {b, group(h, heads, v.shape[1]), i, j});
}
void add_pair(const TensorView& v, Index heads, Index b, Index h, Index i, Index j, double x) {
  if (v.rank == 2) return add(v, {i, j}, x);
  if (!v.empty()) add(v, {b, group(h, heads, v.shape[1]), i, j}, x);
}

}  // namespace posenc::support
