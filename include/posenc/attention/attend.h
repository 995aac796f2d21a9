// SPDX-License-Identifier: Apache-2.0
// Attention by the definition of attention.h, on the CPU: arithmetic in double, a few rows at a time.
// Memory: copies in double of q and of the keys and values that some query may see, none of keys and
// values for a few queries (decoding), and for each thread arrays by key of 8 or 16 query rows, never
// of all pairs. docs/attention.md, "Cost", has the table.
// Outputs must not overlap what a call reads, each other or themselves; two gradients may be the very
// same view, and then get the sum.
#pragma once
#include <span>

#include "posenc/attention/attention.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0 {

// A result that is read.
struct ConstAttentionResult {
  ConstHeads out{};               // [B, Tq, H, Dv], any float type
  ConstTensorView log_sum_exp{};  // [B, H, Tq], f64 or f32; empty: not given

  ConstAttentionResult() = default;
  ConstAttentionResult(const ConstHeads& o, const ConstTensorView& l) : out(o), log_sum_exp(l) {}
  // What may be written may be read.
  ConstAttentionResult(const AttentionResult& r) : out(r.out), log_sum_exp(r.log_sum_exp) {}
};

// Writes out and, unless empty, log_sum_exp. Throws [attention]: what check_attention and
// check_attention_indices refuse. Rows of tables that lines and pairs pick are not checked again
// (check_rows). With a workspace of workspace_bytes the call allocates nothing; a smaller one is
// rejected, an empty one means that the call allocates its memory.
POSENC_API void attend(const AttentionArgs&, const AttentionResult&,
                       const Executor& = default_executor(), Workspace = {});

// Accumulates the gradients of sum(out * d_result.out) + sum(log_sum_exp * d_result.log_sum_exp).
// d_result.log_sum_exp may be empty. `result` is what attend gave; rows are computed anew. The same
// bits for any number of threads. Throws [attention].
POSENC_API void attend_backward(const AttentionArgs&, const ConstAttentionResult& result,
                                const ConstAttentionResult& d_result, const AttentionGradients&,
                                const Executor& = default_executor(), Workspace = {});

// Bytes of workspace that attend needs for a call with this executor, and attend_backward for the
// gradients that are wanted. They grow with the shapes, the gradients and the executor's
// concurrency, and depend on positions: a band covers the distances between them. A workspace may
// begin at any address. It must lie apart from everything that the call reads and writes, and
// serves one call at a time. A rotate stage that no plan prepared allocates its rotation all the
// same. Throws [attention]: what attend and attend_backward refuse of a call.
POSENC_API std::size_t workspace_bytes(const AttentionArgs&, const Executor& = default_executor());
POSENC_API std::size_t workspace_bytes(const AttentionArgs&, const AttentionGradients&,
                                       const Executor& = default_executor());

// Results over disjoint keys -> the result over all of them. Not of calls with gates, with kernels
// over keys or with mixed heads, where a score depends on other keys or a weight on other heads; a
// sink is in one part only. Empty parts (-inf) count nothing and may hold anything in out; nothing
// but empty parts: 0 and -inf. Of stick-breaking the parts go from the last keys to the first, and
// log_sum_exp is the sum (not stick_breaking_own: refused, its remainder is added once, at the
// end). Each part has log_sum_exp. The whole may be one of the parts. Throws [attention].
POSENC_API void merge(std::span<const ConstAttentionResult> parts, const AttentionResult& whole,
                      Normalisation = Normalisation::softmax);
// `whole` is what merge gave. Accumulates into d_parts (f64 or f32), whose views may be empty.
POSENC_API void merge_backward(std::span<const ConstAttentionResult> parts,
                               const ConstAttentionResult& whole,
                               const ConstAttentionResult& d_whole,
                               std::span<const AttentionResult> d_parts,
                               Normalisation = Normalisation::softmax);

// What a person wants to see, [B, H, Tq, Tk] of f64 or f32; each may be empty. Hidden pairs are 0,
// of scores -inf. The four-term view is a question of factors: a product that reads q and k is
// content, q alone query_position, k alone position_key, neither position_position. Gates, decay
// and distances are sorted by the same rule; score_mlp is in scores alone.
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
// attend_scores writes them; what d_scores has for hidden pairs is not read. Values, sinks and
// mix_after get nothing. d_scores: [B, H, Tq, Tk] of f64 or f32. Throws [attention].
POSENC_API void attend_scores_backward(const AttentionArgs&, const ConstTensorView& d_scores,
                                       const AttentionGradients&,
                                       const Executor& = default_executor());

}  // namespace posenc::v0
