// SPDX-License-Identifier: Apache-2.0
// TENER's relative positions. Yan et al., arXiv:1911.04474, equations 16 to 19:
//   S_ij = (q_i + u_h) . k_j + (q_i + v_h) . R_(i - j)           the paper
//   S_ij = (q_i + u_h) . k_j + (q_i + v_h) . R_(j - i) + k_j . R_(i - j)   the released code
//   R_t = [sin(t w_m) | cos(t w_m)] of head_dim channels, not projected, shared by the heads
// Not divided by sqrt(head_dim): the scheme sets scale 1, unless `scaled`. The paper
// uses the head's channels of the hidden state as k_j, the code projects it: what the call passes
// as k. Implementations disagree on the sign of the sine, on w (paper base^(-2m / head_dim), code
// base^(-m / (head_dim / 2 - 1))) and on the term k_j . R, which the paper lacks.
// What computes it is in src/relative/tener.cpp.
#pragma once
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class TenerSign : std::uint8_t { query_minus_key, key_minus_query };
template <>
struct EnumNames<TenerSign> {
  static constexpr std::array<std::string_view, 2> value{"query_minus_key", "key_minus_query"};
};
enum class TenerSpacing : std::uint8_t { paper, t2t };
template <>
struct EnumNames<TenerSpacing> {
  static constexpr std::array<std::string_view, 2> value{"paper", "t2t"};
};

struct Tener {
  static constexpr Card card{"tener", "TENER relative positions", "arXiv:1911.04474", "eq. 16-19"};
  TenerSign sign = TenerSign::key_minus_query;
  TenerSpacing spacing = TenerSpacing::t2t;
  bool key_term = true, scaled = false;
  double base = 10000;

  // u and v_bias [heads, head_dim], Glorot's normal law.
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  POSENC_API static std::vector<Preset<Tener>> presets();

  bool operator==(const Tener&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("sign", s.sign, Field{.doc = "the distance in the terms of q and v_bias"});
    v("spacing", s.spacing, Field{.doc = "of the frequencies"});
    v("key_term", s.key_term,
      Field{.doc = "adds k_j . R_(i - j), as in the code, not in the paper"});
    v("scaled", s.scaled, Field{.doc = "the scale of the content multiplies all terms"});
    v("base", s.base, Field{.doc = "of the sinusoid", .min = 1e-300});
  }

 private:
  std::vector<double> table(const ScoreShape& s) const;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
