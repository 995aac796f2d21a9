// SPDX-License-Identifier: Apache-2.0
// Rows of a call, forward, split over an executor.
#pragma once
#include "attention/row.h"
#include "core/parallel.h"

namespace posenc::inline v0::detail {

// Scores, weights and mixed weights of row i of head h, or of all heads.
void fill_row(const CallView&, Index b, Index h, Index i, RowWork&) noexcept;
std::vector<RowWork> row_works(const CallView&, bool backward, Index count);
Index most_tasks(const CallView&) noexcept;

// done(work) with every row filled, on any thread.
template <class F>
void each_row_of(const CallView& c, const Executor& executor, const F& done) {
  const Index heads = c.all_heads ? 1 : c.H, count = c.B * heads * c.Tq;
  const Index most = most_tasks(c);
  std::vector<RowWork> works = row_works(c, false, task_count(executor, count, most));
  parallel_for(executor, count, most, [&](Index begin, Index end, Index task) noexcept {
    RowWork& w = works[static_cast<std::size_t>(task)];
    for (Index n = begin; n < end; ++n) {
      fill_row(c, n / (heads * c.Tq), n / c.Tq % heads, n % c.Tq, w);
      done(w);
    }
  });
}

}  // namespace posenc::v0::detail
