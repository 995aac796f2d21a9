// SPDX-License-Identifier: Apache-2.0
// The rows of a checked call of PopePlan.
#pragma once
#include "phase/rows.h"
#include "posenc/core/executor.h"
#include "posenc/core/heads.h"
#include "posenc/positions.h"

namespace posenc::inline v0::detail {

// y: written; or the gradient that came in where d_in is given. Null views: not wanted.
struct PopeCall {
  const PhaseTurns* turns;
  const Positions* positions;
  const Heads *in, *y, *d_in;
  const TensorView *bias, *d_bias;
};
void pope_rows(const PopeCall&, const Executor&);

}  // namespace posenc::v0::detail
