// SPDX-License-Identifier: Apache-2.0
// Weighted sums of rows, in double, rounded once: what every resize of a table and every
// composition at the embedding is made of.
#pragma once
#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// out[c] = sum over k < taps of weight[k] rows[k][c], c < width, in the order of k.
struct WeightedSum {
  const void* const* rows;
  const double* weight;
  Index taps, width;
  void* out;
};

struct WeightedSumKernels {
  void (*f64_f64)(const WeightedSum&);
  void (*f64_f32)(const WeightedSum&);
  void (*f32_f64)(const WeightedSum&);
  void (*f32_f32)(const WeightedSum&);
  void (*f16_f64)(const WeightedSum&);
  void (*bf16_f64)(const WeightedSum&);

  // From rows of a float type into double.
  auto into_f64(DType from) const noexcept {
    return from == DType::f64   ? f64_f64
           : from == DType::f32 ? f32_f64
           : from == DType::f16 ? f16_f64
                                : bf16_f64;
  }
};
// Throws what isa_dispatch_index throws.
const WeightedSumKernels& weighted_sum_kernels(Isa);

}  // namespace posenc::v0::detail
