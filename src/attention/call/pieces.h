// SPDX-License-Identifier: Apache-2.0
// The work of a call in pieces of unequal size, shared among threads.
#pragma once
#include <atomic>

#include "attention/call/ready_call.h"
#include "core/extent.h"
#include "core/parallel.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

// Threads that a call is worth.
inline Index most_tasks(const ReadyCall& c) noexcept {
  return saturated_product({c.B, c.H, c.Tq, std::max<Index>(1, c.Tk), c.D}) / kValuesPerTask;
}

// Throws Cancelled when the executor ended it. piece(n, task) for n of [0, count), by whichever task is free: later rows of a causal mask are
// longer. A piece must not depend on who does it.
template <class F>
void each_piece(const Executor& executor, Index count, Index most, const F& piece) {
  if (task_count(executor, count, most) == 1) {
    // A counter of several threads waits until all that was written before has reached the cache.
    for (Index n = 0; n < count && !is_cancelled(executor); ++n) piece(n, Index{0});
  } else {
    std::atomic<Index> next{0};
    parallel_for(executor, count, most, [&](Index, Index, Index task) noexcept {
      for (Index n = next++; n < count && !is_cancelled(executor); n = next++) piece(n, task);
    });
  }
  if (is_cancelled(executor)) throw Cancelled("attention");
}

}  // namespace posenc::v0::detail
