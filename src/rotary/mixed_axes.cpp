// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/mixed_axes.h"

#include <cmath>
#include <utility>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum MixedAxes::spectrum() const {
  if (heads <= 0 || heads > 65536)
    refuse_field("mixed_axes", "heads", "must be from 1 to 65536", heads);
  if (axes <= 0 || axes > 256) refuse_field("mixed_axes", "axes", "must be from 1 to 256", axes);
  if (frequencies.empty() || static_cast<Index>(frequencies.size()) % (heads * axes) != 0)
    refuse_field("mixed_axes", "frequencies",
                 "must be [heads, axes, pairs]: a multiple of heads * axes",
                 static_cast<Index>(frequencies.size()));
  for (const double f : frequencies)
    if (!std::isfinite(f)) refuse_field("mixed_axes", "frequencies", "must be finite", f);
  Spectrum s;
  s.frequency = frequencies;
  s.heads = heads;
  s.axes = axes;
  return s;
}

RotarySpec MixedAxes::place(const Spectrum& scaled) const {
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

}  // namespace posenc::v0
