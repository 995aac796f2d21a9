// SPDX-License-Identifier: Apache-2.0
// What a plan prepared of a call's terms and stages, by their place in the call. Engines make what is
// missing.
#pragma once
#include <span>

#include "attention/lowered/bands.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {

struct LoweredCall {
  std::span<const Band* const> bands{};                   // of the terms; null, or too short: none
  std::span<const RotaryPlan* const> rotations{};         // of the stages, in double; the same
  std::span<const RotaryPlan* const> narrow_rotations{};  // in float

  // The plan's own rotation in double and in float, by its spec, which regions may have too.
  const RotarySpec* spec = nullptr;
  const RotaryPlan *of_spec = nullptr, *narrow_of_spec = nullptr;

  const Band* band(std::size_t term) const noexcept {
    return term < bands.size() ? bands[term] : nullptr;
  }
  const RotaryPlan* rotation(std::size_t stage) const noexcept {
    return stage < rotations.size() ? rotations[stage] : nullptr;
  }
  const RotaryPlan* narrow_rotation(std::size_t stage) const noexcept {
    return stage < narrow_rotations.size() ? narrow_rotations[stage] : nullptr;
  }
};

}  // namespace posenc::v0::detail
