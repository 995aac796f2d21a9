// SPDX-License-Identifier: Apache-2.0
// Position interpolation. Chen et al., arXiv:2306.15595, eq. 4:   theta'_i = theta_i / s
// The frequency is divided; positions stay whole. (transformers divides inv_freq, vLLM and
// CTranslate2 the position, ggml multiplies the angle by 1/s: 1 to 2 ulp apart.)
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct Linear {
  static constexpr Card card{"linear", "position interpolation", "arXiv:2306.15595", "4"};
  double factor = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const Linear&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor,
      Field{.doc = "new length over trained length", .min = 1e-300, .required = true});
  }
};

}  // namespace posenc::v0
