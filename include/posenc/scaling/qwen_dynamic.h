// SPDX-License-Identifier: Apache-2.0
// Qwen-1's use_dynamic_ntk: dynamic NTK in steps. QwenLM/Qwen, modeling_qwen.py, get_ntk_alpha:
//   alpha(n) = max(2^ceil(log2(n / M) + 1) - 1, 1),   base' = base * alpha^(d/(d-2))
// alpha is 1 up to M, 3 up to 2 M, 7 up to 4 M ... While decoding Qwen-1 keeps the alpha of the
// prompt: length_rule=held with the length of the prompt. (Its log-n factor on q is the layer's.)
// Implementation: src/scaling/qwen_dynamic.cpp.
#pragma once
#include "posenc/scaling/length_rule.h"

namespace posenc::inline v0 {

struct QwenDynamic {
  static constexpr Card card{"qwen_dynamic", "stepwise dynamic NTK",
                             "QwenLM/Qwen, modeling_qwen.py", "get_ntk_alpha"};
  Index trained_length = 0;
  LengthRule length_rule = LengthRule::unset;
  Index declared_length = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context context) const;
  bool operator==(const QwenDynamic&) const = default;
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
