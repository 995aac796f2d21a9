// SPDX-License-Identifier: Apache-2.0
// Rows of a dense bias as start values in the fast attention engine.
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Of `count` keys of a row. hidden[n]: 0, -inf where a key is hidden; line[n]: added to the start values. Both may be null.
// Nothing behind `count` is read.
struct FastBiasRow {
  const float *bias, *hidden, *line;
  Index count;
};

struct FastBiasKernels {
  // The largest of the keys that are not hidden, -inf if none is. False: one of them is NaN or above `most`.
  bool (*largest)(const FastBiasRow&, float most, float& largest) noexcept;
  // to[n] = max((bias[n] - by) log2(e), least) + line[n], -inf where a key is hidden or its bias is -inf.
  void (*write)(const FastBiasRow&, float by, float least, float* to) noexcept;
};
const FastBiasKernels& fast_bias_kernels(Isa);

}  // namespace posenc::v0::detail
