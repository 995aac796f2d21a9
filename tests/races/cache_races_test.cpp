// SPDX-License-Identifier: Apache-2.0
// Many sequences of one pool at once: each thread changes its own, and all read one that they share.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "posenc/cache/key_cache.h"
#include "posenc/posenc.h"

namespace posenc::cache_races {
namespace {

constexpr Index kDim = 16;

void append_ones(KeyCache& cache, Index first, Index n) {
  const std::vector<float> x(static_cast<std::size_t>(n * kDim), 1);
  const OwnedPositions at = arange(first, n);
  NewTokens t;
  t.k = t.v = heads(x.data(), n, 1, kDim), t.positions = at;
  cache.append(t, inline_executor());
}

float attend_ones(const KeyCache& cache, Index position) {
  const std::vector<float> q(kDim, 1);
  std::vector<float> out(kDim);
  const Index order[] = {cache.next_order()};
  const OwnedPositions at = arange(position, 1);
  AttentionArgs a;
  a.q = heads(q.data(), 1, 1, kDim), a.scale = 1, a.mask.causal = true;
  a.mask.query_order = tensor(order, {1, 1}), a.query_positions = at;
  cache.attend(a, {heads(out.data(), 1, 1, kDim), {}}, inline_executor());
  return out[0];
}

TEST(Races, SequencesOfOnePool) {
  const PagePool pool({.pages = 40, .heads = 1, .head_dim = kDim, .value_dim = kDim});
  KeyCache prefix(pool, resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split}));
  append_ones(prefix, 0, 40);
  std::atomic<int> out_of_pages{0};
  std::vector<std::thread> threads;
  for (Index n = 0; n < 4; ++n)
    threads.emplace_back([&, n] {
      for (Index round = 0; round < 12; ++round) {
        KeyCache own = prefix.fork();
        try {
          append_ones(own, 40, 20 + n);
          own.evict(3 + n, 9), own.shift(12, own.next_order(), -n);
          append_ones(own, 60, 1), own.compact();
          own.rewind(50);
        } catch (const OutOfPages&) {
          ++out_of_pages;
        }
        EXPECT_NEAR(attend_ones(own, 61), 1, 1e-5);
        EXPECT_NEAR(attend_ones(prefix, 40), 1, 1e-5);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_LT(out_of_pages, 48);
  EXPECT_EQ(prefix.size(), 40);
  prefix.clear();
  EXPECT_EQ(pool.free_pages(), 40);
}

}  // namespace
}  // namespace posenc::cache_races
