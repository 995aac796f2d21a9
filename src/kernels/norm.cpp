// SPDX-License-Identifier: Apache-2.0
// Plain loops, which the compiler makes vectors of for every target.
#include "kernels/norm.h"

#include <cmath>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

inline constexpr Index kSums = 8;

HWY_INLINE double total(const double* part) {
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// s becomes (s - mean) / sqrt(variance + epsilon), in two passes; returns the divisor's inverse.
HWY_INLINE double standardise(double* s, Index n, double epsilon) {
  const auto count = static_cast<double>(n);
  double part[kSums] = {};
  Index i = 0;
  for (; i + kSums <= n; i += kSums)
    for (Index j = 0; j < kSums; ++j) part[j] += s[i + j];
  for (; i < n; ++i) part[i % kSums] += s[i];
  const double mean = total(part) / count;
  double square[kSums] = {};
  for (i = 0; i + kSums <= n; i += kSums)
    for (Index j = 0; j < kSums; ++j) {
      const double x = s[i + j] - mean;
      s[i + j] = x;
      square[j] += x * x;
    }
  for (; i < n; ++i) {
    s[i] -= mean;
    square[i % kSums] += s[i] * s[i];
  }
  const double scale = 1 / std::sqrt(total(square) / count + epsilon);
  for (i = 0; i < n; ++i) s[i] *= scale;
  return scale;
}

void forward(double* HWY_RESTRICT s, Index n, double epsilon, const double* HWY_RESTRICT gamma,
             const double* HWY_RESTRICT beta) {
  standardise(s, n, epsilon);
  for (Index i = 0; i < n; ++i) s[i] = s[i] * gamma[i] + beta[i];
}

// With z the standardised s and g = d gamma: ds = (g - mean(g) - z mean(g z)) / deviation.
void backward(double* HWY_RESTRICT s, Index n, double epsilon, const double* HWY_RESTRICT gamma,
              double* HWY_RESTRICT d, double* HWY_RESTRICT d_gamma, double* HWY_RESTRICT d_beta) {
  const double scale = standardise(s, n, epsilon);
  double sum[kSums] = {}, along[kSums] = {};
  const auto add = [&](Index i, Index j) {
    d_gamma[i] += d[i] * s[i];
    d_beta[i] += d[i];
    const double g = d[i] * gamma[i];
    d[i] = g;
    sum[j] += g;
    along[j] += g * s[i];
  };
  Index i = 0;
  for (; i + kSums <= n; i += kSums)
    for (Index j = 0; j < kSums; ++j) add(i + j, j);
  for (; i < n; ++i) add(i, i % kSums);
  const double mean = total(sum) / static_cast<double>(n);
  const double slope = total(along) / static_cast<double>(n);
  for (i = 0; i < n; ++i) d[i] = scale * (d[i] - mean - s[i] * slope);
}

constexpr NormKernels kKernels{forward, backward};
}  // namespace

const NormKernels* table_of_norm() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_norm);
const NormKernels& norm_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_norm), isa);
}
}  // namespace posenc::v0::detail
#endif
