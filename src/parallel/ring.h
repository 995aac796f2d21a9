// SPDX-License-Identifier: Apache-2.0
// The loop of a ring, forward and backward, on a call that all ranks agreed on.
#pragma once
#include <functional>

#include "parallel/facts.h"
#include "parallel/ring_call.h"

namespace posenc::inline v0::detail {

// As the positions of the tokens that are rotated show it; 0: none are.
Index sequence_length(const AttentionArgs&);

void ring_forward(const Group&, RingCall&, const AttentionResult&, const Executor&);

// Which shared arrays' gradients are summed over the ranks; those of a plan's own terms are not, because the gradients of its
// parameters are.
struct SummedGradients {
  std::size_t first_term = 0, terms = 0;
  bool head_scale = true;
};
void ring_backward(const Group&, RingCall&, const ConstAttentionResult& whole,
                   const ConstAttentionResult& d_whole, const AttentionGradients&,
                   const SummedGradients&, const Executor&);

// Both from the checks on: what a rank cannot run, `problem` included, ends the call on all of them.
// agreed(call) runs once all ranks can, and refuses on all of them alike.
using Agreed = std::function<void(KeyedCall&)>;
void ring_call(const Group&, const AttentionArgs&, const LoweredCall&, const AttentionResult&,
               const Executor&, const std::exception_ptr& problem, const Agreed& agreed);
void ring_call_backward(const Group&, const AttentionArgs&, const LoweredCall&,
                        const ConstAttentionResult& result, const ConstAttentionResult& d_result,
                        const AttentionGradients&, const SummedGradients&, const Executor&,
                        const std::exception_ptr& problem, const Agreed& agreed);

}  // namespace posenc::v0::detail
