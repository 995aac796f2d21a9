// SPDX-License-Identifier: Apache-2.0
// Polar position embedding (PoPE), arXiv:2509.10534: the content is a length, never an angle.
//   mu = ln(1 + e^x),  phi_i = p theta_i (+ bias_hi for keys),  theta_i = base^(-i/d), i = 0 .. d-1
//   y = [mu_i cos phi_i | mu_i sin phi_i]
// d frequencies, one a channel, and the width doubles. The bias is learned, one a head and channel,
// and is used clamped to [-2 pi, 0]. It is no rotation of x, so it has a kernel of its own.
#pragma once
#include "posenc/phase.h"

namespace posenc::inline v0 {

struct Pope {
  static constexpr Card card{"pope", "polar position embedding", "arXiv:2509.10534", "3"};
  Index head_dim = 0;
  double base = 10000;

  POSENC_API Spectrum spectrum() const;
  bool operator==(const Pope&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head before they double",
            .min = 1,
            .max = 32768,
            .required = true});
    v("base", s.base, Field{.doc = "theta", .min = 1e-300});
  }
};

}  // namespace posenc::v0
