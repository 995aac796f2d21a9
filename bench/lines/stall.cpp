// SPDX-License-Identifier: Apache-2.0
// How long a reader of a RotaryTable waits while the table grows. The worst of 10^5 calls is the
// machine's own business as soon as another program wants the core: so the same calls are made,
// in turns, while another thread grows a table that is not the reader's, and calls in which the
// system took the core away are not counted.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "line.h"
#include "posenc/core/error.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/table.h"

namespace posenc::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Index kSmall = 32768, kLarge = 131072, kDim = 128, kHeads = 40;
constexpr int kCalls = 100000;
constexpr double kAllowed = 20e-6;

RotarySpec spec() {
  return resolve(
      parse_encoding("rope head_dim=128 base=500000 pairing=half_split + llama3 factor=8 "
                     "low_freq_factor=1 high_freq_factor=4 original_context=8192"));
}

// How often the system took the core from this thread. Waiting for a lock does not count.
long preemptions() {
#if defined(RUSAGE_THREAD)
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
#else
  return 0;
#endif
}

struct Worst {
  double seconds = 0;
  int calls = 0;
};

// Calls of one token at positions that are there from the start, while `growing` grows.
void read_while_growing(const RotaryPlan& plan, const RotaryTable& table, RotaryTable& growing,
                        std::vector<float>& x, Worst& worst) {
  std::atomic<bool> started{false}, done{false};
  std::thread writer([&] {
    started.store(true);
    growing.grow(kLarge, inline_executor());
    done.store(true);
  });
  while (!started.load()) std::this_thread::yield();
  const Heads h = heads(x.data(), Index{1}, kHeads, kDim);
  const QK view{h, {}};
  long before = preemptions();
  Index position = 0;
  while (!done.load(std::memory_order_relaxed)) {
    position = (position + 7919) % kSmall;
    const Positions p = positions(std::span<const Index>(&position, 1));
    const Clock::time_point start = Clock::now();
    apply(plan, view, view, table, p, RotateMode::forward, inline_executor());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    ++worst.calls;
    if (seconds <= std::max(worst.seconds, kAllowed / 4)) continue;
    const long now = preemptions();
    if (now == before) worst.seconds = std::max(worst.seconds, seconds);
    before = now;
  }
  writer.join();
}

Measured stall(double) {
  if (default_executor().concurrency < 2)
    throw std::invalid_argument("n/a: this machine gives one thread");
  const RotarySpec s = spec();
  const RotaryPlan plan(s, DType::f32);
  std::vector<float> x(static_cast<std::size_t>(kHeads * kDim), 1.0f);
  Worst shared, apart;
  while (shared.calls < kCalls || apart.calls < kCalls) {
    RotaryTable read(s, kSmall), other(s, kSmall);
    if (apart.calls < kCalls) read_while_growing(plan, read, other, x, apart);
    if (shared.calls < kCalls) read_while_growing(plan, read, read, x, shared);
  }
  if (apart.seconds > kAllowed)
    throw std::invalid_argument("n/a: this machine holds a reader up for " +
                                number_text(std::round(apart.seconds * 1e6)) +
                                " us while a table grows that is not its own (its own: " +
                                number_text(std::round(shared.seconds * 1e6)) + " us)");
  Measured m;
  m.seconds = shared.seconds;
  m.limit_seconds = kAllowed;
  m.samples = shared.calls;
  return m;
}

}  // namespace

std::vector<Line> stall_lines() {
  return {self_timed("table/f32/worst_call_while_growing/32768_to_131072x64", "20_us", stall)};
}

}  // namespace posenc::bench
