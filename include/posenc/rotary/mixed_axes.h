// SPDX-License-Identifier: Apache-2.0
// Mixed axes: every pair turns by a weighted sum of all position streams, with frequencies given or
// learned, shared or per head. Heo et al., arXiv:2403.13298, eq. 5 (RoPE-Mixed):
//   phi_i = p_x theta^x_i + p_y theta^y_i
// Also for any frequencies that no formula gives: frequencies [heads|1, axes, pairs], rad/position.
#pragma once
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/rotary/spec.h"

namespace posenc {

struct MixedAxes {
  static constexpr Card card{"mixed_axes", "rotary of mixed axes (RoPE-Mixed)", "arXiv:2403.13298",
                             "5"};
  Index head_dim = 0, offset = 0;
  Index heads = 1, axes = 1;
  std::vector<double> frequencies;
  Pairing pairing = Pairing::unset;
  Index direction = 1;

  Spectrum spectrum() const {
    if (heads <= 0 || heads > 65536) refuse("mixed_axes", "heads must be from 1 to 65536", heads);
    if (axes <= 0 || axes > 256) refuse("mixed_axes", "axes must be from 1 to 256", axes);
    if (frequencies.empty() || static_cast<Index>(frequencies.size()) % (heads * axes) != 0)
      refuse("mixed_axes", "frequencies must be [heads, axes, pairs]: a multiple of heads * axes",
             static_cast<Index>(frequencies.size()));
    for (const double f : frequencies)
      if (!std::isfinite(f)) refuse("mixed_axes", "frequencies must be finite", f);
    Spectrum s;
    s.frequency = frequencies;
    s.heads = heads;
    s.axes = axes;
    return s;
  }
  RotarySpec place(const Spectrum& scaled) const {
    RotarySpec spec;
    spec.head_dim = head_dim;
    RotaryBlock b;
    b.offset = offset;
    b.pairing = pairing;
    b.direction = block_direction(direction);
    b.spectrum = scaled;
    spec.blocks.push_back(std::move(b));
    return spec;
  }
  bool operator==(const MixedAxes&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("head_dim", s.head_dim,
      Field{.doc = "channels of a head", .min = 1, .max = 65536, .required = true});
    v("offset", s.offset, Field{.doc = "first turned channel", .min = 0, .max = 65536});
    v("heads", s.heads,
      Field{.doc = "heads with frequencies of their own", .min = 1, .max = 65536});
    v("axes", s.axes, Field{.doc = "position streams", .min = 1, .max = 256});
    v("frequencies", s.frequencies,
      Field{.doc = "[heads, axes, pairs]", .unit = "rad/position", .required = true});
    v("pairing", s.pairing, Field{.doc = "which channels turn together", .required = true});
    v("direction", s.direction,
      Field{.doc = "1 counter-clockwise, -1 clockwise", .min = -1, .max = 1});
  }
};
static_assert(RotaryScheme<MixedAxes>);

}  // namespace posenc
