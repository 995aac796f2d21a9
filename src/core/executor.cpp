// SPDX-License-Identifier: Apache-2.0
// The library's pool: fork-join over an atomic counter. A job is joined only by workers that are
// awake while it is open, so that a short one never waits for a sleeper to come and go.
#include "posenc/core/executor.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "posenc/core/error.h"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace posenc::inline v0 {
namespace {

constexpr Index kMaxThreads = 1024;
constexpr int kSpins = 600;         // about 25 us on current x86
constexpr int kOpen = 1 << 30;      // in gate_, above the number of workers inside
constexpr std::size_t kLine = 128;  // two cache lines: neighbours are prefetched in pairs

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// True on a thread that is inside a task: calls from there stay on it.
thread_local bool inside_task = false;

class Pool {
 public:
  explicit Pool(Index threads) : max_workers_(threads - 1) {
    for (std::size_t i = 0; i < executors_.size(); ++i)
      executors_[i] = {this, static_cast<Index>(i) + 1,
                       [](void* pool, Index n, Task task, void* arg) {
                         static_cast<Pool*>(pool)->run(n, task, arg);
                       }};
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Made by whoever comes first, who may not be alone. Not under a lock: a fork would leave it
  // closed in the child for ever. Never freed: what ends late still finds it, stopped.
  static const Executor& of_process(Index threads) {
    static constinit std::atomic<bool> registered{false};
    if (!registered.exchange(true))
      pthread_atfork(nullptr, nullptr, [] {
        if (Pool* p = pool_of_process.load(std::memory_order_acquire)) p->forget_workers();
      });
    auto made = std::make_unique<Pool>(threads);  // without threads as yet
    Pool* first = nullptr;
    if (pool_of_process.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel))
      first = made.release();
    first->raise(threads - 1);
    return first->executor_of(threads);
  }
  static void stop_of_process() {
    if (Pool* p = pool_of_process.load(std::memory_order_acquire)) p->stop();
  }

 private:
  using Task = void (*)(void*, Index);

