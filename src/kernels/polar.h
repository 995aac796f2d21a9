// SPDX-License-Identifier: Apache-2.0
// A length ln(1 + e^x) at an angle becomes two numbers; in double, rounded once.
#pragma once
#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Of n channels one behind the other: out_cos = ln(1 + e^x) cos(angle + turn), out_sin likewise.
// The doubles (cosine and sine of angle and turn) may be read kRowPadding beyond n.
struct PolarRow {
  const void* x;
  const double *cos, *sin;
  const double *turn_cos, *turn_sin;  // null: no turn
  Index n;
  void *out_cos, *out_sin;
};

// d_x from the gradients of out_cos and out_sin, and d_turn += the gradient of the turn wherever
// `open` is not 0; d_turn and open null: not wanted. d_turn may be written kRowPadding beyond n.
struct PolarGradient {
  const void *x, *g_cos, *g_sin;
  const double *cos, *sin;
  const double *turn_cos, *turn_sin;  // null: no turn
  Index n;
  void* d_x;
  const double* open;
  double* d_turn;
};

// ln(1 + e^x) and e^x / (1 + e^x) within 4e-16 of themselves, or 2^-1074; of dtypes of 32 and 16
// bits within 7e-11 before they are rounded.
struct PolarKernels {
  void (*row)(const PolarRow&);
  void (*gradient)(const PolarGradient&);
};
// Elements of a floating dtype. Throws what isa_dispatch_index throws.
const PolarKernels& polar_kernels(Isa, DType);

}  // namespace posenc::v0::detail
