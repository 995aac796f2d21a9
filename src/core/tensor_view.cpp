// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/tensor_view.h"

#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

template <class Data>
BasicTensorView<Data> dense(Data* data, DType dtype, std::span<const Index> shape) {
  if (shape.size() > static_cast<std::size_t>(TensorView::kMaxRank))
    refuse_field("tensor", "rank", "must be at most 5", static_cast<Index>(shape.size()));
  BasicTensorView<Data> v;
  v.data = data;
  v.dtype = dtype;
  v.rank = static_cast<std::int32_t>(shape.size());
  Index step = 1, bytes = size_of(dtype);
  bool none = false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] < 0) refuse_field("tensor", "sizes", "must not be negative", shape[i]);
    none = none || shape[i] == 0;
    v.shape[i] = shape[i];
    v.stride[i] = step;
    const Index n = shape[i] > 0 ? shape[i] : 1;
    // No division: it would be most of the cost of a view.
    if (__builtin_mul_overflow(bytes, n, &bytes))
      refuse("tensor", "the product of the sizes must fit 2^63 bytes, too large at a size", n);
    step *= n;
  }
  if (data == nullptr && !none)
    refuse_field("tensor", "data", "must not be null when there are elements");
  return v;
}

template <class Data>
BasicTensorView<Data> strided(Data* data, DType dtype, std::span<const Index> shape,
                              std::span<const Index> stride) {
  BasicTensorView<Data> v = dense(data, dtype, shape);
  if (stride.size() != shape.size())
    refuse("tensor", "one stride an axis", static_cast<Index>(stride.size()));
  for (std::size_t i = 0; i < stride.size(); ++i) v.stride[i] = stride[i];
  return v;
}

}  // namespace

TensorView tensor(void* data, DType dtype, std::initializer_list<Index> shape) {
  return dense(data, dtype, {shape.begin(), shape.size()});
}
ConstTensorView tensor(const void* data, DType dtype, std::initializer_list<Index> shape) {
  return dense(data, dtype, {shape.begin(), shape.size()});
}
TensorView tensor(void* data, DType dtype, std::span<const Index> shape) {
  return dense(data, dtype, shape);
}
ConstTensorView tensor(const void* data, DType dtype, std::span<const Index> shape) {
  return dense(data, dtype, shape);
}
TensorView tensor(void* data, DType dtype, std::span<const Index> shape,
                  std::span<const Index> stride) {
  return strided(data, dtype, shape, stride);
}
ConstTensorView tensor(const void* data, DType dtype, std::span<const Index> shape,
                       std::span<const Index> stride) {
  return strided(data, dtype, shape, stride);
}

bool is_dense(const ConstTensorView& v) noexcept {
  Index step = 1;
  for (std::int32_t i = v.rank; i-- > 0;) {
    const auto a = static_cast<std::size_t>(i);
    if (v.shape[a] == 0) return true;
    if (v.shape[a] != 1 && v.stride[a] != step) return false;
    step *= v.shape[a];
  }
  return true;
}

}  // namespace posenc::v0
