// SPDX-License-Identifier: Apache-2.0
// Dynamic linear scaling: theta' = theta M / n for a length n beyond the trained length M.
// jquesnelle/yarn, LlamaDynamicScaledRotaryEmbedding (which multiplies positions by M / n).
// Implementation: src/scaling/dynamic_linear.cpp.
#pragma once
#include "posenc/scaling/length_rule.h"
#include "posenc/scaling/linear.h"

namespace posenc::inline v0 {

struct DynamicLinear {
  static constexpr Card card{"dynamic_linear", "dynamic position interpolation",
                             "jquesnelle/yarn @ 995db5b", "LlamaDynamicScaledRotaryEmbedding"};
  Index trained_length = 0;
  LengthRule length_rule = LengthRule::unset;
  Index declared_length = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context context) const;
  bool operator==(const DynamicLinear&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("trained_length", s.trained_length,
      Field{.doc = "M, up to which nothing changes", .unit = "tokens", .min = 1, .required = true});
    v("length_rule", s.length_rule, Field{.doc = "which length is used", .required = true});
    v("declared_length", s.declared_length,
      Field{.doc = "n of length_rule=declared", .unit = "tokens", .min = 0});
  }
};

}  // namespace posenc::v0
