// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/view.h"

#include "core/shape.h"
#include "posenc/core/error.h"
#include "positions/shared_row.h"

namespace posenc::inline v0 {
namespace {

template <class T>
Positions view(std::span<const T> p) {
  Positions r;
  r.data = p.data();
  r.type = dtype_of<T>;
  r.count = static_cast<Index>(p.size());
  return r;
}

}  // namespace

Positions positions(std::span<const Index> p) {
  return view(p);
}
Positions positions(std::span<const std::int32_t> p) {
  return view(p);
}
Positions positions(std::span<const double> p) {
  return view(p);
}

Positions positions(const ConstTensorView& v) {
  if (v.dtype != DType::i64 && v.dtype != DType::i32 && v.dtype != DType::f64)
    refuse_field("positions", "dtype", "must be i64, i32 or f64", dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse("positions", "memory must be the CPU's");
  if (v.rank < 1 || v.rank > 3)
    detail::refuse_shape("positions", "must be [t], [b, t] or [axes, b, t]", v);
  Positions p;
  p.data = v.data;
  p.type = v.dtype;
  const auto last = static_cast<std::size_t>(v.rank - 1);
  p.count = v.shape[last];
  p.token_stride = v.stride[last];
  if (v.rank > 1) p.batch = v.shape[last - 1], p.batch_stride = v.stride[last - 1];
  if (v.rank > 2) p.axes = static_cast<std::int32_t>(v.shape[0]), p.axis_stride = v.stride[0];
  return detail::shared_row(p);
}

Index OwnedPositions::count() const noexcept {
  const Index n = std::visit([](const auto& v) { return static_cast<Index>(v.size()); }, value);
  const Index rows = Index{axes} * batch;
  return rows > 0 ? n / rows : 0;
}

OwnedPositions::operator Positions() const noexcept {
  Positions p;
  std::visit([&](const auto& v) { p.data = v.data(); }, value);
  p.type = value.index() == 0 ? DType::i64 : DType::f64;
  p.axes = axes;
  p.batch = batch;
  p.count = p.batch_stride = count();
  p.axis_stride = p.count * batch;
  return detail::shared_row(p);
}

}  // namespace posenc::v0
