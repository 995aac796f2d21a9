// SPDX-License-Identifier: Apache-2.0
// What the exact engine gives to the list of engines. Calls were checked.
#pragma once
#include "attention/lowered/lowered_call.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

std::size_t exact_workspace_bytes(const AttentionArgs&, const LoweredCall&);
void exact_forward(const AttentionArgs&, const LoweredCall&, const AttentionResult&,
                   const Executor&);
void exact_backward(const AttentionArgs&, const LoweredCall&, const ConstAttentionResult& result,
                    const ConstAttentionResult& d_result, const AttentionGradients&,
                    const Executor&);

}  // namespace posenc::v0::detail
