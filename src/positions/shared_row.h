// SPDX-License-Identifier: Apache-2.0
// One row of positions serves every sequence of a batch.
#pragma once
#include "posenc/positions/view.h"

namespace posenc::inline v0::detail {

// The stride of an axis of one element means nothing (NumPy and PyTorch leave anything there): 0
// lets one row be read for all.
inline Positions shared_row(Positions p) noexcept {
  if (p.batch == 1) p.batch_stride = 0;
  return p;
}

}  // namespace posenc::v0::detail
