// SPDX-License-Identifier: Apache-2.0
// Which row of a table a pair reads, for terms whose rows meet vectors: of queries and keys (row_terms.h), or as values
// (value_rows.h).
#pragma once
#include <span>
#include <string_view>

#include "attention/fast/starts.h"
#include "kernels/attention/fast_reads.h"

namespace posenc::inline v0::detail {

// Numbers of a table up to this: products with a vector that is bounded stay finite, and so do sums of several.
inline constexpr float kLargestRow = 0x1p50f;

struct RowSteps {
  // By one distance, where positions of queries and keys count up: key j of query i has the entry
  // high - (position of i) + (position of key 0) + j of a line. Neighbouring distances of one row are a step; steps are
  // counted along the line, so a block of pairs reads neighbouring ones.
  bool by_line = false;
  std::int32_t axis = 0;
  Index high = 0;
  const std::int32_t* step = nullptr;  // of an entry; kLineMargin more on both sides
  std::span<const Index>
      row;  // of a step; -1: none. Otherwise a step is a row, and the last one is none

  Index steps() const noexcept { return static_cast<Index>(row.size()); }
  // Of a query and key 0; by_line.
  Index entry(const ReadyCall&, const FastRow&) const noexcept;
  // Of `rows` queries from one on and `count` keys from `key` on: the steps that they read lie between these.
  struct Range {
    Index first, last;
  };
  Range range(const ReadyCall&, const FastRow&, Index rows, Index key, Index count) const noexcept;
};

RowSteps find_steps(const ReadyCall&, const PickedRows&, CallArena&);
// Why the rows of a term are not found here; empty: they are.
std::string_view steps_why_not(const ReadyCall&, const PickedRows&) noexcept;

// Row `row` of a slab times factor, in float, its channels `step` apart; -1: 0. False: float does not hold it, and it
// is 0.
bool take_table_row(const ConstTensorView&, Index slab, Index row, double factor, float* to,
                    Index step) noexcept;
// The same of adjacent channels.
bool take_table_row(const FastReadKernels&, const ConstTensorView&, Index slab, Index row,
                    double factor, float* to) noexcept;
// Adds to a gradient of the table: factor times d[step], `stride` apart, to the row of each step.
void add_table_rows(const RowSteps&, const TensorView& to, Index slab, double factor,
                    const float* d, Index stride) noexcept;

// put(step, sum) of each run of neighbours that read one step.
template <class Put>
void each_step_sum(const std::int32_t* step, const float* x, Index count, const Put& put) noexcept {
  for (Index j = 0; j < count;) {
    const Index at = step[j];
    float sum = x[j++];
    for (; j < count && step[j] == at; ++j) sum += x[j];
    put(at, sum);
  }
}

}  // namespace posenc::v0::detail
