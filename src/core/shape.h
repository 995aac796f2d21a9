// SPDX-License-Identifier: Apache-2.0
// A shape in an error: of what is wrong with a tensor, a rank alone says little.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>

#include "posenc/core/error.h"
#include "posenc/core/heads.h"
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0::detail {

// "[2, 3]"
inline std::string sizes_text(std::span<const Index> sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}
inline std::string sizes_text(std::initializer_list<Index> sizes) {
  return sizes_text(std::span(sizes.begin(), sizes.size()));
}
// "1 axis", "3 axes"
inline std::string axes_text(Index n) {
  return std::to_string(n) + (n == 1 ? " axis" : " axes");
}
// "[2, 3] of f32"; where elements are not dense "[2, 3] of f32, strides [1, 2]".
inline std::string shape_text(const ConstTensorView& v) {
  const auto rank =
      static_cast<std::size_t>(std::clamp(v.rank, 0, std::int32_t{TensorView::kMaxRank}));
  Index dense = 1;
  bool strided = false;
  for (std::size_t i = rank; i-- > 0;) {
    strided |= v.shape[i] > 1 && v.stride[i] != dense;
    if (__builtin_mul_overflow(dense, v.shape[i], &dense)) dense = 0;
  }
  return sizes_text(std::span(v.shape.data(), rank)) + " of " + std::string(dtype_name(v.dtype)) +
         (strided ? ", strides " + sizes_text(std::span(v.stride.data(), rank)) : "");
}
// Batch, tokens, heads and channels, whatever the order of the axes.
inline std::string shape_text(const ConstHeads& h) {
  return sizes_text({h.batch, h.tokens, h.heads, h.dim});
}

// Throws ArgumentError("[who] field rule, got [2, 3] of f32").
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_shape(std::string_view who,
                                                                std::string_view field,
                                                                std::string_view rule,
                                                                const std::string& got) {
  refuse_field(who, field, std::string(rule) + ", got " + got);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_shape(std::string_view who,
                                                                std::string_view field,
                                                                std::string_view rule,
                                                                const ConstTensorView& v) {
  refuse_shape(who, field, rule, shape_text(v));
}
// The same for a rule that belongs to no single field.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_shape(std::string_view who,
                                                                std::string_view rule,
                                                                const std::string& got) {
  refuse(who, std::string(rule) + ", got " + got);
}
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_shape(std::string_view who,
                                                                std::string_view rule,
                                                                const ConstTensorView& v) {
  refuse_shape(who, rule, shape_text(v));
}

}  // namespace posenc::v0::detail
