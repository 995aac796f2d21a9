// SPDX-License-Identifier: Apache-2.0
// Proportional rotary (p-RoPE; Gemma-4's global layers, transformers "proportional"): the table
// covers the whole head, with exponents over the whole head, but only the first
// floor(fraction * d / 2) pairs turn:
//   theta'_i = theta_i / s  for i < floor(fraction d / 2),  0 for the others
// It is NOT a partial rotary of the prefix (rope's rotary_dim): other frequencies, other pairs.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc {

struct Proportional {
  static constexpr Card card{"proportional", "proportional rotary (p-RoPE)", "arXiv:2410.06205",
                             "section 5"};
  double fraction = 0;
  double factor = 1;

  Spectrum rescale(Spectrum s, Context) const {
    detail::need_positive("proportional", "factor", factor);
    if (!(fraction >= 0 && fraction <= 1))
      refuse("proportional", "fraction must be from 0 to 1", fraction);
    const Index turned =
        static_cast<Index>(std::floor(fraction * static_cast<double>(2 * s.pairs()) / 2));
    std::vector<double> divisors(static_cast<std::size_t>(s.pairs()), factor);
    std::fill(divisors.begin() + turned, divisors.end(), 1e30);
    detail::change_frequencies(s, [&](Index i, double f) { return i < turned ? f / factor : 0.0; });
    detail::divide_ggml(s, divisors);
    if (factor != 1 || turned != s.pairs()) s.geometric.reset();
    return s;
  }
  bool operator==(const Proportional&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("fraction", s.fraction,
      Field{.doc = "share of the pairs that turn", .min = 0, .max = 1, .required = true});
    v("factor", s.factor, Field{.doc = "divides the frequencies", .min = 1e-300});
  }
};
static_assert(ScalingPolicy<Proportional>);

}  // namespace posenc
