// SPDX-License-Identifier: Apache-2.0
// The work of a call, split over its executor. Nothing allocates. What runs must not throw, since
// an executor may be C: it is noexcept, which the compiler checks. Memory is made before.
#pragma once
#include <algorithm>
#include <type_traits>

#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

// What one more thread must have to do: below, waking it costs more than it saves. Bytes where a
// call reads, computes little and writes; values where each is a sum of several numbers.
inline constexpr Index kBytesPerTask = Index{1} << 18;
inline constexpr Index kValuesPerTask = Index{1} << 15;
// Calls beyond this find their tensors in memory rather than in the cache.
inline constexpr Index kLargeBytes = Index{1} << 22;
// Outputs beyond these are written around the cache: of calls that read a tensor of the same size,
// and rows of cosine, sine and embeddings, which only write and are read again by what follows.
inline constexpr Index kStreamBytes = Index{16} << 20;
inline constexpr Index kStreamRowBytes = Index{8} << 20;

// Tasks that [0, count) is split into, where the work is worth `most` at most.
inline Index task_count(const Executor& executor, Index count, Index most) noexcept {
  if (executor.run == nullptr) return 1;
  return std::max(Index{1}, std::min({executor.concurrency, count, most}));
}

inline bool is_cancelled(const Executor& executor) noexcept {
  return executor.cancelled != nullptr && executor.cancelled(executor.cancel_context);
}

// task(i) once for every i of [0, n), each a task of its own: where tasks are of unequal size.
template <class F>
void run_tasks(const Executor& executor, Index n, const F& task) {
  static_assert(std::is_nothrow_invocable_v<const F&, Index>, "a task must be noexcept");
  if (executor.run == nullptr || n < 2) {
    for (Index i = 0; i < n; ++i) task(i);
    return;
  }
  const F* arg = &task;
  executor.run(
      executor.context, n, [](void* f, Index i) { (**static_cast<const F**>(f))(i); }, &arg);
}

// part(begin, end) or part(begin, end, task) over [0, count), in task_count(executor, count, most)
// ranges of equal size, which depend on the threads: what a part computes for one index must not
// depend on where its range begins.
template <class F>
void parallel_for(const Executor& executor, Index count, Index most, const F& part) {
  const auto call = [&](Index begin, Index end, Index task) noexcept {
    if constexpr (std::is_invocable_v<const F&, Index, Index, Index>) {
      static_assert(std::is_nothrow_invocable_v<const F&, Index, Index, Index>,
                    "a part must be noexcept");
      part(begin, end, task);
    } else {
      static_assert(std::is_nothrow_invocable_v<const F&, Index, Index>, "a part must be noexcept");
      part(begin, end);
    }
  };
  if (count <= 0) return;
  const Index tasks = task_count(executor, count, most);
  if (tasks == 1) return call(0, count, 0);
  const Index each = count / tasks, rest = count % tasks;
  run_tasks(executor, tasks, [&](Index i) noexcept {
    const Index begin = i * each + std::min(i, rest);
    call(begin, begin + each + (i < rest ? 1 : 0), i);
  });
}

// slice(i, begin, end) for [0, count) cut into `slices` of equal size; block(i, begin, end, task)
// for blocks of `size`, of which the last may be shorter. The cut is by the shape alone: sums of a
// slice or block, added in their order, do not depend on the threads.
template <class F>
void parallel_slices(const Executor& executor, Index count, Index slices, const F& slice) {
  parallel_for(executor, slices, slices, [&](Index from, Index to) noexcept {
    static_assert(std::is_nothrow_invocable_v<const F&, Index, Index, Index>,
                  "a slice must be noexcept");
    for (Index i = from; i < to; ++i) slice(i, count * i / slices, count * (i + 1) / slices);
  });
}
inline Index block_count(Index count, Index size) noexcept {
  return (count + size - 1) / size;
}
template <class F>
void parallel_blocks(const Executor& executor, Index count, Index size, Index most,
                     const F& block) {
  parallel_for(executor, block_count(count, size), most,
               [&](Index from, Index to, Index task) noexcept {
                 static_assert(std::is_nothrow_invocable_v<const F&, Index, Index, Index, Index>,
                               "a block must be noexcept");
                 for (Index i = from; i < to; ++i)
                   block(i, i * size, std::min((i + 1) * size, count), task);
               });
}

}  // namespace posenc::v0::detail
