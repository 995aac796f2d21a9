// SPDX-License-Identifier: Apache-2.0
// Frequencies that hold for some lengths only: LongRoPE has a list for short sequences and one for
// long ones, dynamic NTK new frequencies for each length. RotarySpec and Spectrum carry these
// lengths, valid_from to valid_to. A sequence of length L has the positions 0 .. L-1, so the length
// that a call tells is its largest position (on any axis) + 1, fractions rounded up. A call that
// tells another length than the plan holds for is refused: its keys would not fit those that the
// right frequencies rotate.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// allow: the caller knows the length by other means. A part of a longer prefill, a step of one
// sequence of a batch whose longest sequence decides.
enum class OutsideRange : std::uint8_t { refuse, allow };
template <>
struct EnumNames<OutsideRange> {
  static constexpr std::array<std::string_view, 2> value{"refuse", "allow"};
};

struct PlanOptions {
  OutsideRange outside = OutsideRange::refuse;
};

}  // namespace posenc::v0
