// SPDX-License-Identifier: Apache-2.0
// Mixed axes: every pair rotates by a weighted sum of all position streams, with fixed or learned
// frequencies, shared or for each head. Heo et al., arXiv:2403.13298, eq. 5 (RoPE-Mixed):
//   phi_i = p_x theta^x_i + p_y theta^y_i
// Also for frequencies without a formula: frequencies [heads|1, axes, pairs], rad/position.
// Implementation: src/rotary/mixed_axes.cpp.
#pragma once

#include "posenc/rotary/spec.h"

namespace posenc::inline v0 {

struct MixedAxes {
  static constexpr Card card{"mixed_axes", "rotary of mixed axes (RoPE-Mixed)", "arXiv:2403.13298",
                             "5"};
  Index head_dim = 0, offset = 0;
  Index heads = 1, axes = 1;
  std::vector<double> frequencies;
  Pairing pairing = Pairing::unset;
  Index direction = 1;

  POSENC_API Spectrum spectrum() const;
  POSENC_API RotarySpec place(const Spectrum& scaled) const;
  bool operator==(const MixedAxes&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("offset", s.offset, Field{.doc = "first rotated channel", .min = 0, .max = 65536});
    v("heads", s.heads,
      Field{.doc = "1 = shared, or heads that have their own frequencies", .min = 1, .max = 65536});
    v("axes", s.axes, Field{.doc = "position streams", .min = 1, .max = 256});
    v("frequencies", s.frequencies,
      Field{.doc = "[heads, axes, pairs]", .unit = "rad/position", .required = true});
    v("pairing", s.pairing, Field{.doc = "which channels rotate together", .required = true});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
  }
};

}  // namespace posenc::v0
