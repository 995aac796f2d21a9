// SPDX-License-Identifier: Apache-2.0
// Single elements of any dtype, and where the rows of a token lie. Always inlined, as in token.h.
#pragma once
#include "core/convert.h"
#include "core/element.h"
#include "kernels/rotate.h"

namespace posenc::detail {

[[gnu::always_inline]] inline double ReadRow(const void* base, DType type, Index i) {
  switch (type) {
    case DType::f64:
      return static_cast<const double*>(base)[i];
    case DType::f16:
      return f32_from_f16(static_cast<const std::uint16_t*>(base)[i]);
    case DType::bf16:
      return f32_from_bf16(static_cast<const std::uint16_t*>(base)[i]);
    default:
      return static_cast<double>(static_cast<const float*>(base)[i]);
  }
}
[[gnu::always_inline]] inline Index RowOfToken(const Positions& p, Index axis, Index batch,
                                               Index token) {
  return integer_position(p, axis, batch, token);
}
[[gnu::always_inline]] inline Index RowOffset(const RowSource& r, const RowView& v, Index batch,
                                              Index token, Index head) {
  const Index at = r.index != nullptr ? RowOfToken(*r.index, 0, batch, token) * v.token_stride
                                      : batch * v.batch_stride + token * v.token_stride;
  return at + head * v.head_stride;
}

}  // namespace posenc::detail
