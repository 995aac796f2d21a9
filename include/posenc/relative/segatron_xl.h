// SPDX-License-Identifier: Apache-2.0
// Segatron-XL: Transformer-XL over three positions of a token, in its sentence, of the sentence in
// its paragraph, of the paragraph. Bai et al., arXiv:2004.14996, section 3:
//   S_ij = s [ (q_i + u_h) . k_j + (q_i + v_h) . (W R_ij)_h ]
//   R_ij = [R(delta_0) | R(delta_1) | R(delta_2)],   delta_a = query - key on axis a
//   R(delta) = [sin(delta w_m) | cos(delta w_m)], w_m = base^(-2m / width_a)
// s is the scale of the content. W is split by the channels of the axes: a table for each axis, and
// q.(W R) is the sum of three rows. This is the formula. The released code makes one row a key, by
// the distance to the LAST token, and shifts: it agrees only where the positions of all axes rise
// alike; with sentences 0, 0, 1, 1 token 2 is 0 sentences from token 1 there, 1 here.
// What computes it is in src/relative/segatron_xl.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct SegatronXl {
  static constexpr Card card{"segatron_xl", "Segatron-XL relative positions", "arXiv:2004.14996",
                             "sec. 3"};
  Index d_model = 0;
  std::vector<Index> widths{};
  double base = 10000;
  double init = 0.02;

  // The channels of each axis: `widths`, or a third each, made even, the last one the rest.
  POSENC_API std::vector<Index> axis_widths() const;

  // w_kr [heads * head_dim, d_model], u and v_bias [heads, head_dim]; all N(0, init).
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const SegatronXl&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("d_model", s.d_model,
      Field{.doc = "width of all sinusoids", .min = 6, .max = 1e6, .required = true});
    v("widths", s.widths,
      Field{.doc = "channels of each axis of positions; none: three axes, a third each",
            .min = 2,
            .max = 1e6});
    v("base", s.base, Field{.doc = "of the sinusoids", .min = 1e-300});
    v("init", s.init, Field{.doc = "initial deviation of the parameters", .min = 0});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
