// SPDX-License-Identifier: Apache-2.0
// What several threads may do at once, small enough for the thread sanitizer: the pool, one plan,
// lowered schemes, a table that grows and is replaced while readers read.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "posenc/attention/plan.h"
#include "posenc/posenc.h"

namespace posenc {
namespace {

RotarySpec spec(double base = 10000) {
  return resolve(Rope{.head_dim = 16, .base = base, .pairing = Pairing::half_split});
}

template <class F>
void in_threads(int n, F&& f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i) threads.emplace_back([&f, i] { f(i); });
  for (std::thread& t : threads) t.join();
}

TEST(Races, SeveralCallersShareThePool) {
  const Executor& pool = default_executor();
  if (pool.run == nullptr) GTEST_SKIP() << "one processor: the caller's thread alone";
  std::atomic<Index> sum{0};
  in_threads(4, [&](int) {
    for (int round = 0; round < 50; ++round)
      pool.run(
          pool.context, 8,
          [](void* arg, Index i) { static_cast<std::atomic<Index>*>(arg)->fetch_add(i); }, &sum);
  });
  EXPECT_EQ(sum.load(), 4 * 50 * 28);
}

TEST(Races, OnePlanForAllThreads) {
  const RotaryPlan plan(spec(), DType::f32);
  const Index tokens = 512;  // large enough to be split over the pool
  std::vector<float> start(static_cast<std::size_t>(tokens) * 4 * 16);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = std::sin(static_cast<float>(i));
  std::vector<float> want = start;
  plan.apply(QK{heads(want.data(), tokens, 4, 16), {}},
             want.empty() ? arange(0, 0) : arange(7, tokens));
  in_threads(4, [&](int) {
    const RotaryPlan copy = plan;
    for (int round = 0; round < 5; ++round) {
      std::vector<float> x = start;
      copy.apply(QK{heads(x.data(), tokens, 4, 16), {}}, arange(7, tokens));
      EXPECT_EQ(x, want);
    }
  });
}

// One plan is lowered by several threads, and all of them call what one of them lowered.
TEST(Races, OneLoweredAttentionForAllThreads) {
  constexpr Index kTokens = 24, kHeads = 2, kDim = 8;
  std::vector<double> q(kTokens * kHeads * kDim), table(8 * kHeads);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(static_cast<double>(i));
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = std::cos(static_cast<double>(i));
  const OwnedPositions at = arange(0, kTokens);
  AttentionArgs a;
  a.q = a.k = a.v = heads(std::as_const(q).data(), kTokens, kHeads, kDim);
  a.query_positions = a.key_positions = at;
  const AttentionPlan plan({"rope head_dim=8 pairing=half_split",
                            "t5 bidirectional=false num_buckets=8 max_distance=20", "alibi"},
                           {.heads = kHeads, .head_dim = kDim});
  const NamedArray parameters[] = {{"table", tensor(std::as_const(table).data(), {8, kHeads})}};
  const LoweredAttention shared = plan.lower(parameters, distance_ranges(at, at));
  const auto answers = [&](const LoweredAttention& lowered) {
    std::vector<double> out(q.size()), d_q(q.size()), d_table(table.size());
    const AttentionResult r{heads(out.data(), kTokens, kHeads, kDim), {}};
    lowered.forward(a, {}, r, inline_executor());
    const NamedGradient named[] = {{"table", tensor(d_table.data(), {8, kHeads})}};
    AttentionGradients g;
    g.q = heads(d_q.data(), kTokens, kHeads, kDim);
    lowered.backward(a, {}, r, {a.v, {}}, g, named, inline_executor());
    return std::vector<std::vector<double>>{out, d_q, d_table};
  };
  const std::vector<std::vector<double>> want = answers(shared);
  in_threads(4, [&](int) {
    const LoweredAttention copy = shared;
    EXPECT_EQ(answers(copy), want);
    EXPECT_EQ(answers(plan.lower(parameters, distance_ranges(at, at))), want);
  });
}

// Readers check that what they see is one version, whole, and never changes under them.
TEST(Races, TableGrowsAndIsReplacedWhileReadersRead) {
  const double bases[] = {10000, 500000};
  RotaryTable table(spec(bases[0]), 64, DType::f32, BeyondTable::refuse);
  std::atomic<bool> stop{false};
  std::atomic<Index> reads{0};
  std::thread writer([&] {
    for (int round = 0; round < 20; ++round) {
      table.grow(table.size() + 64);
      table.replace(spec(bases[(round + 1) % 2]));
      std::this_thread::yield();
    }
    while (reads.load() < 100) std::this_thread::yield();
    stop = true;
  });
  in_threads(3, [&](int) {
    while (!stop.load()) {
      const RotaryTable::Snapshot s = table.snapshot();
      ASSERT_GE(s.size, 64);
      const float* first = static_cast<const float*>(s.cos_sin.data);
      const Index last = s.size - 1, pairs = s.cos_sin.shape[1] / 2;
      const float* row = first + last * s.cos_sin.stride[0];
      bool of_one_version = false;
      for (const double base : bases) {
        bool equal = true;
        for (Index i = 0; i < pairs; ++i) {
          const double phi =
              static_cast<double>(last) * std::pow(base, -static_cast<double>(i) / 8);
          equal = equal && std::abs(row[i] - std::cos(phi)) < 1e-6 &&
                  std::abs(row[pairs + i] - std::sin(phi)) < 1e-6;
        }
        of_one_version = of_one_version || equal;
      }
      EXPECT_TRUE(of_one_version);
      reads.fetch_add(1);
    }
  });
  writer.join();
}

TEST(Races, RotatingFromATableThatIsReplaced) {
  const RotaryPlan plan(spec(), DType::f32);
  RotaryTable table(spec(), 256);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int round = 0; round < 10; ++round) table.replace(spec());
    stop = true;
  });
  in_threads(2, [&](int) {
    do {
      std::vector<float> x(8 * 16, 1.0f);
      const QK qk{heads(x.data(), 8, 1, 16), {}};
      apply(plan, qk, qk, table, arange(100, 8), RotateMode::forward, inline_executor());
      EXPECT_NEAR(x[0], std::cos(100.0) - std::sin(100.0), 1e-5);
    } while (!stop.load());
  });
  writer.join();
}

}  // namespace
}  // namespace posenc
