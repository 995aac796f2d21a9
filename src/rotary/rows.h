// SPDX-License-Identifier: Apache-2.0
// Rows of a whole RotarySpec: what RotaryPlan::rows and RotaryTable write.
#pragma once
#include <span>
#include <string_view>

#include "posenc/core/isa.h"
#include "posenc/rotary/plan.h"

namespace posenc::inline v0::detail {

// Writes [batch * tokens, columns] of f64, f32, f16 or bf16 (any strides), gain in, decay not, in
// the precision of the spec: a block after the other, the cosines [heads, pairs] and sines of each
// as the layout has them. `blocks`: exact turns (wide_hi, wide_lo, per_unit) of the blocks of
// the spec. Positions have axes of the spec. Allocates nothing but what the executor does. Throws
// [who] on shapes, dtype and positions.
void spec_rows(const RotarySpec&, std::span<const RotaryTables> blocks, Isa, const Positions&,
               const TensorView& out, TableLayout, const Executor&, std::string_view who);

}  // namespace posenc::v0::detail
