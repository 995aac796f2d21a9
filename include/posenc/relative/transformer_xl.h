// SPDX-License-Identifier: Apache-2.0
// Transformer-XL's relative positions. Dai et al., arXiv:1901.02860, section 3.3:
//   S_ij = s [ (q_i + u_h) . k_j + (q_i + v_h) . (W_kR R_delta)_h ]
// s is the scale of the content, ScoreShape::scale (the authors': 1 / sqrt(head_dim))
//   R_delta = [sin(delta w_m) | cos(delta w_m)], w_m = base^(-2m / d_model), m < d_model / 2
// q.k is the score of the call; u.k, q.R and v.R are three terms, the last one a number a distance.
// Distances of both signs are right here, where the authors' shift is right for the past only
// (XLNet's for both).
// Implementation: src/relative/transformer_xl.cpp.
#pragma once

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct TransformerXl {
  static constexpr Card card{"transformer_xl", "Transformer-XL relative positions",
                             "arXiv:1901.02860", "sec. 3.3"};
  Index d_model = 0;
  double base = 10000;
  Index clamp_len = 0;  // distances above it count as it; 0: none
  double init = 0.02;

  // R_delta, [d_model].
  POSENC_API std::vector<double> sinusoid(Index delta) const;

  // w_kr [heads * head_dim, d_model], u and v_bias [heads, head_dim]; all N(0, 0.02).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;

  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const TransformerXl&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("d_model", s.d_model,
      Field{.doc = "width of the sinusoid", .min = 2, .max = 1e6, .required = true});
    v("base", s.base, Field{.doc = "of the sinusoid", .min = 1e-300});
    v("clamp_len", s.clamp_len, Field{.doc = "largest distance, 0 = none", .min = 0});
    v("init", s.init, Field{.doc = "initial deviation of the parameters", .min = 0});
  }

 private:
  DistanceRange range(const ScoreShape& s) const;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
