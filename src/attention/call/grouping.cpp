// SPDX-License-Identifier: Apache-2.0
#include "attention/call/grouping.h"

#include "core/element.h"

namespace posenc::inline v0::detail {

Index entry_offset(const ConstTensorView& v, std::array<Index, 4> at) noexcept {
  Index offset = 0;
  for (std::size_t n = 0; n < static_cast<std::size_t>(v.rank); ++n)
    offset += v.shape[n] == 1 ? 0 : at[n] * v.stride[n];
  return offset;
}

double read_number(const ConstTensorView& v, Index a, Index b, Index c, Index d) noexcept {
  return float_element(v.data, v.dtype, entry_offset(v, {a, b, c, d}));
}
Index read_index(const ConstTensorView& v, Index a, Index b) noexcept {
  return integer_element(v.data, v.dtype, entry_offset(v, {a, b, 0, 0}));
}

PairRow pair_row(const ConstTensorView& v, Index heads, Index b, Index h, Index i) noexcept {
  const auto last = static_cast<std::size_t>(v.rank - 1);
  const Index step = v.shape[last] == 1 ? 0 : v.stride[last];
  if (v.rank == 2) return {entry_offset(v, {i, 0, 0, 0}), step};
  return {entry_offset(v, {b, Grouping{heads, v.shape[1]}.of(h), i, 0}), step};
}

}  // namespace posenc::v0::detail
