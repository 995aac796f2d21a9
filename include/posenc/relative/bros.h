// SPDX-License-Identifier: Apache-2.0
// The query times projected sinusoids of the offsets of two boxes. BROS, Hong et al., arXiv:2108.04539,
// equations 1 to 3, as transformers' code:
//   S_ij += s q_i . W e(u (c_j - c_i)),   s: the scale of q.k
//   e(a) = for each coordinate m: sin(a_m w_0) .. sin(a_m w_F-1), cos(a_m w_0) .. cos(a_m w_F-1)
//   w_f = 10000^(-f / F), u = unit, c: the coordinates of a token's box, four corners (x, y)
// The sine of a difference is a sum of products, so that the term is one product of two vectors a
// token: no array of all pairs is made.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

struct Bros {
  static constexpr Card card{"bros", "sinusoids of box offsets", "arXiv:2108.04539", "eq. 1 to 3"};
  Index coordinates = 8, frequencies = 12;
  double base = 10000, unit = 100;

  Index width() const noexcept { return 2 * coordinates * frequencies; }

  // w_bbox [head_dim, 2 coordinates frequencies], N(0, 0.02). Inputs: q, query_bbox and key_bbox
  // [batch, tokens, coordinates].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const Bros&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("coordinates", s.coordinates, Field{.doc = "coordinates of a box", .min = 1, .max = 1024});
    v("frequencies", s.frequencies,
      Field{.doc = "frequencies of a coordinate", .min = 1, .max = 4096});
    v("base", s.base, Field{.doc = "of the frequencies", .min = 1e-300});
    v("unit", s.unit, Field{.doc = "multiplies the boxes"});
  }

 private:
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
