// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence over several ranks by heads. Jacobs et al.,
// arXiv:2309.14509 (DeepSpeed Ulysses): each rank gives its tokens' heads to
// the ranks that they belong to, computes all tokens of its own heads by one
// call, and gives the rows back. A rank sends and holds O(tokens x heads /
// ranks).
//
// Calls are those of ring_attend (parallel/ring.h), the tokens any that count
// up over all ranks together. Heads and key heads must be multiples of the
// ranks; arrays by head have one entry or a multiple of them. Because a rank
// has all keys, results need not merge: CoPE's gates and stick-breaking of any
// layout are computed.
//
// Rejected, on every rank with the same message: what mixes heads (networks
// over scores, mix_before, mix_after), vectors and classes by token of terms,
// stages other than rotations, regions, packed sequences, pages, q8_0 blocks,
// key_length, pairs as in a ring; calls that differ between ranks.
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

}  // namespace posenc::inline v0
