// SPDX-License-Identifier: Apache-2.0
// Which entry of an array serves a head, a batch entry and a query: the one place that knows.
#pragma once
#include "attention/call/order_view.h"

namespace posenc::inline v0::detail {

// Neighbouring heads that share one of `groups` entries.
struct Grouping {
  Index heads = 1, groups = 1;
  Index of(Index head) const noexcept { return head / (heads / groups); }
};

// Offset of one entry; an axis of one entry serves all.
Index entry_offset(const ConstTensorView&, std::array<Index, 4> at) noexcept;
// A number of a float view; read_index reads an integer view.
double read_number(const ConstTensorView&, Index a, Index b = 0, Index c = 0, Index d = 0) noexcept;

// The keys of one query in a view [B|1, G, Tq, Tk] or [Tq, Tk]: that of key j at begin + j * step.
struct PairRow {
  Index begin = 0, step = 0;
  Index at(Index key) const noexcept { return begin + key * step; }
};
PairRow pair_row(const ConstTensorView&, Index heads, Index b, Index h, Index i) noexcept;

}  // namespace posenc::v0::detail
