// SPDX-License-Identifier: Apache-2.0
// What the gradients of the phase and of rows share: the tensors before the turn and the gradients
// behind it.
#pragma once
#include "core/element.h"
#include "rotary/plan_state.h"

namespace posenc::inline v0::detail {

// Throws [rotary]: x and d_out that differ in shape, are not of the plan's dtype and head size, or
// are not both there.
void check_gradient_tensors(const RotaryPlanState&, const ConstQK& x, const ConstQK& d_out);

inline double head_element(const ConstHeads& h, Index batch, Index token, Index head,
                           Index channel) noexcept {
  return float_element(h.data, h.dtype,
                       batch * h.batch_stride + token * h.token_stride + head * h.head_stride +
                           channel * h.dim_stride);
}

}  // namespace posenc::v0::detail
