// SPDX-License-Identifier: Apache-2.0
// Gradients of q and k as prepared, back through the stages to the caller's.
#pragma once
#include "attention/fast/backward_call.h"

namespace posenc::inline v0::detail {

// Numbers of the largest array of a stage that has a gradient.
Index largest_stage_array(const AttentionGradients&) noexcept;
// From BackwardCall::prepared_q and prepared_k. `sums`: memory of largest_stage_array numbers.
void pull_fast_stages(const BackwardCall&, const LoweredCall&, std::span<double> sums,
                      const Executor&);

}  // namespace posenc::v0::detail
