// SPDX-License-Identifier: Apache-2.0
// Gradients of rows of a call: each row is computed anew.
#pragma once
#include "attention/exact/row.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// What comes to a call backward: of its result or, where scores is set, of its scores.
struct GivenGradient {
  ConstAttentionResult result{};
  ConstAttentionResult whole{};  // over the keys of all parts, where the call has one of them
  const ConstTensorView* scores = nullptr;  // [B, H, Tq, Tk]
};

// Of rows [first, first + count), at most rows_at_once.
void pull_rows(const CallView&, Index first, Index count, const GivenGradient&, RowWork&,
               Pull&) noexcept;
// Of the products q.k of rows that are filled, from d_content: d_query, and k of the sums.
void pull_products(const CallView&, RowWork&, Pull&) noexcept;
// d_query to the caller's q, or to the sums.
void pull_query(const CallView&, HeadRow&, Pull&) noexcept;

}  // namespace posenc::v0::detail
