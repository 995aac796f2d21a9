// SPDX-License-Identifier: Apache-2.0
// Moving cached keys: to other positions, or to another scaling.
//   exact        every rotated pair stays a pair with its decay; k' = R'(p') R(p)^-1 k * gain'/gain
//   approximate  `from` is valid only from some length on (dynamic NTK at one length, LongRoPE's long
//                factors): keys that were cached while the sequence was shorter have other frequencies.
//                If all keys were rotated by `from` (one prefill at that length), set its valid_from
//                to 0.
//   impossible   another pairing, block, width or decay centre, as the reason says
// If `from` is valid up to some length (LongRoPE's short factors), all keys up to there were rotated by
// it: exact.
#pragma once
#include <string>

#include "posenc/rotary/plan.h"

namespace posenc::inline v0 {

struct Rerotation {
  enum class Verdict : std::uint8_t {
    exact,
    approximate,
    impossible
  } verdict = Verdict::impossible;
  std::string reason;
};
POSENC_API Rerotation can_rerotate(const RotarySpec& from, const RotarySpec& to);
// In place, any dtype and strides: angles p' f' - p f from exact turns. f32: within 1.8e-7 of the
// rotated pair's length; f64 5.5e-16 (without xPos); f16, bf16 half a unit in the last place + 1.8e-7.
// Keys of a compatibility precision are rotated back by the cosines of that precision. Throws
// [rerotate] with the reason unless the verdict is exact; positions at or beyond valid_to of their
// spec.
POSENC_API void rerotate(const Heads& keys, const RotarySpec& from, const Positions& old_positions,
                         const RotarySpec& to, const Positions& new_positions,
                         const Executor& = default_executor());

}  // namespace posenc::v0
