// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/shards.h"

#include "attention/exact/row.h"

namespace posenc::inline v0::detail {

Shards::Shards(const CallView& c, const AttentionGradients& g, Index shared) {
  const TensorView& bias = g.bias;
  const bool shared_batch = !bias.empty() && (bias.rank == 2 || bias.shape[0] == 1);
  const bool shared_heads = !bias.empty() && (bias.rank == 2 || bias.shape[1] % c.G != 0);
  batches = shared_batch ? std::min<Index>(1, c.B) : c.B;
  groups = c.all_heads || shared_heads ? 1 : c.G;
  if (row_count(c) == 0) batches = 0;
  const Index wholes = batches * groups;
  if (wholes == 0) return;
  repeats_ = c.B / batches;
  rows_of_range_ = row_count(c) / (c.B * groups);
  if (!bias.empty()) heads_ = rows_of_range_ / c.Tq, rows_of_range_ = c.Tq;
  ranges = repeats_ * heads_;
  if (wholes < kWantedShards) {
    const Index k_and_v = std::max<Index>(1, c.R * c.G * c.Tk * (c.D + c.V));
    const Index rows = bias.empty() ? rows_of_range_ : ranges * rows_of_range_;
    cuts = std::min({(kWantedShards + wholes - 1) / wholes, rows / kRowsOfCut, rows_of_range_,
                     std::max<Index>(4, 1 + kCutDoubles / k_and_v)});
    cuts = std::max<Index>(1, cuts);
  }
  const Index affordable = std::max(kWantedShards, kSliceDoubles / std::max<Index>(1, shared));
  slices = std::min({count(), kMostSlices, affordable});
}

}  // namespace posenc::v0::detail
