// SPDX-License-Identifier: Apache-2.0
// Dynamic LongRoPE of its authors: the divisors grow linearly with the length n beyond L.
//   x = (n / L - 1) / (S - 1),   factor_i(n) = 1 + (long_factor_i - 1) x,   theta' = theta /
//   factor_i
// with S = `factor`, the stretch that long_factor was searched for; n above S L extrapolates. Up to
// L nothing changes (their formula would make divisors below 1). The gain is that of S, or of n / L
// (gain_of=current, as their first code for Llama has it). microsoft/LongRoPE, rope/longrope.py.
// Implementation: src/scaling/dynamic_longrope.cpp.
#pragma once
#include "posenc/scaling/longrope.h"

namespace posenc::inline v0 {

enum class LongRopeGainOf : std::uint8_t { factor, current };
template <>
struct EnumNames<LongRopeGainOf> {
  static constexpr std::array<std::string_view, 2> value{"factor", "current"};
};

struct DynamicLongRope {
  static constexpr Card card{"dynamic_longrope", "dynamic LongRoPE", "arXiv:2402.13753",
                             "microsoft/LongRoPE, rope/longrope.py"};
  std::vector<double> long_factor;
  double factor = 0;
  Index original_context = 0;
  LongRopeMagnitude magnitude = LongRopeMagnitude::su;
  LongRopeGainOf gain_of = LongRopeGainOf::factor;
  LengthRule length_rule = LengthRule::unset;
  Index declared_length = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context context) const;
  bool operator==(const DynamicLongRope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("long_factor", s.long_factor,
      Field{.doc = "divisors at S L, one for each pair", .min = 1e-300, .required = true});
    v("factor", s.factor,
      Field{.doc = "S, the factor for which long_factor was searched", .min = 1, .required = true});
    v("original_context", s.original_context,
      Field{.doc = "L, trained length", .unit = "tokens", .min = 1, .required = true});
    v("magnitude", s.magnitude, Field{.doc = "formula of the gain"});
    v("gain_of", s.gain_of, Field{.doc = "the gain is that of S or of n / L"});
    v("length_rule", s.length_rule, Field{.doc = "which length is used", .required = true});
    v("declared_length", s.declared_length,
      Field{.doc = "n of length_rule=declared", .unit = "tokens", .min = 0});
  }
};

}  // namespace posenc::v0
