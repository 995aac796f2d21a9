// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine where a number of each pair multiplies q.k (KERPLE's weight):
//
//   x_rj = start_rj + w_rj q_r.k_j
//
// The product is complete before the numbers are read, so they cost no more than start values. fast_strips.h and
// fast_tiles.h have the rest. Start values are given.
#pragma once
#include "kernels/attention/fast_strips.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

// Products up to the one and numbers up to the other are multiplied as they are; larger products count as the first.
inline constexpr float kLargestContent = 0x1p90f, kLargestWeight = 0x1p30f;

struct FastWeightKernels {
  // FastKernels::strip and rescale, by number of rows. weight: [rows], of each key of the block.
  bool (*strip[2])(const FastBlock&, const FastStrip&, const float* const* weight) noexcept;
  bool (*rescale[2])(const FastBlock&, const FastStrip&, const float* const* weight) noexcept;
  // FastTileKernels::slopes. content: the products, like p and s; rows lie `stride` apart.
  void (*slopes[2])(const FastTileKeys&, const FastTileRows&, const float* const* weight,
                    float* content, Index stride) noexcept;
  // x[j] *= by[j]; whole vectors.
  void (*multiply)(float* x, const float* by, Index count) noexcept;
};
const FastWeightKernels& fast_weight_kernels(Isa);

}  // namespace posenc::v0::detail
