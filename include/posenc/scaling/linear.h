// SPDX-License-Identifier: Apache-2.0
// Position interpolation. Chen et al., arXiv:2306.15595, eq. 4:   theta'_i = theta_i / s
// The frequency is divided; positions stay whole. (transformers divides inv_freq, vLLM and
// CTranslate2 the position, ggml multiplies the angle by 1/s: 1 to 2 ulp apart.)
#pragma once
#include "posenc/core/error.h"
#include "posenc/scaling/policy.h"

namespace posenc {

struct Linear {
  static constexpr Card card{"linear", "position interpolation", "arXiv:2306.15595", "4"};
  double factor = 0;

  Spectrum rescale(Spectrum s, Context) const {
    if (!(factor > 0) || factor > 1e300)
      refuse("linear", "factor must be finite and positive", factor);
    for (double& f : s.frequency) f /= factor;
    s.geometric.reset();
    if (s.ggml) s.ggml->freq_scale /= factor;
    return s;
  }
  bool operator==(const Linear&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor,
      Field{.doc = "new length over trained length", .min = 1e-300, .required = true});
  }
};
static_assert(ScalingPolicy<Linear>);

}  // namespace posenc
