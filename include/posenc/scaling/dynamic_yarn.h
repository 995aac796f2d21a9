// SPDX-License-Identifier: Apache-2.0
// Dynamic YaRN and dynamic NTK-by-parts: s = n / L for a length n beyond max_context; up to it
// nothing (finetuned=false) or s = max_context / L (finetuned=true).
// jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding and LlamaDynamicPartNTKScaledRotary...
// Implementation: src/scaling/dynamic_yarn.cpp.
#pragma once
#include "posenc/scaling/length_rule.h"
#include "posenc/scaling/ntk_by_parts.h"
#include "posenc/scaling/yarn.h"

namespace posenc::inline v0 {

// `Base` is the scaling whose factor grows; its own fields but the factor are those of the dynamic
// one.
template <class Base>
struct DynamicOf {
  static constexpr Card card =
      std::is_same_v<Base, Yarn>
          ? Card{"dynamic_yarn", "dynamic YaRN", "arXiv:2309.00071", "section 3.3"}
          : Card{"dynamic_ntk_by_parts", "dynamic NTK-by-parts", "jquesnelle/yarn @ 995db5b",
                 "LlamaDynamicPartNTKScaledRotaryEmbedding"};
  Base scaling;  // its factor stays 0
  Index max_context = 0;
  bool finetuned = false;
  LengthRule length_rule = LengthRule::unset;
  Index declared_length = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context context) const;
  bool operator==(const DynamicOf&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    Base::describe(s.scaling, [&](std::string_view name, auto& field, const Field& about) {
      if (name != "factor") v(name, field, about);
    });
    v("max_context", s.max_context,
      Field{.doc = "length beyond which s = n / L, 0 = L",
            .unit = "tokens",
            .min = 0,
            .from = "original_context"});
    v("finetuned", s.finetuned, Field{.doc = "up to max_context: s = max_context / L"});
    v("length_rule", s.length_rule, Field{.doc = "which length is used", .required = true});
    v("declared_length", s.declared_length,
      Field{.doc = "n of length_rule=declared", .unit = "tokens", .min = 0});
  }
};
using DynamicYarn = DynamicOf<Yarn>;
using DynamicNtkByParts = DynamicOf<NtkByParts>;

}  // namespace posenc::v0
