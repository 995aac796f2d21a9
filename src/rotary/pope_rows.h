// SPDX-License-Identifier: Apache-2.0
// The rows of a checked call of PopePlan.
#pragma once
#include "phase/rows.h"
#include "posenc/core/executor.h"
#include "posenc/core/heads.h"
#include "posenc/positions.h"

namespace posenc::inline v0::detail {

// out is written; or, of d_out that came in, d_in and d_bias are. Null: not wanted.
struct PopeCall {
  const PhaseTurns* turns;
  const Positions* positions;
  const ConstHeads* in;
  const Heads* out;
  const ConstHeads* d_out;
  const Heads* d_in;
  const ConstTensorView* bias;
  const TensorView* d_bias;
};
void pope_rows(const PopeCall&, const Executor&);

}  // namespace posenc::v0::detail
