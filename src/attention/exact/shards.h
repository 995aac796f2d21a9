// SPDX-License-Identifier: Apache-2.0
// How the rows of a call are cut for the backward pass, by the shape alone: whichever thread
// computes a shard, the sums are the same.
#pragma once
#include "attention/exact/gradient_sums.h"

namespace posenc::inline v0::detail {

// A shard is a range of rows of one batch entry and key head, or of all heads or entries where heads
// are mixed or the gradient of a dense bias is summed over them. Few of them are cut further, into
// `cuts` ranges of rows, which then have sums of k and v of their own. With the gradient of a dense
// bias a cut is a range of queries, of all batch entries and heads of the shard: each entry of the
// bias has one owner. Consecutive shards make slices, which have sums of their own of what all share
// (tables, factors, networks).
//
// Memory in doubles, with K those of k and v and S those of all that is shared:
//   cuts K: K, and at most as much again as kCutDoubles or 3 K, whichever is more
//   slices S: at most kSliceDoubles or kWantedShards S, whichever is more
struct Shards {
  static constexpr Index kWantedShards = 16, kMostSlices = 256;
  static constexpr Index kRowsOfCut = 256;  // at least: beside them a sum of k and v costs little
  static constexpr Index kCutDoubles = Index{1} << 23, kSliceDoubles = Index{1} << 21;

  // shared: S.
  Shards(const CallView&, const AttentionGradients&, Index shared);

  Index batches, groups, cuts = 1, slices = 0;
  Index ranges = 0;  // of rows that a shard has

  Index count() const noexcept { return batches * groups * cuts; }
  // Slice n has shards [first_of(n), first_of(n + 1)).
  Index first_of(Index n) const noexcept { return count() * n / slices; }
  // Range n of a shard, by batch entry and then, where cuts are of queries, by head.
  Run rows(Index shard, Index n) const noexcept {
    const Index whole = shard / cuts, cut = shard % cuts;
    const Index b = whole / groups * repeats_ + n / heads_;
    const Index at = ((b * groups + whole % groups) * heads_ + n % heads_) * rows_of_range_;
    return {at + rows_of_range_ * cut / cuts, at + rows_of_range_ * (cut + 1) / cuts};
  }

 private:
  Index repeats_ = 0;  // batch entries of a shard
  Index heads_ = 1;    // of a shard, that are cut each by itself
  Index rows_of_range_ = 0;
};

}  // namespace posenc::v0::detail
