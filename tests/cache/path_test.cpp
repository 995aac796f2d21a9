// SPDX-License-Identifier: Apache-2.0
// PaTH from a cache beside PaTH over dense arrays: prefill, decoding, evicted tokens, forks, files.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "core/convert.h"
#include "posenc/cache/snapshot.h"
#include "support/refusal.h"

namespace posenc::test::cache_path {
namespace {

using ::testing::HasSubstr;
constexpr Index kTokens = 60, kChannels = 32;

// What each token brings, in float where the cache stores floats.
struct PathTokens {
  PoolSizes sizes = cache_sizes(12);
  std::vector<float> k = Random(1).normals<float>(kTokens * 2 * kChannels),
                     v = Random(2).normals<float>(kTokens * 2 * kChannels);
  std::vector<float> w = Random(3).normals<float>(kTokens * kChannels);
  std::vector<double> beta = Random(4).normals(kTokens), gate = Random(5).normals(kTokens * 2);
  std::vector<double> q = Random(6).normals(kTokens * 4 * kChannels);
  bool gated;

  explicit PathTokens(bool gates) : gated(gates) {
    for (double& x : gate) x = -std::fabs(x);
    sizes.arrays = {{"w", DType::f32, {1, kChannels}}, {"beta", DType::f64, {1}}};
    if (gated) sizes.arrays.push_back({"log_gate", DType::f64, {2}});
    for (std::size_t t = 0; t < kTokens; ++t) {
      double length = 0;
      for (std::size_t d = 0; d < kChannels; ++d)
        length += w[t * kChannels + d] * w[t * kChannels + d];
      for (std::size_t d = 0; d < kChannels; ++d)
        w[t * kChannels + d] /= static_cast<float>(std::sqrt(length));
    }
  }
  void append(KeyCache& cache, Index first, Index n) const {
    const std::vector<NamedArray> arrays{
        {"w", tensor(w.data() + first * kChannels, {n, 1, kChannels})},
        {"beta", tensor(beta.data() + first, {n, 1})},
        {"log_gate", tensor(gate.data() + first * 2, {n, 2})}};
    const OwnedPositions at = arange(first, n);
    cache.append({.k = heads(k.data() + first * 2 * kChannels, n, 2, kChannels),
                  .v = heads(v.data() + first * 2 * kChannels, n, 2, kChannels),
                  .positions = at,
                  .arrays = std::span(arrays).first(gated ? 3 : 2)});
  }
  PathArgs call(Index first, Index n) const {
    PathArgs a;
    a.q = heads(q.data() + first * 4 * kChannels, n, 4, kChannels);
    return a;
  }
  // Queries `first` up to `end` over the tokens from `oldest` on, without a cache.
  std::vector<double> whole(PathArgs a, Index oldest, Index end) const {
    const Index n = end - oldest;
    a.k = heads(k.data() + oldest * 2 * kChannels, n, 2, kChannels);
    a.v = heads(v.data() + oldest * 2 * kChannels, n, 2, kChannels);
    a.w = heads(w.data() + oldest * kChannels, n, 1, kChannels);
    a.beta = heads(beta.data() + oldest, n, 1, 1);
    if (gated) a.log_gate = heads(gate.data() + oldest * 2, n, 2, 1);
    a.query_offset = n - a.q.tokens;
    std::vector<double> out(static_cast<std::size_t>(a.q.tokens * 4 * kChannels));
    attend_path(a, {heads(out.data(), a.q.tokens, 4, kChannels), {}});
    return out;
  }
};
std::vector<double> cached(const KeyCache& cache, const PathArgs& a) {
  std::vector<double> out(static_cast<std::size_t>(a.q.tokens * 4 * kChannels));
  cache.attend_path(a, {heads(out.data(), a.q.tokens, 4, kChannels), {}});
  return out;
}
RotarySpec no_rotation() {
  RotarySpec none;
  none.head_dim = kChannels;
  return none;
}

TEST(CachePath, AsWithoutACache) {
  for (const bool gated : {false, true}) {
    const PathTokens t(gated);
    const PagePool pool(t.sizes);
    KeyCache cache(pool, no_rotation());
    t.append(cache, 0, 35);
    EXPECT_EQ(cached(cache, t.call(0, 35)), t.whole(t.call(0, 35), 0, 35));
    Index oldest = 0;
    for (Index n = 35; n < kTokens; ++n) {
      t.append(cache, n, 1);
      if (n % 9 == 0) cache.keep(0, 30), oldest = n + 1 - 30;
      if (n == 50) cache.compact();
      PathArgs a = t.call(n, 1);
      a.gates_scaled = n % 2 == 0;
      if (n % 4 == 0) a.window_left = 20, a.scale = 0.3;
      EXPECT_EQ(cached(cache, a), t.whole(a, oldest, n + 1)) << n;
    }
    // The same from a fork that goes another way, and from a file.
    KeyCache fork = cache.fork();
    cache.rewind(50);
    t.append(cache, 50, 5);
    EXPECT_EQ(cached(cache, t.call(53, 2)), t.whole(t.call(53, 2), oldest, 55));
    EXPECT_EQ(cached(fork, t.call(59, 1)), t.whole(t.call(59, 1), oldest, 60));
    const KeyCache back = parse_key_cache(key_cache_bytes(fork), "file", pool, no_rotation());
    EXPECT_EQ(cached(back, t.call(59, 1)), t.whole(t.call(59, 1), oldest, 60));
  }
}

// Tokens that were cached alone, behind others.
TEST(CachePath, OfAnAppendedCache) {
  const PathTokens t(true);
  const PagePool pool(t.sizes);
  KeyCache cache(pool, no_rotation()), chunk(pool, no_rotation());
  t.append(cache, 0, 21), t.append(chunk, 21, 33);
  cache.append(chunk);
  t.append(cache, 54, 6);
  EXPECT_EQ(cached(cache, t.call(50, 10)), t.whole(t.call(50, 10), 0, 60));
}

TEST(CachePath, RoundedKeys) {
  PathTokens t(true);
  t.sizes.key_type = KeyType::bf16, t.sizes.value_type = KeyType::f16;
  KeyCache cache(PagePool(t.sizes), no_rotation());
  t.append(cache, 0, kTokens);
  EXPECT_LT(largest_difference(cached(cache, t.call(0, kTokens)),
                               t.whole(t.call(0, kTokens), 0, kTokens)),
            0.1);
  for (float& x : t.k) x = f32_from_bf16(bf16_from(x));
  for (float& x : t.v) x = f32_from_f16(f16_from(x));
  EXPECT_EQ(cached(cache, t.call(0, kTokens)), t.whole(t.call(0, kTokens), 0, kTokens));
}

TEST(CachePath, Refusals) {
  const PathTokens t(false);
  const PagePool pool(t.sizes);
  KeyCache cache(pool, no_rotation());
  t.append(cache, 0, 20);
  const auto says = [&](const KeyCache& c, const PathArgs& a) {
    return refusal([&] { cached(c, a); });
  };
  PathArgs a = t.call(0, 2);
  EXPECT_EQ(says(cache, a), "accepted");
  a.k = a.q;
  EXPECT_THAT(says(cache, a), HasSubstr("k must be absent"));
  a = t.call(0, 2), a.query_offset = 1;
  EXPECT_THAT(says(cache, a), HasSubstr("query_offset must be 0"));
  EXPECT_THAT(says(cache, t.call(0, 21)), HasSubstr("q must be tokens of the cache, which are 20"));
  EXPECT_THAT(says(KeyCache(pool, cache_rope()), t.call(0, 0)), HasSubstr("does not rotate"));
  a = t.call(0, 2), a.window_left = -1;
  EXPECT_THAT(says(cache, a), HasSubstr("[path] window_left"));
  cache.evict(4, 5);
  EXPECT_THAT(
      says(cache, t.call(0, 2)),
      HasSubstr("PaTH sums over the keys in between, so only the oldest tokens may be evicted"));
  PoolSizes s = t.sizes;
  s.arrays[0].name = "x";
  EXPECT_THAT(says(KeyCache(PagePool(s), no_rotation()), t.call(0, 0)),
              HasSubstr("w must be a token array of the pool, because PaTH reads it"));
  s = t.sizes, s.arrays[1].shape = {};
  EXPECT_THAT(says(KeyCache(PagePool(s), no_rotation()), t.call(0, 0)),
              HasSubstr("beta must be a token array with a number for each head"));
  s = t.sizes, s.value_dim = 0;
  EXPECT_THAT(says(KeyCache(PagePool(s), no_rotation()), t.call(0, 0)), HasSubstr("keys only"));
}

}  // namespace
}  // namespace posenc::test::cache_path
