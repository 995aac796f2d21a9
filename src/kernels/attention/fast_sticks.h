// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for stick-breaking: keys from right to left, each takes its share of what is
// left.
//
//   x_j = start_j + q.k_j,  y_j = log2(1 + 2^x_j)
//   p_j = 2^(x_j + left - sum of y over the keys from j on)
#pragma once
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {

struct FastStick {
  double* left =
      nullptr;  // [rows]: log2 of what keys behind the block leave; then of what the block leaves too
};

struct FastStickKernels {
  // FastStrip: sums, reference and base are not used; shift is added to start values. By number of rows and by what
  // starts, as FastKernels::strip. False: a score is beyond kLargestScore, and nothing has changed but `weights`.
  bool (*strip[2][2])(const FastBlock&, const FastStrip&, const FastStick&) noexcept;
  // The same without weights and values.
  bool (*leave[2][2])(const FastBlock&, const FastStrip&, const FastStick&) noexcept;
};
const FastStickKernels& fast_stick_kernels(Isa);

}  // namespace posenc::v0::detail
