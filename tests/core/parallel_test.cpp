// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

namespace posenc::inline v0::detail {
namespace {

// A thread a task, and as many tasks as it was asked for.
void run_on_threads(void*, Index n, void (*task)(void*, Index), void* arg) {
  std::vector<std::thread> threads;
  for (Index i = 0; i < n; ++i) threads.emplace_back([=] { task(arg, i); });
  for (std::thread& t : threads) t.join();
}
// The last task first.
void run_backwards(void*, Index n, void (*task)(void*, Index), void* arg) {
  for (Index i = n; i-- > 0;) task(arg, i);
}

std::vector<Executor> executors() {
  std::vector<Executor> r{inline_executor(), default_executor()};
  for (const Index n : {Index{0}, Index{1}, Index{2}, Index{3}, Index{7}, Index{64}})
    for (const auto run : {run_on_threads, run_backwards}) r.push_back({nullptr, n, run});
  return r;
}

using Counts = std::vector<std::atomic<int>>;

void expect_once(const Counts& seen, const char* what, Index count) {
  for (const auto& n : seen) ASSERT_EQ(n.load(), 1) << what << " over " << count;
}

TEST(ParallelFor, CoversEveryIndexOnce) {
  for (const Executor& e : executors())
    for (const Index count : {0, 1, 2, 5, 63, 64, 65, 1000})
      for (const Index most : {Index{0}, Index{1}, Index{3}, Index{1000}}) {
        Counts seen(static_cast<std::size_t>(count));
        Counts tasks(static_cast<std::size_t>(task_count(e, count, most)));
        parallel_for(e, count, most, [&](Index begin, Index end, Index task) noexcept {
          EXPECT_LT(begin, end);
          ++tasks[static_cast<std::size_t>(task)];
          for (Index i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        expect_once(seen, "index", count);
        if (count > 0) expect_once(tasks, "task", count);
      }
}

TEST(ParallelFor, WorkOfOneTaskStaysWithItsCaller) {
  const Executor forbidden{nullptr, 8, [](void*, Index, void (*)(void*, Index), void*) { FAIL(); }};
  Index calls = 0;
  parallel_for(forbidden, 1000, 1,
               [&](Index begin, Index end) noexcept { calls += begin == 0 && end == 1000; });
  parallel_for(forbidden, 0, 8, [&](Index, Index) noexcept { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(ParallelFor, TasksAreNoMoreThanRunAtOnce) {
  const Executor e{nullptr, 4, run_on_threads};
  EXPECT_EQ(task_count(e, 100, 100), 4);
  EXPECT_EQ(task_count(e, 3, 100), 3);
  EXPECT_EQ(task_count(e, 100, 2), 2);
  EXPECT_EQ(task_count(e, 100, 0), 1);
  EXPECT_EQ(task_count(inline_executor(), 100, 100), 1);
}

TEST(RunTasks, EachIsATaskOfItsOwn) {
  for (const Executor& e : executors())
    for (const Index n : {0, 1, 2, 9}) {
      Counts seen(static_cast<std::size_t>(n));
      run_tasks(e, n, [&](Index i) noexcept { ++seen[static_cast<std::size_t>(i)]; });
      expect_once(seen, "task", n);
    }
}

// Addends whose sum depends on the order.
double addend(Index i) {
  return std::sin(static_cast<double>(i) * 1.7) * std::exp2(static_cast<double>(i % 40));
}

TEST(ParallelSlices, SumsAreEqualToTheBitForAnyThreads) {
  constexpr Index kCount = 10'007, kSlices = 64;
  const auto sum = [&](const Executor& e) {
    std::vector<double> partial(kSlices);
    parallel_slices(e, kCount, kSlices, [&](Index s, Index begin, Index end) noexcept {
      for (Index i = begin; i < end; ++i) partial[static_cast<std::size_t>(s)] += addend(i);
    });
    double r = 0;
    for (const double p : partial) r += p;
    return r;
  };
  const double one = sum(inline_executor());
  for (const Executor& e : executors()) EXPECT_EQ(sum(e), one) << e.concurrency;
  for (Index threads = 1; threads < 20; ++threads)
    EXPECT_EQ(sum({nullptr, threads, run_on_threads}), one) << threads;
}

TEST(ParallelSlices, FewIndicesLeaveSlicesEmpty) {
  for (const Executor& e : executors()) {
    Counts slices(8), seen(3);
    parallel_slices(e, 3, 8, [&](Index s, Index begin, Index end) noexcept {
      ++slices[static_cast<std::size_t>(s)];
      for (Index i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    expect_once(slices, "slice", 3);
    expect_once(seen, "index", 3);
  }
}

TEST(ParallelBlocks, CutIsOfTheSizeAlone) {
  for (const Executor& e : executors())
    for (const Index count : {0, 1, 63, 64, 65, 1000}) {
      Counts seen(static_cast<std::size_t>(count));
      parallel_blocks(e, count, 64, count,
                      [&](Index block, Index begin, Index end, Index) noexcept {
                        EXPECT_EQ(begin, block * 64);
                        EXPECT_EQ(end, std::min(begin + 64, count));
                        for (Index i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
                      });
      expect_once(seen, "index", count);
    }
}

}  // namespace
}  // namespace posenc::v0::detail
