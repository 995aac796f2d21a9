// SPDX-License-Identifier: Apache-2.0
// The gradient of a dense bias that batch entries and heads share: the sum of the gradients of a
// bias for each, by all threads, with the same bits for any number of them.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "posenc/attention/attend.h"
#include "support/random.h"

namespace posenc {
namespace {

struct SharedBiasCall {
  static constexpr Index kBatch = 2, kHeads = 4, kGroups = 2, kTokens = 160, kDim = 4;
  static constexpr Index kPairs = kTokens * kTokens;
  static std::vector<double> made(Index n, std::uint64_t seed) {
    test::Random r(seed);
    return r.normals(static_cast<std::size_t>(n));
  }
  std::vector<double> q = made(kBatch * kTokens * kHeads * kDim, 1),
                      d = made(static_cast<Index>(q.size()), 2);
  std::vector<double> k = made(kBatch * kTokens * kGroups * kDim, 3),
                      v = made(static_cast<Index>(k.size()), 4);
  std::vector<double> bias = made(kPairs, 5), out = q;

  static auto view(auto& x, Index heads_count) {
    return heads(tensor(x.data(), {kBatch, kTokens, heads_count, kDim}), HeadsLayout::bthd);
  }
  // Gradients of bias [batch, heads, ..] or, both 0, [Tq, Tk], and of q, k and v.
  std::vector<std::vector<double>> gradients(Index batch, Index heads_count,
                                             const Executor& executor) {
    AttentionArgs a;
    a.q = view(std::as_const(q), kHeads), a.k = view(std::as_const(k), kGroups);
    a.v = view(std::as_const(v), kGroups);
    a.scale = 0.5, a.mask.causal = true;
    const Index slabs = std::max<Index>(1, batch * heads_count);
    std::vector<double> copies;
    for (Index n = 0; n < slabs; ++n) copies.insert(copies.end(), bias.begin(), bias.end());
    std::vector<std::vector<double>> g{std::vector<double>(copies.size()),
                                       std::vector<double>(q.size()), std::vector<double>(k.size()),
                                       std::vector<double>(v.size())};
    const auto pairs = [&](auto& x) {
      return batch == 0 ? tensor(x.data(), {kTokens, kTokens})
                        : tensor(x.data(), {batch, heads_count, kTokens, kTokens});
    };
    a.mask.bias = pairs(std::as_const(copies));
    AttentionGradients to;
    to.q = view(g[1], kHeads), to.k = view(g[2], kGroups), to.v = view(g[3], kGroups);
    to.bias = pairs(g[0]);
    const AttentionResult result{view(out, kHeads), {}};
    attend(a, result, executor);
    attend_backward(a, result, ConstAttentionResult(view(std::as_const(d), kHeads), {}), to,
                    executor);
    return g;
  }
};

// Tasks on threads of their own; the largest number at once.
struct CountedThreads {
  explicit CountedThreads(Index n) {
    executor.context = this, executor.concurrency = n;
    executor.run = [](void* self, Index count, void (*task)(void*, Index), void* arg) {
      Index& most = static_cast<CountedThreads*>(self)->most;
      most = std::max(most, count);
      std::vector<std::thread> threads;
      for (Index i = 0; i < count; ++i) threads.emplace_back(task, arg, i);
      for (std::thread& t : threads) t.join();
    };
  }
  Executor executor;
  Index most = 0;
};

TEST(SharedBias, GradientIsTheSumOverBatchAndHeads) {
  SharedBiasCall call;
  const auto apart =
      call.gradients(SharedBiasCall::kBatch, SharedBiasCall::kHeads, inline_executor());
  for (const Index batch : {Index{0}, Index{1}, SharedBiasCall::kBatch})
    for (const Index of_heads : {Index{1}, SharedBiasCall::kGroups}) {
      const auto got = call.gradients(batch, of_heads, inline_executor());
      std::vector<double> want(got[0].size());
      for (Index n = 0; n < SharedBiasCall::kBatch * SharedBiasCall::kHeads; ++n)
        for (Index x = 0; x < SharedBiasCall::kPairs; ++x) {
          const Index b = batch < 2 ? 0 : n / SharedBiasCall::kHeads;
          const Index h =
              batch == 0 ? 0 : n % SharedBiasCall::kHeads / (SharedBiasCall::kHeads / of_heads);
          want[static_cast<std::size_t>(
              (b * (batch == 0 ? 1 : of_heads) + h) * SharedBiasCall::kPairs + x)] +=
              apart[0][static_cast<std::size_t>(n * SharedBiasCall::kPairs + x)];
        }
      for (std::size_t x = 0; x < want.size(); ++x)
        ASSERT_NEAR(got[0][x], want[x], 1e-13) << batch << of_heads;
      for (std::size_t n = 1; n < got.size(); ++n)
        for (std::size_t x = 0; x < got[n].size(); ++x)
          ASSERT_NEAR(got[n][x], apart[n][x], 1e-12) << batch << of_heads << " " << n;
    }
}

TEST(SharedBias, IsSummedByAllThreadsWithTheSameBits) {
  SharedBiasCall call;
  for (const Index batch : {0, 1}) {
    const auto want = call.gradients(batch, 1, inline_executor());
    for (const Index threads : {2, 3, 5}) {
      CountedThreads counted(threads);
      EXPECT_EQ(call.gradients(batch, 1, counted.executor), want) << threads;
      EXPECT_EQ(counted.most, threads);
    }
  }
}

}  // namespace
}  // namespace posenc
