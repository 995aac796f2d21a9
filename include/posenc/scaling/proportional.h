// SPDX-License-Identifier: Apache-2.0
// Proportional rotary (p-RoPE; Gemma-4's global layers, transformers "proportional"): the table
// covers the whole head, with exponents over the whole head, but only the first
// floor(fraction * d / 2) pairs rotate:
//   theta'_i = theta_i / s  for i < floor(fraction d / 2),  0 for the others
// It is NOT a partial rotary of the prefix (rope's rotary_dim): other frequencies, other pairs.
// Implementation: src/scaling/proportional.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct Proportional {
  static constexpr Card card{"proportional", "proportional rotary (p-RoPE)", "arXiv:2410.06205",
                             "section 5"};
  double fraction = 0;
  double factor = 1;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const Proportional&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("fraction", s.fraction,
      Field{.doc = "share of the pairs that rotate", .min = 0, .max = 1, .required = true});
    v("factor", s.factor, Field{.doc = "divides the frequencies", .min = 1e-300});
  }
};

}  // namespace posenc::v0
