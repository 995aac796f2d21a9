// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "posenc/relative/term.h"

namespace posenc::detail {

// Throws [who] what `accumulate` would refuse, before anything is written: one view a parameter,
// each empty or writable, of the parameter's shape, f64 or f32.
void check_gradients(std::string_view who, std::span<const Parameter>,
                     std::span<const TensorView> to);

}  // namespace posenc::detail
