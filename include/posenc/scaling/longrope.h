// SPDX-License-Identifier: Apache-2.0
// LongRoPE. Ding et al., arXiv:2402.13753, eq. 3; Phi-3, MiniCPM-3 ("longrope", once "su").
//   theta'_i = theta_i / factor_i,  factor_i of long_factor beyond L, of short_factor up to L
//   gain: attention_factor; or short_mscale, long_mscale; or by `magnitude` of f (`factor`):
//     su    1 for f <= 1, else sqrt(1 + ln f / ln L)
//     yarn  1 for f <= 1, else 0.1 ln f + 1
// f is the file's `factor`, or max_position_embeddings / L. The same gain for short and long but
// for the two mscales. The switch rule is required: transformers decides per call (its
// longest row), vLLM, llama.cpp and TensorRT-LLM by the declared maximum. Lists have one number for
// each pair. PhiMoE never uses its long list: pass the short one twice. The authors' start tokens
// (positions below a few keep the plain rotary) are another spectrum for those positions: see
// rotary/by_position.h.
// Implementation: src/scaling/longrope.cpp.
#pragma once
#include "posenc/scaling/length_rule.h"

namespace posenc::inline v0 {

enum class LongRopeSwitch : std::uint8_t {
  unset,
  per_call,
  declared,
  held,
  always_short,
  always_long
};
template <>
struct EnumNames<LongRopeSwitch> {
  static constexpr std::array<std::string_view, 6> value{"unset", "per_call",     "declared",
                                                         "held",  "always_short", "always_long"};
};
enum class LongRopeMagnitude : std::uint8_t { su, yarn };
template <>
struct EnumNames<LongRopeMagnitude> {
  static constexpr std::array<std::string_view, 2> value{"su", "yarn"};
};

struct LongRope {
  static constexpr Card card{"longrope", "LongRoPE", "arXiv:2402.13753", "3"};
  std::vector<double> short_factor, long_factor;
  Index original_context = 0;
  LongRopeSwitch switch_rule = LongRopeSwitch::unset;
  Index declared_length = 0;
  std::optional<double> factor, attention_factor, short_mscale, long_mscale;
  LongRopeMagnitude magnitude = LongRopeMagnitude::su;

  POSENC_API Spectrum rescale(Spectrum s, Context context) const;
  // true: the long list.
  POSENC_API bool choose(Context context) const;
  POSENC_API double gain(bool uses_long) const;
  bool operator==(const LongRope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("short_factor", s.short_factor,
      Field{.doc = "divisors up to L, one for each pair", .min = 1e-300});
    v("long_factor", s.long_factor,
      Field{.doc = "divisors beyond L, one for each pair", .min = 1e-300});
    v("original_context", s.original_context,
      Field{.doc = "L, trained length", .unit = "tokens", .min = 1, .required = true});
    v("switch_rule", s.switch_rule, Field{.doc = "which length is used", .required = true});
    v("declared_length", s.declared_length,
      Field{.doc = "length of switch_rule=declared", .unit = "tokens", .min = 0});
    v("factor", s.factor,
      Field{.doc = "f of the gain, usually maximum length over L", .min = 1e-300});
    v("attention_factor", s.attention_factor, Field{.doc = "the gain itself", .min = 1e-300});
    v("short_mscale", s.short_mscale, Field{.doc = "the gain with short_factor", .min = 1e-300});
    v("long_mscale", s.long_mscale, Field{.doc = "the gain with long_factor", .min = 1e-300});
    v("magnitude", s.magnitude, Field{.doc = "formula of the gain"});
  }
};

}  // namespace posenc::v0
