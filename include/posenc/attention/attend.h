// SPDX-License-Identifier: Apache-2.0
// Attention by the definition of attention.h, on the CPU. A fast engine computes in float if it supports
// the call, an exact one in double all others (docs/attention.md, "Engines", has the error bounds).
// Memory: for each thread arrays of some queries and keys, never of all pairs, and in the exact engine
// copies in double of q, and of k and v unless there are few queries ("Cost").
// Outputs must not overlap inputs, each other or themselves. Two gradients may be the same view, which
// then receives the sum.
#pragma once
#include <span>

#include "posenc/attention/attention.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0 {

// A result as an input.
struct ConstAttentionResult {
  ConstHeads out{};               // [B, Tq, H, Dv], any float type
  ConstTensorView log_sum_exp{};  // [B, H, Tq], f64 or f32; empty: absent
  // For attend_backward: the result over more keys than the call's, as merge gives it. The gradients are then the
  // call's share of those of the whole.
  bool whole = false;

  ConstAttentionResult() = default;
  ConstAttentionResult(const ConstHeads& o, const ConstTensorView& l) : out(o), log_sum_exp(l) {}
  // A writable result converts to a read-only one.
  ConstAttentionResult(const AttentionResult& r) : out(r.out), log_sum_exp(r.log_sum_exp) {}
};

// Writes out and, unless empty, log_sum_exp. Throws [attention]: what check_attention and
// check_attention_indices reject. Row indices of lines and pairs are not checked again (check_rows).
// With a workspace of workspace_bytes the call allocates nothing; a smaller one is rejected. Without
// one, the call allocates its memory; the thread keeps up to 16 MiB of it for its next call.
POSENC_API void attend(const AttentionArgs&, const AttentionResult&,
                       const Executor& = default_executor(), Workspace = {});

// Accumulates the gradients of sum(out * d_result.out) + sum(log_sum_exp * d_result.log_sum_exp).
// d_result.log_sum_exp may be empty. `result` is the result of attend, whichever engine ran it; its log_sum_exp may be
// empty and is then computed again. The same bits for any number of threads.
// With result.whole the call has a part of the keys (a shard of a ring, a run of a cache): weights are exp(S -
// result.log_sum_exp), so that no output of the part itself is kept. Gradients of q and of tables add up over the parts,
// those of k and v belong to their part. result.log_sum_exp must be f64; result.out may have any float type, and what
// it is rounded to is what the gradients read. Rejected where results do not merge: stick-breaking, gates, mix_after,
// kernels over keys.
// Throws [attention].
POSENC_API void attend_backward(const AttentionArgs&, const ConstAttentionResult& result,
                                const ConstAttentionResult& d_result, const AttentionGradients&,
                                const Executor& = default_executor(), Workspace = {});

// Bytes of workspace that attend needs for a call with this executor, and attend_backward for the
// gradients that it computes. They grow with the shapes, the gradients and the executor's concurrency,
// and depend on positions, because a band covers the distances between them, on the classes of tokens,
// and with gates or stick-breaking on whether orders ascend. A workspace may begin at any address, must
// not overlap inputs and outputs of the call, and may be used by one call at a time. A rotate stage that
// no plan prepared still allocates its rotation. Throws [attention]: what attend and attend_backward
// reject in a call.
POSENC_API std::size_t workspace_bytes(const AttentionArgs&, const Executor& = default_executor());
POSENC_API std::size_t workspace_bytes(const AttentionArgs&, const AttentionGradients&,
                                       const Executor& = default_executor());

// Merges results over disjoint keys into the result over all of them. Not for calls with gates, kernels
// over keys or mixed heads, where a score depends on other keys or a weight on other heads. A sink must
// be in one part only. Empty parts (log-sum-exp -inf) are ignored; if all parts are empty, the result is
// 0 and -inf. With stick-breaking, parts go from the last keys to the first and log_sum_exp is the sum;
// stick_breaking_own is rejected, because its remainder is added once, at the end. Each part must have
// log_sum_exp. The output may be one of the parts. Throws [attention].
POSENC_API void merge(std::span<const ConstAttentionResult> parts, const AttentionResult& whole,
                      Normalisation = Normalisation::softmax);
// `whole` is the result of merge. Accumulates into d_parts (f64 or f32), whose views may be empty.
POSENC_API void merge_backward(std::span<const ConstAttentionResult> parts,
                               const ConstAttentionResult& whole,
                               const ConstAttentionResult& d_whole,
                               std::span<const AttentionResult> d_parts,
                               Normalisation = Normalisation::softmax);

// Scores and their parts as arrays, [B, H, Tq, Tk] of f64 or f32; each may be empty. Hidden pairs are 0,
// in scores -inf. A term that reads q and k counts as content, one that reads q only as query_position,
// k only as position_key, neither as position_position. score_mlp is in scores only.
struct AttentionScores {
  TensorView content{};        // scale a_h g_i q_i.k_j before the cap, and products of q and k
  TensorView scores{};         // what is normalised: mixes and mask.bias included
  TensorView capped{};         // after the soft cap: of q.k, or of q.k and the terms
  TensorView probabilities{};  // before mix_after
  TensorView query_position{}, position_key{}, position_position{};
};
POSENC_API void attend_scores(const AttentionArgs&, const AttentionScores&,
                              const Executor& = default_executor());
// Accumulates the gradients of sum(scores * d_scores) over visible pairs, with `scores` as
// attend_scores writes them; d_scores of hidden pairs is not read. Values, sinks and mix_after have no
// gradient here. d_scores: [B, H, Tq, Tk] of f64 or f32. Throws [attention].
POSENC_API void attend_scores_backward(const AttentionArgs&, const ConstTensorView& d_scores,
                                       const AttentionGradients&,
                                       const Executor& = default_executor());

}  // namespace posenc::v0
