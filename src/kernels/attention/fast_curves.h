// SPDX-License-Identifier: Apache-2.0
// Functions of the distance in the fast attention engine.
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

struct FastCurveKernels {
  // Of n keys: to[0] = sum of s, to[1] = sum of s u, to[2] = sum of s v.
  void (*sums)(const float* s, const float* u, const float* v, Index n, float* to) noexcept;
};
const FastCurveKernels& fast_curve_kernels(Isa);

}  // namespace posenc::v0::detail
