// SPDX-License-Identifier: Apache-2.0
// The positions of a call as its rotation reads them.
#pragma once
#include <string>

#include "attention/call/check_parts.h"
#include "kernels/attention/args.h"
#include "posenc/core/error.h"
#include "posenc/rotary/spec.h"
#include "positions/length.h"

namespace posenc::inline v0::detail {

// Throws [attention]: fewer axes than the rotation has. Throws [rotary]: a length of the whole call for which the
// frequencies do not hold.
inline Positions rotation_positions(const RotarySpec& spec, Positions p) {
  const Index axes = spec.axes();
  if (axes > p.axes)
    refuse_number(kAttention, "positions",
                  "a rotation must have axes of the positions, at most " + std::to_string(p.axes),
                  axes);
  p.axes = static_cast<std::int32_t>(axes);
  check_length("rotary", p, {spec.valid_from(), spec.valid_to()});
  return p;
}

// Those of some tokens of one row.
inline Positions slice_positions(Positions p, Index row, Run tokens) noexcept {
  const Index at = (p.batch == 1 ? 0 : row) * p.batch_stride + tokens.begin * p.token_stride;
  p.data = static_cast<const std::byte*>(p.data) + at * size_of(p.type);
  p.batch = 1, p.count = tokens.end - tokens.begin;
  return p;
}

}  // namespace posenc::v0::detail
