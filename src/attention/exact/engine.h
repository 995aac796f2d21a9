// SPDX-License-Identifier: Apache-2.0
// What the exact engine gives to the list of engines. Calls were checked.
#pragma once
#include "attention/call/ready_call.h"
#include "attention/lowered/lowered_call.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

void exact_forward(const ReadyCall&, const LoweredCall&, const AttentionResult&, CallArena&,
                   const Executor&);
// Rows (b * H + h) * Tq + i alone, of a call without mixed heads.
void exact_forward_rows(const ReadyCall&, const LoweredCall&, const AttentionResult&,
                        std::span<const Index> rows, CallArena&, const Executor&);
void exact_backward(const ReadyCall&, const LoweredCall&, const ConstAttentionResult& result,
                    const ConstAttentionResult& d_result, const AttentionGradients&, CallArena&,
                    const Executor&);

// The calls are checked here.
void exact_scores(const AttentionArgs&, const LoweredCall&, const AttentionScores&,
                  const Executor&);
void exact_scores_backward(const AttentionArgs&, const LoweredCall&,
                           const ConstTensorView& d_scores, const AttentionGradients&,
                           const Executor&);

}  // namespace posenc::v0::detail
