// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence over several ranks by heads. Jacobs et al.,
// arXiv:2309.14509 (DeepSpeed Ulysses): each rank gives its tokens' heads to
// the ranks that they belong to, computes all tokens of its own heads by one
// call, and gives the rows back.
//
//   rank r computes heads h with floor(h ranks / heads) = r, of all tokens
//
// Calls are those of ring_attend (parallel/ring.h). The heads of q must be a
// multiple of the ranks; other axes of heads (of k and v, tables, vectors,
// regions, stages) a multiple or a divisor, because ranks may share an entry.
// A rank sends and holds O(tokens x heads / ranks), and all tokens of what has
// one head for all. Gradients are added over the ranks that share an entry.
//
// A rank has all keys, so results need not merge and q and k are rotated there:
// CoPE's gates, stick-breaking of any layout and regions that rotate the call's
// own q and k are computed.
//
// Rejected, on every rank with the same message: what mixes heads (networks
// over scores, mix_before, mix_after), pages, q8_0 blocks, pairs as in a ring;
// calls that differ between ranks.
#pragma once
#include "posenc/parallel/ring.h"

namespace posenc::inline v0 {

// As ring_attend and ring_attend_backward. Throws std::invalid_argument as
// attend does, and [ulysses]; RankLost.
POSENC_API void ulysses_attend(const AttentionArgs&, const AttentionResult&, const Communicator&,
                               const RingOptions& = {}, const Executor& = default_executor());
POSENC_API void ulysses_attend_backward(const AttentionArgs&, const ConstAttentionResult& result,
                                        const ConstAttentionResult& d_result,
                                        const AttentionGradients&, const Communicator&,
                                        const RingOptions& = {},
                                        const Executor& = default_executor());

// The same with the schemes of a plan, as ring_attend has them: lowered for the
// distances between all tokens of the sequence.
POSENC_API void ulysses_attend(const LoweredAttention&, const AttentionArgs& call,
                               std::span<const NamedArray> inputs, const AttentionResult&,
                               const Communicator&, const RingOptions& = {},
                               const Executor& = default_executor());
POSENC_API void ulysses_attend_backward(
    const LoweredAttention&, const AttentionArgs& call, std::span<const NamedArray> inputs,
    const ConstAttentionResult& result, const ConstAttentionResult& d_result,
    const AttentionGradients& gradients, std::span<const NamedGradient> named, const Communicator&,
    const RingOptions& = {}, const Executor& = default_executor());

}  // namespace posenc::inline v0
