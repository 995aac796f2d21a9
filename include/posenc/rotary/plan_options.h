// SPDX-License-Identifier: Apache-2.0
// Frequencies that are valid for some lengths only: LongRoPE has a list for short sequences and one for
// long ones, dynamic NTK new frequencies for each length. RotarySpec and Spectrum store these
// lengths as valid_from to valid_to. A sequence of length L has the positions 0 .. L-1, so the length of
// a call is its largest position (on any axis) + 1, fractions rounded up. A call with a length outside of
// the plan's range is rejected, because keys of different frequencies do not fit together.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// allow: the caller knows the length, for example for a part of a longer prefill, or a step of one
// sequence of a batch whose longest sequence determines the frequencies.
enum class OutsideRange : std::uint8_t { refuse, allow };
template <>
struct EnumNames<OutsideRange> {
  static constexpr std::array<std::string_view, 2> value{"refuse", "allow"};
};

struct PlanOptions {
  OutsideRange outside = OutsideRange::refuse;
};

}  // namespace posenc::v0
