// SPDX-License-Identifier: Apache-2.0
// Qwen-1's use_dynamic_ntk: dynamic NTK in steps. QwenLM/Qwen, modeling_qwen.py, get_ntk_alpha:
//   alpha(n) = max(2^ceil(log2(n / M) + 1) - 1, 1),   base' = base * alpha^(d/(d-2))
// alpha is 1 up to M, 3 up to 2 M, 7 up to 4 M ... While decoding Qwen-1 keeps the alpha of the
// prompt: length_rule=held with the length of the prompt. (Its log-n factor on q is the layer's.)
#pragma once
#include "posenc/scaling/length_rule.h"

namespace posenc {

struct QwenDynamic {
  static constexpr Card card{"qwen_dynamic", "stepwise dynamic NTK",
                             "QwenLM/Qwen, modeling_qwen.py", "get_ntk_alpha"};
  Index trained_length = 0;
  LengthRule length_rule = LengthRule::unset;
  Index declared_length = 0;

  Spectrum rescale(Spectrum s, Context context) const {
    detail::need_positive("qwen_dynamic", "trained_length", trained_length);
    const Index n = detail::ruled_length("qwen_dynamic", length_rule, declared_length, context);
    (void)needs_geometric(s, "qwen_dynamic");
    Index from = 0, to = trained_length;  // the step that holds n
    double alpha = 1;
    while (n > to) {
      from = to + 1;
      to = to > kUnbounded / 2 ? kUnbounded : 2 * to;
      alpha = 2 * alpha + 1;
    }
    s = detail::with_alpha(std::move(s), alpha, "qwen_dynamic");
    detail::hold(s, length_rule, from, to);
    return s;
  }
  bool operator==(const QwenDynamic&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("trained_length", s.trained_length,
      Field{.doc = "M, up to which nothing changes", .unit = "tokens", .min = 1, .required = true});
    v("length_rule", s.length_rule, Field{.doc = "whose length decides", .required = true});
    v("declared_length", s.declared_length,
      Field{.doc = "n of length_rule=declared", .unit = "tokens", .min = 0});
  }
};
static_assert(ScalingPolicy<QwenDynamic>);

}  // namespace posenc
