// SPDX-License-Identifier: Apache-2.0
// The pool. These tests are run under ThreadSanitizer too; each sets POSENC_NUM_THREADS in a child
// process where the size matters, since the pool is made once a process.
#include "posenc/core/executor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

// ThreadSanitizer ends children of processes with threads unless told otherwise.
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0";
}

namespace posenc {
namespace {

// Calls f(i) for all i on the executor.
template <class F>
void for_all(const Executor& e, Index n, F f) {
  const auto task = [](void* arg, Index i) { (*static_cast<F*>(arg))(i); };
  if (e.run == nullptr)
    for (Index i = 0; i < n; ++i) f(i);
  else
    e.run(e.context, n, task, &f);
}

void expect_each_once(Index n) {
  std::vector<int> count(static_cast<std::size_t>(n), 0);  // plain: each is one task's own
  for_all(default_executor(), n, [&](Index i) { ++count[static_cast<std::size_t>(i)]; });
  for (const int c : count) ASSERT_EQ(c, 1);
}

std::size_t threads_of_process() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& t : std::filesystem::directory_iterator("/proc/self/task")) ++n;
  return n;
}

// Runs f in a child process; its return value is the exit status.
template <class F>
int in_child(F f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);  // a child that hangs fails
    ::_exit(f());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

int all_done(Index n) {
  std::atomic<Index> sum{0};
  for_all(default_executor(), n, [&](Index i) { sum += i + 1; });
  return sum == n * (n + 1) / 2 ? 0 : 1;
}

TEST(Executor, RunsEachTaskOnce) {
  for (const Index n : {0, 1, 2, 3, 7, 64, 1000, 100000}) expect_each_once(n);
  for (int i = 0; i < 2000; ++i) expect_each_once(i % 9);
}

TEST(Executor, WritesOfTasksAreSeenByTheCaller) {
  std::vector<Index> value(257);
  for (Index round = 0; round < 1000; ++round) {
    for_all(default_executor(), 257,
            [&](Index i) { value[static_cast<std::size_t>(i)] += i + round; });
    if (round % 100 == 0) {  // long enough for the workers to fall asleep
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  for (Index i = 0; i < 257; ++i)
    ASSERT_EQ(value[static_cast<std::size_t>(i)], 1000 * i + 999 * 500);
}

TEST(Executor, NestedCallsRunInline) {
  std::atomic<Index> sum{0};
  std::atomic<int> strangers{0};
  for_all(default_executor(), 8, [&](Index) {
    const auto self = std::this_thread::get_id();
    for_all(default_executor(), 16, [&](Index i) {
      sum += i;
      if (std::this_thread::get_id() != self) ++strangers;
    });
  });
  EXPECT_EQ(sum, 8 * 120);
  EXPECT_EQ(strangers, 0);
  expect_each_once(100);  // and the pool works after
}

TEST(Executor, ManyCallersAtOnce) {
  std::atomic<Index> sum{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 6; ++t)
    callers.emplace_back([&] {
      for (int k = 0; k < 500; ++k) {
        Index own[32] = {};
        for_all(default_executor(), 32, [&](Index i) { own[i] = i; });
        for (const Index x : own) sum += x;
      }
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum, 6 * 500 * 496);
}

TEST(Executor, WorksInAForkedChild) {
  expect_each_once(50);
  EXPECT_EQ(in_child([] { return all_done(1000); }), 0);
  EXPECT_EQ(in_child([] {  // a child of a child, after its own pool has started
              if (all_done(1000)) return 1;
              return in_child([] { return all_done(1000); });
            }),
            0);
  expect_each_once(50);
}

TEST(Executor, ForkWhileAnotherThreadRuns) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) expect_each_once(64);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(in_child([] { return all_done(100); }), 0);
  stop = true;
  busy.join();
}

// What the environment asks for, in fresh processes of this program.
int fresh(const char* threads, const char* filter) {
  return in_child([&] {
    ::setenv("POSENC_NUM_THREADS", threads, 1);
    ::setenv("POSENC_TEST_CHILD", threads, 1);
    const std::string argument = std::string("--gtest_filter=") + filter;
    ::execl("/proc/self/exe", "test_core", argument.c_str(), "--gtest_brief=1", nullptr);
    return 99;
  });
}

TEST(Executor, ForkWhileAnotherThreadAsksFirst) {
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(fresh("3", "ExecutorChild.AsksFirstWhileForking"), 0) << "process " << i;
}

TEST(Executor, InlineExecutorIsTheCaller) {
  EXPECT_EQ(inline_executor().concurrency, 1);
  EXPECT_EQ(inline_executor().run, nullptr);
}

TEST(Executor, SizeComesFromTheEnvironment) {
  for (const char* n : {"1", "2", "3", "5"})
    EXPECT_EQ(fresh(n, "ExecutorChild.HasItsSize"), 0) << n;
  for (const char* n : {"0", "-1", "1025", "x", "2x", "1.5", "99999999999999999999"})
    EXPECT_EQ(fresh(n, "ExecutorChild.RefusesItsSize"), 0) << n;
}

// Strictest in the processes that the test above starts.
TEST(ExecutorChild, HasItsSize) {
  const char* child = std::getenv("POSENC_TEST_CHILD");
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  const std::size_t before = threads_of_process();
  const auto n = static_cast<std::size_t>(default_executor().concurrency);
  EXPECT_GE(n, 1u);
  for_all(default_executor(), 1, [](Index) {});
  EXPECT_EQ(threads_of_process(), before) << "no thread before the first large call";
  expect_each_once(100);
  if (child != nullptr) {
    EXPECT_EQ(n, static_cast<std::size_t>(std::atoi(child)));
    EXPECT_EQ(threads_of_process(), before + n - 1);
  } else {
    EXPECT_LE(threads_of_process(), before + n - 1);
  }
}

// In a process of its own nobody has asked for the pool yet. The other thread asks when the fork
// has begun: then pthread_atfork waits until it is over, and whatever lock is held there stays
// closed.
std::atomic<bool> fork_begins{false};

TEST(ExecutorChild, AsksFirstWhileForking) {
  ASSERT_EQ(pthread_atfork([] { fork_begins = true; }, nullptr, nullptr), 0);
  std::atomic<bool> ready{false};
  std::thread first([&] {
    ready = true;
    while (!fork_begins) {
    }
    default_executor();
  });
  while (!ready) {
  }
  EXPECT_EQ(in_child([] { return all_done(100); }), 0);
  first.join();
  expect_each_once(64);
}

TEST(ExecutorChild, RefusesItsSize) {
  if (std::getenv("POSENC_TEST_CHILD") != nullptr)
    EXPECT_THROW(default_executor(), std::invalid_argument);
  else
    EXPECT_EQ(&default_executor(), &default_executor());
}

}  // namespace
}  // namespace posenc
