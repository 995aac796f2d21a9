// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/rope.h"

#include <utility>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Rope::spectrum() const {
  if (head_dim <= 0 || head_dim % 2 != 0)
    refuse_field("rope", "head_dim", "must be positive and even", head_dim);
  if (width() <= 0 || width() % 2 != 0)
    refuse("rope", "the rotated channels must be positive and even", width());
  return geometric_spectrum(base, width());
}

RotarySpec Rope::place(const Spectrum& s) const {
  RotarySpec spec;
  spec.head_dim = head_dim;
  RotaryBlock b;
  b.offset = offset;
  b.pairing = pairing;
  b.direction = block_direction(direction);
  b.output_order = output_order;
  b.spectrum = s;
  spec.blocks.push_back(std::move(b));
  return spec;
}

}  // namespace posenc::v0
