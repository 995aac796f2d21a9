// SPDX-License-Identifier: Apache-2.0
// Attention by the definition, forward and backward: every term, stage, mask, region, soft cap,
// sink and normalisation of posenc/attention/attention.h, in double, with loops over all pairs and
// no idea of speed. What kernels are measured against. Free of gtest.
#pragma once
#include <span>
#include <vector>

#include "posenc/attention/attention.h"

namespace posenc::support {

// [B, H, Tq, Tk].
struct AttentionDetail {
  std::vector<double> content;        // scale q.k, capped if the cap goes there; 0 where hidden
  std::vector<double> terms;          // the sum of the terms, score_mlp aside; 0 where hidden
  std::vector<double> scores;         // what is normalised; -inf where hidden
  std::vector<double> probabilities;  // before mix_after; 0 where hidden
};

// Writes out and log_sum_exp. Tensors f64 or f32.
void attention_forward(const AttentionArgs&, const AttentionResult&, AttentionDetail* = nullptr);
// Accumulates the gradients of sum(out * d_out) + sum(log_sum_exp * d_lse); d_lse may be empty.
void attention_backward(const AttentionArgs&, const ConstHeads& d_out, const ConstTensorView& d_lse,
                        const AttentionGradients&);

// Results over disjoint keys -> the result over all: out [B, T, H, Dv], log_sum_exp [B, H, T].
// Empty parts (-inf) may hold anything. Stick-breaking: parts from the last keys to the first.
void merge_forward(std::span<const AttentionResult> parts, const AttentionResult& whole,
                   Normalisation = Normalisation::softmax);
// `whole` is what merge_forward gave. Accumulates into d_parts; views may be empty.
void merge_backward(std::span<const AttentionResult> parts, const AttentionResult& whole,
                    const ConstHeads& d_out, const ConstTensorView& d_lse,
                    std::span<const AttentionResult> d_parts,
                    Normalisation = Normalisation::softmax);

}  // namespace posenc::support
