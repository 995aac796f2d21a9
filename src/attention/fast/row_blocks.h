// SPDX-License-Identifier: Apache-2.0
// The rows of a call in blocks that read the same keys, and the keys that a group of them sees.
#pragma once
#include "attention/fast/starts.h"
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {

// Queries [begin, end) of heads [head, head_end), which read one slab of keys: row `row` of them, of the group of
// the heads.
struct FastRowBlock {
  Index b, head, head_end, begin, end, row;
};
// How a call is cut into blocks.
struct BlockShape {
  Index strip_rows;
  bool one_head;  // heads that share keys read other numbers of them
  Index rows;     // of one head, at most: rows_of_block
};
// More rows pack keys less often; fewer keep q, sums of values and weights in the second cache, and leave blocks for
// threads. row_floats: what is kept of each row.
Index rows_of_block(const ReadyCall&, Index row_floats) noexcept;
// Neighbouring queries that read one row of keys, at most.
Index longest_run(const ReadyCall&) noexcept;
// Whether at most kFewRows rows read the same keys, which are then read as they lie (decode.h).
inline constexpr Index kFewRows = 8;
bool has_few_rows(const ReadyCall&) noexcept;
std::span<const FastRowBlock> fast_row_blocks(const ReadyCall&, const BlockShape&, CallArena&);
// Rows of the largest block, each head in whole strips.
Index most_rows_of_block(const ReadyCall&, const BlockShape&) noexcept;

// Neighbouring rows of one head, computed together.
struct RowGroup {
  Index first = 0;  // row of the block's arrays
  Index slot = 0;   // of q, out and sums: `first`, or 0 where groups follow each other in one place
  Index count = 0;  // rows in use
  Index rows = 0;   // of the strip; those after `count` are computed for nothing
  std::size_t kind = 0;  // FastKernels::strip[kind]
  const FastRow* row = nullptr;
  Run seen{0, 0};                 // some row sees keys of these, and none others,
  Run hole{0, 0};                 // except these, which none sees;
  Run all[2] = {{0, 0}, {0, 0}};  // every row sees these, as far as bounds say
  Run weighs{0, 0};               // keys of `seen` outside of these weigh nothing
  bool near = true;               // the largest visible start value of each row is near 0
  bool low = false;               // to be done again
  bool begun = false;             // its q is taken, and its sums hold a block of keys
  bool done = false;              // all of its keys are added
};
// Fills in the bounds of a group, of which `row` and `count` are set.
void find_bounds(RowGroup&) noexcept;

inline bool sees(const RowGroup& g, Run keys) noexcept {
  const Run some{std::max(g.seen.begin, keys.begin), std::min(g.seen.end, keys.end)};
  return some.begin < some.end && !(some.begin >= g.hole.begin && some.end <= g.hole.end);
}
// Whether some of these keys may have a weight.
inline bool weighs(const RowGroup& g, Run keys) noexcept {
  return std::max(g.weighs.begin, keys.begin) < std::min(g.weighs.end, keys.end);
}
inline bool sees_all(const RowGroup& g, Run keys) noexcept {
  return (keys.begin >= g.all[0].begin && keys.end <= g.all[0].end) ||
         (keys.begin >= g.all[1].begin && keys.end <= g.all[1].end);
}

}  // namespace posenc::v0::detail
