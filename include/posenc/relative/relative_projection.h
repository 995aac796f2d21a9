// SPDX-License-Identifier: Apache-2.0
// A bias read from learned curves over distance, mixed by the query's hidden state (x-transformers,
// the scheme of Inkling):
//   S_ij += sum_b x_ihb curve[b, i - j] for 0 <= i - j < max_distance, else nothing
//   x_i = hidden_i W_r^T + b_r
// The curves are shared by all heads; beyond them the bias is zero, not constant. The bias is
// outside the scale of the content. Inkling multiplies x_i on layers that see every token by
//   tau_i = 1 + log_scaling_alpha ln(max((p_i + 1) / log_scaling_n_floor, 1)),
// p_i the position of the query, as it does q (which is not this scheme's: its query temperature);
// and its projection has no b_r.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct RelativeProjection {
  static constexpr Card card{"relative_projection", "projection on curves over distance",
                             "x-transformers, Inkling", ""};
  Index basis = 16, max_distance = 128, width = 0;
  double init = 0.02;
  bool projection_bias = true;
  double log_scaling_n_floor = 0, log_scaling_alpha = 0.1;

  // distance_bank [basis, max_distance], w_r [heads * basis, width], with projection_bias b_r
  // [heads * basis].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  // hidden [batch, queries, width].
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const RelativeProjection&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("basis", s.basis, Field{.doc = "curves", .min = 1, .max = 65536});
    v("max_distance", s.max_distance,
      Field{.doc = "distances of a curve", .unit = "tokens", .min = 1, .max = 1e7});
    v("width", s.width,
      Field{.doc = "channels of the hidden state", .min = 1, .max = 1e6, .required = true});
    v("init", s.init, Field{.doc = "deviation of the curves at the start", .min = 0});
    v("projection_bias", s.projection_bias, Field{.doc = "the projection has a bias, b_r"});
    v("log_scaling_n_floor", s.log_scaling_n_floor,
      Field{.doc = "tokens from which the bias grows with the logarithm of the query's position, "
                   "0 = it does not",
            .unit = "tokens",
            .min = 0});
    v("log_scaling_alpha", s.log_scaling_alpha, Field{.doc = "slope of that growth", .min = 0});
  }

 private:
  void check_call(const CallData& call) const;
};

}  // namespace posenc::v0
