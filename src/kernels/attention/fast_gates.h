// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine where a row counts the gates between a key and itself (CoPE): keys from right to
// left, and the count c_j of a key selects, between two neighbours, one of the row's levels.
//
//   g_j = sigmoid(z_j),  c_j = sum of g over the keys from j on
//   x_j = start_j + q.k_j + level(min(c_j, last))       then as fast_strips.h
#pragma once
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {

// Gates of the rows of a strip. A key whose start value is -inf has none.
struct FastGates {
  // z_j times log2(e) = ratio q.k of the strip, or the product of these, if there are any.
  float ratio = 1;
  const float* q = nullptr;  // [rows][channels]
  const float* k = nullptr;  // as FastBlock::k
  Index channels = 0;
  float* products = nullptr;  // memory: [rows][block_keys]
  // [rows][level_stride]: levels 0 .. last, and the last one again, 2 lanes + 1 times.
  const float* levels = nullptr;
  Index level_stride = 0, last = 0;
  const Index* own =
      nullptr;  // [rows]: a key of the block whose gate does not count; null: all count
  const double* count = nullptr;  // [rows]: of the keys behind the block
  double* next = nullptr;         // [rows]: with those of the block
};

struct FastGateKernels {
  // FastKernels::strip and rescale, by number of rows; with or without start values. Without, keys are whole vectors.
  bool (*strip[2])(const FastBlock&, const FastStrip&, const FastGates&) noexcept;
  bool (*rescale[2])(const FastBlock&, const FastStrip&, const FastGates&) noexcept;
};
const FastGateKernels& fast_gate_kernels(Isa);

}  // namespace posenc::v0::detail
