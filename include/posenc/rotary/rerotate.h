// SPDX-License-Identifier: Apache-2.0
// Moving cached keys: to other positions, or to another scaling.
//   exact        every turned pair keeps its pair and decay; k' = R'(p') R(p)^-1 k * gain'/gain
//   approximate  frequencies differ only beyond what was cached (dynamic NTK keys of several
//   lengths) impossible   another pairing, block, width or decay centre: the reason says which
#pragma once
#include <string>

#include "posenc/rotary/plan.h"

namespace posenc {

struct Rerotation {
  enum class Verdict : std::uint8_t {
    exact,
    approximate,
    impossible
  } verdict = Verdict::impossible;
  std::string reason;
};
POSENC_API Rerotation can_rerotate(const RotarySpec& from, const RotarySpec& to);
// In place. Throws [rerotate] with the reason unless the verdict is exact.
POSENC_API void rerotate(const Heads& keys, const RotarySpec& from, const Positions& old_positions,
                         const RotarySpec& to, const Positions& new_positions,
                         const Executor& = default_executor());

}  // namespace posenc
