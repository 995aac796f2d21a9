// SPDX-License-Identifier: Apache-2.0
// What the fast engine gives to the list of engines. Calls were checked.
//
// Softmax over keys in blocks, in float: nothing of all pairs is kept, and a term is a start value of the
// products (kernels/attention/fast_strips.h). Errors: docs/attention.md, "Engines".
#pragma once
#include <span>
#include <string_view>

#include "attention/call/ready_call.h"
#include "attention/lowered/lowered_call.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// Why it does not run a call; empty: it does.
std::string_view fast_why_not(const ReadyCall&, const LoweredCall&);
// Writes all rows but those that it returns, (b * H + h) * Tq + i: of them a number is not finite, or so large
// that float does not hold what comes of it. Another engine must write them.
std::span<const Index> fast_forward(const ReadyCall&, const LoweredCall&, const AttentionResult&,
                                    CallArena&, const Executor&);

// The same of the gradients.
std::string_view fast_backward_why_not(const ReadyCall&, const LoweredCall&);
// Adds to the gradients. False: nothing was added, because a number is not finite, or so large that float does not
// hold what comes of it. Another engine must compute all of them.
bool fast_backward(const ReadyCall&, const LoweredCall&, const ConstAttentionResult& result,
                   const ConstAttentionResult& d_result, const AttentionGradients&, CallArena&,
                   const Executor&);

}  // namespace posenc::v0::detail
