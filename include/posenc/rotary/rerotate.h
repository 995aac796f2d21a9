// SPDX-License-Identifier: Apache-2.0
// Cached keys move to other positions, or to another scaling. Three verdicts:
//   kept     the stored numbers stay as they are
//   moved    each key is rewritten once, within a stated bound: k' = R'(p') R(p)^-1 k * gain'/gain
//   refused  not supported, as the reason says: another pairing, block, width or decay centre; or
//            `from` holds only from some length on (dynamic NTK at one length, LongRoPE's long
//            factors), so keys cached while the sequence was shorter have unknown frequencies. If all
//            keys were rotated by `from` (one prefill at that length), set its valid_from to 0.
// If `from` holds up to some length (LongRoPE's short factors), all keys up to there were rotated by
// it: they can move.
// None of the three means recomputed: below the first layer keys come from hidden states that saw the
// old positions, so moved keys differ from those of a fresh prefill. Only a shift of all tokens equals it.
#pragma once
#include <string>

#include "posenc/rotary/plan.h"

namespace posenc::inline v0 {

enum class MoveVerdict : std::uint8_t { kept, moved, refused };
template <>
struct EnumNames<MoveVerdict> {
  static constexpr std::array<std::string_view, 3> value{"kept", "moved", "refused"};
};

struct Rerotation {
  using Verdict = MoveVerdict;
  Verdict verdict = Verdict::refused;
  std::string reason;
};
// kept: both rotate alike, so only keys whose position changes are rewritten.
POSENC_API Rerotation can_rerotate(const RotarySpec& from, const RotarySpec& to);
// In place, any dtype and strides: angles p' f' - p f from exact turns. f32: within 1.8e-7 of the
// rotated pair's length; f64 5.5e-16 (without xPos); f16, bf16 half a unit in the last place + 1.8e-7.
// Keys of a compatibility precision are rotated back by the cosines of that precision. Throws
// [rerotate] with the reason where the verdict is refused; positions at or beyond valid_to of their
// spec; xPos: keys that leave the range of their dtype. A program that moves keys again and again
// makes a RerotationPlan (rerotation_plan.h), which prepares once what this function prepares in
// each call.
POSENC_API void rerotate(const Heads& keys, const RotarySpec& from, const Positions& old_positions,
                         const RotarySpec& to, const Positions& new_positions,
                         const Executor& = default_executor());

}  // namespace posenc::v0
