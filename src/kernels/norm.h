// SPDX-License-Identifier: Apache-2.0
// LayerNorm (arXiv:1607.06450) of one token in double, and its gradient. Sums are made in eight
// parts of fixed order, so that every instruction set gives the same bits.
#pragma once
#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

struct NormKernels {
  // out[i] = (s[i] - mean) / sqrt(variance + epsilon) * gamma[i] + beta[i]; out may be s
  void (*forward)(const double* s, Index n, double epsilon, const double* gamma, const double* beta,
                  double* out);
  // The same, rounded once to float.
  void (*forward_f32)(const double* s, Index n, double epsilon, const double* gamma,
                      const double* beta, float* out);
  // d: the gradient of what forward gave, becomes that of s. d_gamma and d_beta are added to, or
  // both null; s is overwritten.
  void (*backward)(double* s, Index n, double epsilon, const double* gamma, double* d,
                   double* d_gamma, double* d_beta);
};
// Throws what isa_dispatch_index throws.
const NormKernels& norm_kernels(Isa);

}  // namespace posenc::v0::detail
