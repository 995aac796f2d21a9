// SPDX-License-Identifier: Apache-2.0
// Functions of the distance in the fast attention engine.
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// value = slope[n] x + level[n] between knot n - 1 and knot n. more[n]: slope[n + 1] - slope[n].
struct FastCurve {
  const float *slope, *level, *knot, *more;
};
// x = inverse u, of pieces first to last.
struct FastCurveRow {
  const float* u;
  float inverse;
  Index first, last;
  float* to;
};

struct FastCurveKernels {
  // to[j] = value of u[j], j of `keys` in whole vectors. False: one is larger than `most`.
  bool (*rows)(const FastCurve&, const FastCurveRow*, Index rows, Index keys, float most) noexcept;
  // Of n keys: to[0] = sum of s, to[1] = sum of s u, to[2] = sum of s v.
  void (*sums)(const float* s, const float* u, const float* v, Index n, float* to) noexcept;
};
const FastCurveKernels& fast_curve_kernels(Isa);

}  // namespace posenc::v0::detail
