// SPDX-License-Identifier: Apache-2.0
// Attention by the definition, forward and backward: every term, mask, region, soft cap, sink,
// scale and query factor of posenc/attention/attention.h, in double, with loops over all pairs and
// no idea of speed. What kernels are measured against. Free of gtest.
#pragma once
#include <vector>

#include "posenc/attention/attention.h"

namespace posenc::support {

// [B, H, Tq, Tk]; hidden pairs have score -inf and probability 0.
struct AttentionDetail {
  std::vector<double> scores, probabilities;
};

// Writes out and log_sum_exp. Tensors f64 or f32.
void attention_forward(const AttentionArgs&, AttentionDetail* = nullptr);
// Accumulates the gradients of sum(out * d_out) + sum(log_sum_exp * d_lse); d_lse may be empty.
void attention_backward(const AttentionArgs&, const ConstHeads& d_out, const ConstTensorView& d_lse,
                        const AttentionGradients&);

}  // namespace posenc::support
