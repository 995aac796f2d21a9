// SPDX-License-Identifier: Apache-2.0
// Rows of a call, forward, split over an executor.
#pragma once
#include "attention/call/pieces.h"
#include "attention/exact/row.h"

namespace posenc::inline v0::detail {

// Scores, weights and mixed weights of rows [first, first + count), at most rows_at_once.
void fill_rows(const CallView&, Index first, Index count, RowWork&) noexcept;
// Outputs of the rows in use, to the caller's.
void write_rows(const CallView&, RowWork&, const AttentionResult&) noexcept;
std::span<RowWork> row_works(const CallView&, RowsFor, Index count, CallArena&);

// Several blocks of rows; fewer where there are few for each task, but no fewer than those that
// share their keys in a block.
inline Index rows_of_piece(const CallView& c, Index tasks) noexcept {
  const Index at_once = rows_at_once(c);
  const Index together = c.all_heads ? 1 : std::min(at_once, std::max<Index>(1, c.H / c.G * c.Tq));
  const Index share = block_count(row_count(c), 4 * tasks);
  return block_count(std::clamp(share, together, 8 * at_once), together) * together;
}

// The rows of a call in pieces of `each`, and the memory of each task.
struct RowTasks {
  Index each, count, most;
  std::span<RowWork> works;
};
inline RowTasks row_tasks(const CallView& c, RowsFor what, CallArena& arena,
                          const Executor& executor) {
  const Index rows = row_count(c), most = most_tasks(c);
  const Index each = rows_of_piece(c, task_count(executor, rows, most));
  const Index count = block_count(rows, each);
  return {each, count, most, row_works(c, what, task_count(executor, count, most), arena)};
}

// done(work) with every row filled, on any thread.
template <class F>
void each_row_of(const CallView& c, const RowTasks& tasks, const Executor& executor,
                 const F& done) {
  const Index rows = row_count(c), at_once = rows_at_once(c);
  each_piece(executor, tasks.count, tasks.most, [&](Index n, Index task) noexcept {
    RowWork& w = tasks.works[static_cast<std::size_t>(task)];
    const Index end = std::min(rows, (n + 1) * tasks.each);
    for (Index first = n * tasks.each; first < end && !is_cancelled(executor); first += at_once) {
      fill_rows(c, first, std::min(at_once, end - first), w);
      done(w);
    }
  });
}

}  // namespace posenc::v0::detail
