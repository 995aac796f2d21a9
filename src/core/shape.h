// SPDX-License-Identifier: Apache-2.0
// A shape in an error: of what is wrong with a tensor, a rank alone says little.
#pragma once
#include <algorithm>
#include <string>

#include "posenc/core/error.h"
#include "posenc/core/tensor_view.h"

namespace posenc::detail {

// "[2, 3] of f32"
inline std::string shape_text(const TensorView& v) {
  std::string text = "[";
  const std::int32_t rank = std::clamp(v.rank, 0, std::int32_t{TensorView::kMaxRank});
  for (std::int32_t i = 0; i < rank; ++i)
    text += (i > 0 ? ", " : "") + std::to_string(v.shape[static_cast<std::size_t>(i)]);
  return text + "] of " + std::string(name(v.dtype));
}

// Throws std::invalid_argument("[who] rule, got [2, 3] of f32").
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_shape(std::string_view who,
                                                                std::string_view rule,
                                                                const TensorView& v) {
  refuse(who, std::string(rule) + ", got " + shape_text(v));
}

}  // namespace posenc::detail
