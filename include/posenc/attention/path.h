// SPDX-License-Identifier: Apache-2.0
// PaTH attention. Yang et al., arXiv:2505.16381, section 3: between key and query is a product of one
// reflection for each token,
//   S_ij = s (q_i . H_i H_(i-1) ... H_(j+1) k_j + c_i - c_j),  H_t = I - beta_t w_t w_t^T
//   c_t = sum of log gates up to t (PaTH-FoX; without gates 0),  P = softmax of keys up to the query
// flash-linear-attention multiplies the gates by the scale too: gates_scaled. This is not a sum
// of terms, so it is a separate function: on the CPU, in double, query by query. Besides the inputs in
// double it needs the keys of one query for each thread, and in the backward pass sums of the gradients of k, v,
// w, beta and log_gate for each key head, or for at most 16 groups of query heads if these are fewer.
#pragma once
#include "posenc/attention/attend.h"

namespace posenc::inline v0 {

struct PathArgs {
  ConstHeads q{};                  // [B, Tq, H, D]
  ConstHeads k{}, v{};             // [B, Tk, G, D], [B, Tk, G, Dv]
  ConstHeads w{};                  // [B, Tk, W, D], W divides H; as published of length 1
  ConstHeads beta{};               // [B, Tk, W, 1], as published 0 .. 2
  ConstHeads log_gate{};           // [B, Tk, F, 1], F divides H. Null: none
  std::optional<double> scale{};   // absent: D^-1/2
  bool gates_scaled = true;        // false: c_i - c_j outside the scale
  Index query_offset = 0;          // query i is key query_offset + i
  Index window_left = kUnbounded;  // keys before the query's own
};
struct PathGradients {
  Heads q{}, k{}, v{}, w{}, beta{}, log_gate{};  // f64 or f32, ACCUMULATED; null: not computed
};

// Throws [path]: shapes, queries that are not among the keys.
POSENC_API void attend_path(const PathArgs&, const AttentionResult&,
                            const Executor& = default_executor());
// The gradients of sum(out * d_result.out) + sum(log_sum_exp * d_result.log_sum_exp); scores are
// computed again. The same bits for any number of threads.
POSENC_API void attend_path_backward(const PathArgs&, const ConstAttentionResult& d_result,
                                     const PathGradients&, const Executor& = default_executor());

}  // namespace posenc::v0
