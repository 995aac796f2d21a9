// SPDX-License-Identifier: Apache-2.0
// Selective attention from a cache, call by call, beside one call over all tokens without a cache.
#include "posenc/attention/selective.h"

#include <gtest/gtest.h>

#include "cache_calls.h"
#include "posenc/cache/snapshot.h"
#include "support/refusal.h"

namespace posenc::test::cache_selective {
namespace {

using ::testing::HasSubstr;
constexpr Index kTokens = 90, kHeads = 4, kDim = 32;

PoolSizes with_masked(Index pages = 14, KeyType type = KeyType::f64) {
  PoolSizes s = cache_sizes(pages);
  s.key_type = s.value_type = type;
  s.arrays = {{"masked", DType::f64}};
  return s;
}

// Tokens and queries; from which query on each token is gone.
struct SelectiveWorld {
  std::vector<double> k = Random(1).normals(kTokens * 2 * kDim),
                      v = Random(2).normals(kTokens * 2 * kDim),
                      q = Random(3).normals(kTokens * kHeads * kDim);
  std::vector<Index> gone = std::vector<Index>(kTokens, kTokens);
  bool alone = false;  // queries 20 to 39 see no keys before 20

  void append(KeyCache& cache, Index first, Index n) const {
    const std::vector<double> zeros(static_cast<std::size_t>(n));
    const NamedArray arrays[] = {{"masked", tensor(zeros.data(), {n})}};
    const OwnedPositions at = arange(first, n);
    cache.append({.k = heads(k.data() + first * 2 * kDim, n, 2, kDim),
                  .v = heads(v.data() + first * 2 * kDim, n, 2, kDim),
                  .positions = at,
                  .arrays = arrays});
  }
  template <class T = double>
  std::vector<double> attend(KeyCache& cache, Index first, Index n,
                             const SelectiveOptions& o = {}) const {
    const std::vector<T> x(q.begin() + first * kHeads * kDim,
                           q.begin() + (first + n) * kHeads * kDim);
    std::vector<T> out(x.size());
    AttentionArgs a;
    a.q = heads(x.data(), n, kHeads, kDim), a.scale = 0.2, a.mask.causal = true;
    cache.attend_selective(a, {heads(out.data(), n, kHeads, kDim), {}}, o);
    return {out.begin(), out.end()};
  }
  void evict(KeyCache& cache, Index first, Index end) {
    cache.evict(first, end);
    std::fill(gone.begin() + first, gone.begin() + end, cache.next_order());
  }
  // All queries in one call over keys at their positions.
  std::vector<double> whole(Index tokens, const RotarySpec& rotary,
                            const SelectiveOptions& o = {}) const {
    std::vector<double> x = q, keys = k, out(q.size());
    const OwnedPositions at = arange(0, kTokens);
    RotaryPlan(rotary, DType::f64)
        .apply(QK{heads(x.data(), kTokens, kHeads, kDim), heads(keys.data(), kTokens, 2, kDim)},
               at);
    std::vector<std::uint8_t> visible(static_cast<std::size_t>(tokens * tokens));
    for (Index i = 0; i < tokens; ++i)
      for (Index j = 0; j < tokens; ++j)
        visible[static_cast<std::size_t>(i * tokens + j)] =
            i < gone[static_cast<std::size_t>(j)] && !(alone && i >= 20 && i < 40 && j < 20);
    AttentionArgs a;
    a.q = heads(std::as_const(x).data(), tokens, kHeads, kDim);
    a.k = heads(std::as_const(keys).data(), tokens, 2, kDim);
    a.v = heads(v.data(), tokens, 2, kDim);
    a.scale = 0.2, a.mask.causal = true;
    a.mask.visible = tensor(std::as_const(visible).data(), {tokens, tokens});
    attend_selective(a, {heads(out.data(), tokens, kHeads, kDim), {}}, o);
    return out;
  }
};

double worst_of(const std::vector<double>& got, const std::vector<double>& all, Index first) {
  const auto begin = all.begin() + first * kHeads * kDim;
  return largest_difference(got, {begin, begin + static_cast<std::ptrdiff_t>(got.size())});
}

// A prompt in two chunks, then token by token; the oldest token, and others, leave.
TEST(CacheSelective, AsWithoutACache) {
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated})
    for (const bool keep_first : {true, false}) {
      const SelectiveOptions o{.head = 1, .keep_first = keep_first};
      SelectiveWorld w;
      KeyCache cache(PagePool(with_masked()), cache_rope(), keeping);
      std::vector<double> got;
      for (Index n = 0; n < kTokens;) {
        const Index count = n == 0 ? 30 : n == 30 ? 20 : 1;
        w.append(cache, n, count);
        const std::vector<double> out = w.attend(cache, n, count, o);
        got.insert(got.end(), out.begin(), out.end());
        n += count;
        if (n == 50) w.evict(cache, 20, 24);
        if (n == 60) w.evict(cache, 0, 1);
        if (n == 70) w.evict(cache, 55, 58), cache.compact();
      }
      EXPECT_LT(worst_of(got, w.whole(kTokens, cache_rope(), o), 0), 1e-12);
    }
}

TEST(CacheSelective, FloatQueriesAndShifts) {
  SelectiveWorld w;
  for (std::vector<double>* x : {&w.k, &w.v, &w.q})
    for (double& n : *x) n = static_cast<float>(n);
  KeyCache cache(PagePool(with_masked(14, KeyType::f32)), cache_rope());
  w.append(cache, 0, 40), cache.shift(0, 20, 7), cache.shift(0, 20, -7), cache.shift(20, 40, 5);
  const std::vector<double> first = w.attend<float>(cache, 0, 40);
  cache.shift(20, 40, -5);
  w.append(cache, 40, 20);
  // Queries masked keys at shifted positions, so the sums are those of then.
  SelectiveWorld same = w;
  KeyCache wide(PagePool(with_masked()), cache_rope());
  same.append(wide, 0, 40), wide.shift(20, 40, 5);
  EXPECT_LT(largest_difference(first, same.attend(wide, 0, 40)), 1e-5);
  wide.shift(20, 40, -5), same.append(wide, 40, 20);
  EXPECT_LT(largest_difference(w.attend<float>(cache, 40, 20), same.attend(wide, 40, 20)), 1e-5);
}

