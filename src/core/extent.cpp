// SPDX-License-Identifier: Apache-2.0
#include "core/extent.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string>

#include "core/overlap.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

void check_axes(std::string_view who, std::string_view what, std::span<const ViewAxis> axes,
                Index bytes) {
  const auto refuse_axes = [&](std::string_view rule) {
    std::string sizes = "[";
    for (const ViewAxis& a : axes) sizes += (sizes.size() > 1 ? ", " : "") + std::to_string(a.size);
    refuse_field(who, what, std::string(rule).append(sizes) + "]");
  };
  Index numbers = 1, reach = 0;
  for (const ViewAxis& a : axes) {
    if (a.size < 0 || a.size > kMostSize) refuse_axes("must have sizes from 0 to 2^40, got ");
    numbers = saturated_product({numbers, std::max<Index>(1, a.size)});
    const Index step = a.size < 2 || a.stride == std::numeric_limits<Index>::min()
                           ? (a.size < 2 ? 0 : std::numeric_limits<Index>::max())
                           : std::max(a.stride, -a.stride);
    const Index far = saturated_product({step, std::max<Index>(0, a.size - 1), bytes});
    if (__builtin_add_overflow(reach, far, &reach)) reach = std::numeric_limits<Index>::max();
  }
  if (numbers > kMostNumbers) refuse_axes("must have at most 2^48 numbers, got ");
  if (reach >= Index{1} << 61)
    refuse_axes("must have strides that reach less than 2^61 bytes, got the sizes ");
}

}  // namespace

Index saturated_product(std::initializer_list<Index> sizes) noexcept {
  Index n = 1;
  for (const Index size : sizes) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(n, size, &n)) n = std::numeric_limits<Index>::max();
  }
  return n;
}

void check_extent(std::string_view who, std::string_view what, const ConstHeads& h) {
  const ViewAxis axes[] = {{h.batch, h.batch_stride},
                           {h.tokens, h.token_stride},
                           {h.heads, h.head_stride},
                           {h.dim, h.dim_stride}};
  check_axes(who, what, axes, size_of(h.dtype));
}

void check_extent(std::string_view who, std::string_view what, const ConstTensorView& v) {
  if (v.rank < 0 || v.rank > TensorView::kMaxRank)
    refuse_field(who, what, "must have 0 to 5 axes", Index{v.rank});
  ViewAxis axes[TensorView::kMaxRank];
  const auto rank = static_cast<std::size_t>(v.rank);
  for (std::size_t i = 0; i < rank; ++i) axes[i] = {v.shape[i], v.stride[i]};
  check_axes(who, what, std::span<const ViewAxis>(axes, rank), size_of(v.dtype));
}

void check_positions_view(std::string_view who, std::string_view what, const Positions& p) {
  const auto name = [&] { return std::string(what); };
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse_field(who, name(), "must be i64, i32 or f64", dtype_name(p.type));
  if (p.axes < 1) refuse_field(who, name(), "must have at least one axis", Index{p.axes});
  const ViewAxis axes[] = {{p.axes, p.axis_stride},
                           {p.batch, p.batch == 1 ? 0 : p.batch_stride},
                           {p.count, p.token_stride}};
  check_axes(who, what, axes, size_of(p.type));
  if (p.data == nullptr && p.count > 0 && p.batch > 0)
    refuse_field(who, name(), "must not be null where there are tokens", p.count);
}

}  // namespace posenc::v0::detail
