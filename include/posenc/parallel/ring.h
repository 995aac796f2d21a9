// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence that is spread over several ranks. Liu et al., arXiv:2310.01889 (ring
// attention): keys and values go round the ranks; each computes its own queries for the keys that it has,
//
//   o_i = sum over ranks r of e^(l_ir - L_i) o_ir,   L_i = ln sum over r of e^l_ir
//
// where o_ir and l_ir are output and log-sum-exp over the keys of rank r. Backward the keys go round
// again, each part reads o and L, and the gradients of keys follow them home.
//
// All ranks call with the same settings, each with its own tokens (positions/shard.h), as many as the
// others. q, k, v and all that is by query or by key is of the rank's tokens. mask.query_order and
// mask.key_order must state where they stand in the sequence (in their document, with cu_seqlens);
// positions are the true ones. What all tokens share (tables, sinks, scales) is the same on every rank.
//
// Queries and keys are rotated once, before they go round; 16-bit keys are rounded then, as in a cache.
// Memory of a rank: its own tokens, those of a neighbour twice, and backward their gradients four times.
// Engines between the calls: the communicator is tested between blocks of queries.
//
// Stick-breaking: contiguous tokens and a causal mask; parts merge from the last keys to the first, and are computed
// again in the backward pass. Forgetting gates of a plan: ranks exchange the totals of their runs of neighbouring tokens.
//
// Rejected, on every rank with the same message: gates and kernels over keys (CoPE, DAPE's), mixed heads
// after the softmax, what holds every pair (mask.visible, mask.bias), pages; calls that differ between
// ranks. Selective attention and PaTH have no such call.
#pragma once
#include "posenc/attention/plan.h"
#include "posenc/parallel/communicator.h"

namespace posenc::inline v0 {

struct RingOptions {
  // How long a rank waits for another, at most. Must exceed the time in which the slowest rank computes.
  double seconds = 600;
  // Must be equal on all ranks: a hash of what the caller chose by itself, such as the layout of the tokens.
  Index agreement = 0;
};

// The rank's rows of the result of the whole call. Throws std::invalid_argument as attend does, and
// [ring] as above; RankLost.
POSENC_API void ring_attend(const AttentionArgs&, const AttentionResult&, const Communicator&,
                            const RingOptions& = {}, const Executor& = default_executor());
// Accumulates the gradients of the sum of all ranks' sum(out * d_result.out) + sum(log_sum_exp *
// d_result.log_sum_exp). `result` is what ring_attend wrote, its log_sum_exp of f64. Gradients by query or by key
// are those of the rank's tokens. Gradients of what all tokens share (tables, networks, vectors of one token,
// sinks, scales, arrays of stages) are summed over the ranks, with the same bits on each.
POSENC_API void ring_attend_backward(const AttentionArgs&, const ConstAttentionResult& result,
                                     const ConstAttentionResult& d_result,
                                     const AttentionGradients&, const Communicator&,
                                     const RingOptions& = {}, const Executor& = default_executor());

// The same with the schemes of a plan, lowered for the distances between all tokens of the sequence.
// Inputs by query or by key are of the rank's tokens; gradients of parameters and of other inputs are
// summed over the ranks. Throws [ring] besides: inputs by pair; distances that were not lowered.
POSENC_API void ring_attend(const LoweredAttention&, const AttentionArgs& call,
                            std::span<const NamedArray> inputs, const AttentionResult&,
                            const Communicator&, const RingOptions& = {},
                            const Executor& = default_executor());
POSENC_API void ring_attend_backward(const LoweredAttention&, const AttentionArgs& call,
                                     std::span<const NamedArray> inputs,
                                     const ConstAttentionResult& result,
                                     const ConstAttentionResult& d_result,
                                     const AttentionGradients& gradients,
                                     std::span<const NamedGradient> named, const Communicator&,
                                     const RingOptions& = {}, const Executor& = default_executor());

}  // namespace posenc::v0