// Sequences that share pages mask keys each for itself.
TEST(CacheSelective, Forks) {
  SelectiveWorld w;
  const PagePool pool(with_masked(20));
  KeyCache a(pool, cache_rope());
  w.append(a, 0, 40);
  w.attend(a, 0, 40);
  KeyCache b = a.fork(), before = a.fork();
  w.append(a, 40, 10), w.append(b, 40, 10);
  EXPECT_EQ(pool.free_pages(), 20 - 3 - 2 - 2);
  const std::vector<double> all = w.whole(50, cache_rope());
  EXPECT_LT(worst_of(w.attend(a, 40, 10), all, 40), 1e-12);
  EXPECT_EQ(pool.free_pages(), 20 - 3 - 2 - 2 - 2);  // a has its own first pages
  const KeyCache back = parse_key_cache(key_cache_bytes(a), "file", pool, cache_rope());
  KeyCache more = back.fork();
  EXPECT_LT(worst_of(w.attend(b, 40, 10), all, 40), 1e-12);
  for (KeyCache* c : {&a, &b, &more}) {
    w.append(*c, 50, 5);
    EXPECT_LT(worst_of(w.attend(*c, 50, 5), w.whole(55, cache_rope()), 50), 1e-12);
    c->clear();
  }
  w.append(before, 40, 10);
  EXPECT_LT(worst_of(w.attend(before, 40, 10), all, 40), 1e-12);
}

// The queries of a chunk that was cached alone saw the chunk alone, later ones see all.
TEST(CacheSelective, AppendedCaches) {
  SelectiveWorld w;
  const SelectiveOptions o{.keep_first = false};
  const PagePool pool(with_masked(20));
  KeyCache cache(pool, cache_rope()), chunk(pool, cache_rope()), late(pool, cache_rope());
  w.append(cache, 0, 20), w.attend(cache, 0, 20, o);
  w.append(chunk, 20, 20);
  late.append(chunk);
  w.attend(chunk, 20, 20, o);
  cache.append(chunk);
  w.append(cache, 40, 10);
  w.alone = true;
  EXPECT_LT(worst_of(w.attend(cache, 40, 10, o), w.whole(50, cache_rope(), o), 40), 1e-12);
  w.alone = false;
  EXPECT_THAT(refusal([&] { late.append(cache); }), HasSubstr("no queries of attend_selective"));
  // Without queries of its own: they may follow.
  KeyCache own(pool, cache_rope());
  w.append(own, 0, 20), own.append(late);
  EXPECT_LT(worst_of(w.attend(own, 0, 40, o), w.whole(40, cache_rope(), o), 0), 1e-12);
}

TEST(CacheSelective, Refusals) {
  SelectiveWorld w;
  const PagePool pool(with_masked(3));
  KeyCache cache(pool, cache_rope());
  w.append(cache, 0, 20);
  const auto says = [&](Index n, auto change, SelectiveOptions o = {}) {
    std::vector<double> out(w.q.size());
    AttentionArgs a;
    a.q = heads(w.q.data(), n, kHeads, kDim), a.scale = 0.2, a.mask.causal = true;
    change(a);
    return refusal([&] { cache.attend_selective(a, {heads(out.data(), n, kHeads, kDim), {}}, o); });
  };
  const auto nothing = [](AttentionArgs&) {};
  double one = 0;
  EXPECT_THAT(says(19, nothing), HasSubstr("q must be all tokens since the last call, 20, got 19"));
  EXPECT_THAT(says(20, [](AttentionArgs& a) { a.mask.window_left = 4; }),
              HasSubstr("mask.window must be absent"));
  EXPECT_THAT(says(20, [](AttentionArgs& a) { a.softcap = 4; }), HasSubstr("[selective] softcap"));
  EXPECT_THAT(says(20, [](AttentionArgs& a) { a.k = a.q; }), HasSubstr("k must be absent"));
  EXPECT_THAT(says(20, nothing, {.masked = tensor(&one, {1, 1})}), HasSubstr("masked must be"));
  EXPECT_THAT(says(20, nothing, {.head = 4}), HasSubstr("[selective] head"));
  KeyCache fork = cache.fork();
  EXPECT_THROW(w.attend(cache, 0, 20), OutOfPages);
  fork.clear();
  EXPECT_EQ(says(20, nothing), "accepted");
  EXPECT_THAT(says(20, nothing), HasSubstr("since the last call, 0, got 20"));
  EXPECT_THAT(refusal([&] { cache.rewind(19); }),
              HasSubstr("order must not be that of a query of attend_selective"));
  w.append(cache, 20, 3), cache.rewind(20);
  w.append(cache, 20, 3), cache.evict(21, 22);
  EXPECT_THAT(says(3, nothing), HasSubstr("q must be tokens of the cache, and one was evicted"));
  cache.rewind(0);
  w.append(cache, 0, 4);
  EXPECT_EQ(says(4, nothing), "accepted");
  PoolSizes s = with_masked();
  s.arrays[0].dtype = DType::f32;
  cache = KeyCache(PagePool(s), cache_rope());
  EXPECT_THAT(says(0, nothing), HasSubstr("masked must be a token array of the pool"));
}

}  // namespace
}  // namespace posenc::test::cache_selective
