// SPDX-License-Identifier: Apache-2.0
// The lengths for which frequencies hold (posenc/rotary/plan_options.h).
#pragma once
#include <string_view>

#include "posenc/positions/view.h"

namespace posenc::inline v0::detail {

struct LengthRange {
  Index from = 0, to = kUnbounded;
  bool unbounded() const noexcept { return from <= 1 && to == kUnbounded; }
  // Length 0 is that of a call whose positions are all negative: it tells nothing.
  bool holds(Index length) const noexcept { return (from <= 1 || length >= from) && length <= to; }
};

// Throws [who]: a length outside the range.
void check_length(std::string_view who, Index length, const LengthRange&);
// The same of the positions of a call; nothing is read where there is nothing to check.
inline void check_length(std::string_view who, const Positions& p, const LengthRange& range) {
  if (!range.unbounded() && p.count > 0 && p.batch > 0) check_length(who, length_of(p), range);
}

}  // namespace posenc::v0::detail
