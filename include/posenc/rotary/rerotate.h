// SPDX-License-Identifier: Apache-2.0
// Moving cached keys: to other positions, or to another scaling.
//   exact        every turned pair keeps its pair and decay; k' = R'(p') R(p)^-1 k * gain'/gain
//   approximate  `from` holds only from some length on (dynamic NTK at one length, LongRoPE's long
//                factors): keys cached while the sequence was shorter were rotated with
//                different frequencies. Who knows that all keys were rotated by `from` (one prefill
//                at that length) says so by setting its valid_from to 0.
//   impossible   another pairing, block, width or decay centre: the reason says which
// A rule that holds up to some length (LongRoPE's short factors) has turned all that was cached up
// to there: exact.
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
// turned pair's length; f64 5.5e-16 (xPos apart); f16, bf16 half a unit in the last place + 1.8e-7.
// Keys made in a compatibility precision are turned back by that precision's own cosines. Throws
// [rerotate] with the reason unless the verdict is exact; positions at or beyond valid_to of their
// spec.
POSENC_API void rerotate(const Heads& keys, const RotarySpec& from, const Positions& old_positions,
                         const RotarySpec& to, const Positions& new_positions,
                         const Executor& = default_executor());

}  // namespace posenc::v0