  // Its threads end; whoever comes later does its own work.
  void stop() {
    stop_.store(true, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    const Index n = workers_.load(std::memory_order_acquire);
    for (Index i = 0; i < n; ++i) pthread_join(threads_[static_cast<std::size_t>(i)], nullptr);
  }

  void run(Index n, Task task, void* arg) {
    // One job at a time: whoever comes second does its own work, and so do tasks of tasks.
    if (n <= 1 || inside_task || stop_.load(std::memory_order_acquire) ||
        busy_.exchange(true, std::memory_order_acquire)) {
      for (Index i = 0; i < n; ++i) task(arg, i);
      return;
    }
    start_workers();
    task_ = task;
    arg_ = arg;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    gate_.store(kOpen, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
    work();
    gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
    for (int spins = 0, g; (g = gate_.load(std::memory_order_acquire)) != 0;)
      if (++spins < kSpins)
        relax();
      else
        gate_.wait(g, std::memory_order_acquire);
    busy_.store(false, std::memory_order_release);
  }

  static std::atomic<Pool*> pool_of_process;

  // Never fewer: workers that are there sleep, and a call is split into `concurrency` tasks at most.
  void raise(Index workers) noexcept {
    Index n = max_workers_.load(std::memory_order_relaxed);
    while (n < workers && !max_workers_.compare_exchange_weak(n, workers)) {
    }
  }
  const Executor& executor_of(Index threads) const noexcept {
    return executors_[static_cast<std::size_t>(threads - 1)];
  }

  // In the child of a fork the workers do not exist and nobody holds the pool. Only atomics are
  // touched: nothing else is allowed there.
  void forget_workers() noexcept {
    workers_.store(0, std::memory_order_relaxed);
    gate_.store(0, std::memory_order_relaxed);
    busy_.store(false, std::memory_order_relaxed);
  }

  void start_workers() {
    Index n = workers_.load(std::memory_order_relaxed);
    const Index most = max_workers_.load(std::memory_order_relaxed);
    if (n >= most) return;
    sigset_t all, before;  // the host's signals are the host's
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; n < most; ++n) {
      const auto loop = [](void* self) -> void* {
        static_cast<Pool*>(self)->worker();
        return nullptr;
      };
      // If thread creation fails, continue with fewer workers.
      if (pthread_create(&threads_[static_cast<std::size_t>(n)], nullptr, loop, this) != 0) break;
      workers_.store(n + 1, std::memory_order_release);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void work() noexcept {
    inside_task = true;
    for (Index i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < n_;) task_(arg_, i);
    inside_task = false;
  }

  bool join_job() noexcept {
    int g = gate_.load(std::memory_order_acquire);
    while (g & kOpen)
      if (gate_.compare_exchange_weak(g, g + 1, std::memory_order_acquire)) return true;
    return false;
  }

  void worker() noexcept {
    for (;;) {
      const int seen = epoch_.load(std::memory_order_acquire);
      if (stop_.load(std::memory_order_acquire)) return;
      if (join_job()) {
        work();
        // The last one out of a closed job wakes its caller.
        if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
      }
      int spins = 0;
      while (epoch_.load(std::memory_order_acquire) == seen && ++spins < kSpins) relax();
      epoch_.wait(seen, std::memory_order_acquire);
    }
  }

  std::atomic<Index> max_workers_;
  std::array<Executor, kMaxThreads> executors_;  // of 1, 2 .. threads
  std::atomic<Index> workers_{0};
  std::atomic<bool> stop_{false};
  std::array<pthread_t, kMaxThreads> threads_{};
  alignas(kLine) std::atomic<bool> busy_{false};
  // The job: written while gate_ is 0, read by those who came through it.
  Task task_ = nullptr;
  void* arg_ = nullptr;
  Index n_ = 0;
  alignas(kLine) std::atomic<Index> next_{0};
  alignas(kLine) std::atomic<int> gate_{0};   // kOpen | workers inside
  alignas(kLine) std::atomic<int> epoch_{0};  // one up with each job
};

std::atomic<Pool*> Pool::pool_of_process{nullptr};

Index usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const Index n = CPU_COUNT(&set);
  return n < 1 ? 1 : n < kMaxThreads ? n : kMaxThreads;
}

Index thread_count() {
  const char* text = std::getenv("POSENC_NUM_THREADS");
  if (text == nullptr || *text == '\0') return usable_cores();
  Index n = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, n);
  if (error != std::errc() || stop != end || n < 1 || n > kMaxThreads)
    refuse("POSENC_NUM_THREADS", "must be 1 to 1024", text);
  return n;
}

// Null until somebody asks; then looked up by every call.
std::atomic<const Executor*> chosen{nullptr};

// What was set, never freed: calls that run may still hold the one before.
struct Kept {
  Executor executor;
  Kept* before;
};
std::atomic<Kept*> all_kept{nullptr};

const Executor& of_threads(Index threads) {
  return threads == 1 ? inline_executor() : Pool::of_process(threads);
}

struct AtExit {
  ~AtExit() { Pool::stop_of_process(); }
} at_exit;

}  // namespace

const Executor& default_executor() {
  const Executor* executor = chosen.load(std::memory_order_acquire);
  if (executor == nullptr) {
    executor = &of_threads(thread_count());
    // Unless another one was set meanwhile.
    const Executor* none = nullptr;
    if (!chosen.compare_exchange_strong(none, executor, std::memory_order_acq_rel)) executor = none;
  }
  return *executor;
}

void set_default_threads(Index threads) {
  if (threads < 0 || threads > kMaxThreads)
    refuse_field("executor", "threads", "must be 1 to 1024, or 0 for the default", threads);
  chosen.store(&of_threads(threads == 0 ? thread_count() : threads), std::memory_order_release);
}

void set_default_executor(const Executor& executor) {
  if (executor.concurrency < 1)
    refuse_field("executor", "concurrency", "must be at least 1", executor.concurrency);
  if (executor.run == nullptr) {
    chosen.store(&inline_executor(), std::memory_order_release);
    return;
  }
  Kept* kept = new Kept{executor, all_kept.load()};
  while (!all_kept.compare_exchange_weak(kept->before, kept)) {
  }
  chosen.store(&kept->executor, std::memory_order_release);
}

const Executor& inline_executor() noexcept {
  static constexpr Executor executor{};
  return executor;
}

}  // namespace posenc::v0
