// SPDX-License-Identifier: Apache-2.0
// FIRE: a small network of a normalised distance. Li et al., arXiv:2310.04418, section 4:
//   S_ij += f_h(psi(i - j) / (psi(max(i, L)) + epsilon)),   psi(x) = ln(|c x| + 1)
//   f = W_2 act(W_1 x + b_1) + b_2,   L = |L_multiplier L_0|,   i the position of the query
// L_0 is fixed (512; the Megatron code of DAPE's authors halves it), c and L_multiplier are learned
// numbers. act is ReLU, in DAPE's own FIRE a leaky one of slope 0.01. FlashT5's bidirectional form
// keeps the sign of the distance (keep_sign). It is not shift invariant: positions of packed or
// padded sequences must start at 0 in each. Not scaled with q.k.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Fire {
  static constexpr Card card{"fire", "functional interpolation of relative positions (FIRE)",
                             "arXiv:2310.04418", "sec. 4"};
  Index width = 32;
  double initial_length = 512, initial_c = 0.1;
  bool keep_sign = false;
  double slope = 0;
  double epsilon = 1e-6;
  Index axis = 0;

  // c [] and L_multiplier [], mlp_0_weight [width, 1], mlp_0_bias [width], mlp_2_weight
  // [heads, width], mlp_2_bias [heads]: as a linear layer of PyTorch starts.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Fire&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width, Field{.doc = "hidden units", .min = 1, .max = 65536});
    v("initial_length", s.initial_length,
      Field{.doc = "L_0, times the learned multiplier", .unit = "tokens", .min = 1e-300});
    v("initial_c", s.initial_c, Field{.doc = "initial c"});
    v("keep_sign", s.keep_sign, Field{.doc = "psi has the sign of the distance (FlashT5)"});
    v("slope", s.slope, Field{.doc = "of the activation below 0; 0: ReLU"});
    v("epsilon", s.epsilon, Field{.doc = "added to the denominator", .min = 0});
    v("axis", s.axis, Field{.doc = "axis of the positions", .min = 0, .max = 7});
  }
};

}  // namespace posenc::v0
