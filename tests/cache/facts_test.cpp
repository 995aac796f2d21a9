// SPDX-License-Identifier: Apache-2.0
// Caches beside dense attention over rotated keys: every kind of key, and what operations do to pages.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "core/convert.h"
#include "posenc/rotary/mrope.h"
#include "posenc/rotary/xpos.h"
#include "support/refusal.h"

namespace posenc::cache_facts {
namespace {

using test::append_random;
using test::attend_ones;
using test::cache_rope;
using test::cache_sizes;
using test::largest_difference;
using ::testing::HasSubstr;

// Causal attention of the last queries over tokens in double, keys and queries rotated by a plan.
std::vector<double> dense(const test::RandomTokens& t, const std::vector<double>& q, Index queries,
                          Index H, const RotarySpec& rotary, const Positions& at, double scale) {
  const PoolSizes& s = t.sizes;
  std::vector<double> k(t.k.begin(), t.k.end()), v(t.v.begin(), t.v.end()), y = q;
  const RotaryPlan plan(rotary, DType::f64);
  plan.apply(QK{{}, heads(k.data(), t.count, s.heads, s.head_dim)}, at);
  Positions last = at;
  last.data = static_cast<const Index*>(at.data) + (t.count - queries) * at.token_stride;
  last.count = queries;
  plan.apply(QK{heads(y.data(), queries, H, s.head_dim), {}}, last);
  std::vector<double> out(static_cast<std::size_t>(queries * H * s.value_dim));
  AttentionArgs a;
  a.q = heads(y.data(), queries, H, s.head_dim);
  a.k = heads(k.data(), t.count, s.heads, s.head_dim);
  a.v = s.values_in_keys ? a.k : heads(v.data(), t.count, s.heads, s.value_dim);
  if (s.values_in_keys) a.v.dim = s.value_dim;
  a.scale = scale, a.mask.causal = true, a.mask.query_offset = t.count - queries;
  attend(a, {heads(out.data(), queries, H, s.value_dim), {}});
  return out;
}

template <class T>
std::vector<double> cached(const KeyCache& cache, const std::vector<T>& q, Index queries, Index H,
                           double scale, AttentionArgs a = {}) {
  const PoolSizes& s = cache.pool().sizes();
  std::vector<T> out(static_cast<std::size_t>(queries * H * s.value_dim));
  a.q = heads(q.data(), queries, H, s.head_dim), a.scale = scale, a.mask.causal = true;
  cache.attend(a, {heads(out.data(), queries, H, s.value_dim), {}});
  return {out.begin(), out.end()};
}

TEST(CacheFacts, QueriesAreTheLastTokensByDefault) {
  const PoolSizes s = cache_sizes();
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    KeyCache cache(PagePool(s), cache_rope(), keeping);
    const test::RandomTokens t(s, 40, 3);
    const OwnedPositions at = arange(-7, 40);
    cache.append(t.at(at));
    const std::vector<double> q = test::Random(4).normals(5 * 4 * 32);
    const std::vector<double> want = dense(t, q, 5, 4, cache_rope(), at, 0.2);
    EXPECT_LT(largest_difference(cached(cache, q, 5, 4, 0.2), want), 3e-7);  // keys are f32
    const std::vector<float> narrow(q.begin(), q.end());
    EXPECT_LT(largest_difference(cached(cache, narrow, 5, 4, 0.2), want), 3e-6);
  }
}

TEST(CacheFacts, QueriesInSixteenBits) {
  const PoolSizes s = cache_sizes();
  KeyCache cache(PagePool(s), cache_rope());
  append_random(cache, 0, 30);
  cache.shift(9, 30, -4);
  std::vector<std::uint16_t> q(2 * 32, 0x3f80), out(2 * 32);
  const Index order[] = {30}, at[] = {26};
  AttentionArgs a;
  a.q =
      heads(tensor(static_cast<const void*>(q.data()), DType::bf16, {1, 2, 32}), HeadsLayout::thd);
  a.mask.query_order = tensor(order, {1, 1}), a.query_positions = positions(std::span(at));
  a.scale = 0.2, a.mask.causal = true;
  cache.attend(
      a, {heads(tensor(static_cast<void*>(out.data()), DType::bf16, {1, 2, 32}), HeadsLayout::thd),
          {}});
  const std::vector<double> want = attend_ones(cache, 26);
  for (std::size_t i = 0; i < out.size(); ++i)
    EXPECT_NEAR(f32_from_bf16(out[i]), want[i], 0.004 * std::fabs(want[i]) + 1e-6);
}

// Queries in float have a fast engine, for unrotated keys a chunk of pages at a time; those in double an exact one.
TEST(CacheFacts, LongCachesInFloatAsInDouble) {
  std::vector<double> slopes{-0.02, -0.02, -0.005, -0.005};
  LinearTerm term;
  term.table = tensor(std::as_const(slopes).data(), {1, 2, 1, 2});
  const Term terms[] = {term};
  const double sink[] = {0.5, -0.5};
  for (const KeyType type : {KeyType::f32, KeyType::f16, KeyType::bf16, KeyType::q8_0})
    for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated})
      for (int kind = 0; kind < 5; ++kind) {
        PoolSizes s = cache_sizes(120);
        s.key_type = s.value_type = type;
        const PagePool pool(s);
        KeyCache cache(pool, cache_rope(), keeping), other(pool, cache_rope(), keeping);
        for (Index part = 0; part < 8; ++part) {  // pages in turns
          append_random(cache, 90 * part, 90, static_cast<std::uint64_t>(part));
          append_random(other, 0, 20);
        }
        cache.evict(100, 111), cache.shift(300, 720, -11);
        AttentionArgs a;
        if (kind == 1) a.terms = terms;
        if (kind == 2) a.mask.window_left = 300, a.mask.sink_tokens = 4;
        if (kind == 3) a.sink = tensor(sink, {2});
        const Index queries = kind == 4 ? 40 : 3;
        const std::vector<double> q =
            test::Random(4).normals(static_cast<std::size_t>(queries * 2 * 32));
        const std::vector<float> narrow(q.begin(), q.end());
        const std::vector<double> wide(narrow.begin(), narrow.end());
        EXPECT_LT(largest_difference(cached(cache, narrow, queries, 2, 0.2, a),
                                     cached(cache, wide, queries, 2, 0.2, a)),
                  5e-6)
            << enum_text(type) << " " << enum_text(keeping) << " " << kind;
      }
}

// StreamingLLM: the window moves back at each step, and the keys stay where they were rotated.
TEST(CacheFacts, AStreamHasTwoRuns) {
  const PoolSizes s = cache_sizes(6);
  KeyCache cache(PagePool(s), cache_rope());
  for (Index step = 0; step < 400; ++step) {
    if (cache.keep(4, 40) > 0) cache.shift(4, cache.next_order(), -1);
    append_random(cache, std::min<Index>(step, 44), 1, static_cast<std::uint64_t>(step));
    if (cache.pool().free_pages() == 0) cache.compact();
    ASSERT_LE(cache.runs(), 2);
  }
  EXPECT_EQ(cache.moves(), 0);
  // The same tokens at their slots, appended anew.
  KeyCache fresh(PagePool(s), cache_rope());
  const std::vector<Index> orders = cache.orders();
  for (Index slot = 0; slot < cache.size(); ++slot)
    append_random(fresh, slot, 1,
                  static_cast<std::uint64_t>(orders[static_cast<std::size_t>(slot)]));
  EXPECT_LT(largest_difference(attend_ones(cache, 45), attend_ones(fresh, 45)), 3e-7);
}

TEST(CacheFacts, PositionsUpToTheLimit) {
  const PoolSizes s = cache_sizes();
  const Index far = (Index{1} << 37) - 40;
  KeyCache near(PagePool(s), cache_rope()), away(PagePool(s), cache_rope());
  append_random(near, 0, 20), append_random(away, far, 20);
  EXPECT_LT(largest_difference(attend_ones(near, 21), attend_ones(away, far + 21)), 2e-6);
  away.shift(0, 20, -far);
  EXPECT_LT(largest_difference(attend_ones(near, 21), attend_ones(away, 21)), 2e-6);
}

TEST(CacheFacts, DecaysOfXPos) {
  Xpos decaying;
  decaying.head_dim = 32, decaying.pairing = Pairing::half_split, decaying.center = 0;
  const RotarySpec xpos = resolve(decaying);
  const PoolSizes s = cache_sizes();
  KeyCache moved(PagePool(s), xpos), fresh(PagePool(s), xpos);
  append_random(moved, 100, 20), append_random(fresh, 3, 20);
  moved.shift(0, 20, -97);
  EXPECT_LT(largest_difference(attend_ones(moved, 24), attend_ones(fresh, 24)), 1e-6);
  std::vector<double> a(20 * 2 * 32), b = a;
  moved.read_keys(heads(a.data(), 20, 2, 32)), fresh.read_keys(heads(b.data(), 20, 2, 32));
  EXPECT_LT(largest_difference(a, b), 1e-5);
}

// M-RoPE: a text position moves all axes, an image may move rows and columns alone.
TEST(CacheFacts, DeltasByAxis) {
  Mrope sections;
  sections.head_dim = 32, sections.pairing = Pairing::half_split;
  sections.sections = {4, 6, 6}, sections.layout = MropeLayout::chunked;
  const RotarySpec mrope = resolve(sections);
  PoolSizes s = cache_sizes();
  s.axes = 3;
  const std::vector<Index> first{0, 1, 2, 3, 3, 3, 0, 1, 2, 3, 3, 4, 0, 1, 2, 3, 4, 3};
  std::vector<Index> second = first;
  const Index delta[] = {-2, 5, 1};
  for (std::size_t i = 0; i < second.size(); ++i) second[i] += delta[i / 6];
  const auto view = [](const std::vector<Index>& p) {
    return positions(tensor(p.data(), {3, 1, 6}));
  };
  const test::RandomTokens t(s, 6, 9);
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    KeyCache moved(PagePool(s), mrope, keeping), fresh(PagePool(s), mrope, keeping);
    moved.append(t.at(view(first))), fresh.append(t.at(view(second)));
    moved.shift(0, 6, delta);
    EXPECT_EQ(std::get<0>(moved.positions().value), second);
    EXPECT_LT(largest_difference(attend_ones(moved, 9), attend_ones(fresh, 9)), 1e-6);
  }
}

// MLA: [latent | rotated], the value is the latent part.
TEST(CacheFacts, ValuesInKeys) {
  RotarySpec rotary = cache_rope(16);
  rotary.head_dim = 48, rotary.blocks[0].offset = 32;
  const PoolSizes s{
      .pages = 4, .heads = 1, .head_dim = 48, .value_dim = 32, .values_in_keys = true};
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    KeyCache cache(PagePool(s), rotary, keeping);
    const test::RandomTokens t(s, 20, 3);
    const OwnedPositions at = arange(5, 20);
    cache.append(t.at(at));
    const std::vector<double> q = test::Random(4).normals(2 * 4 * 48);
    EXPECT_LT(largest_difference(cached(cache, q, 2, 4, 0.2), dense(t, q, 2, 4, rotary, at, 0.2)),
              3e-7);
  }
  rotary.blocks[0].offset = 31;
  EXPECT_THAT(test::refusal([&] { KeyCache(PagePool(s), rotary); }),
              HasSubstr("values_in_keys needs values that do not rotate"));
}

TEST(CacheFacts, KeysOnly) {
  PoolSizes s = cache_sizes();
  s.value_dim = 0, s.key_type = KeyType::bf16;
  KeyCache cache(PagePool(s), cache_rope());
  const test::RandomTokens t(s, 20, 3);
  cache.append(t.at(arange(0, 20)));
  cache.shift(0, 20, 7);
  std::vector<double> got(t.k.size()), want(t.k.begin(), t.k.end());
  cache.read_keys(heads(got.data(), 20, 2, 32));
  RotaryPlan(cache_rope(), DType::f64).apply(QK{{}, heads(want.data(), 20, 2, 32)}, arange(7, 20));
  EXPECT_LT(largest_difference(got, want), 0.02);
  EXPECT_THAT(test::refusal([&] { attend_ones(cache, 9); }), HasSubstr("the pool has keys only"));
}

// K and V of a token side by side, as engines store them.
TEST(CacheFacts, PackedMemoryOfTheCaller) {
  const PoolSizes s = cache_sizes(3);
  std::vector<float> memory(3 * 16 * 4 * 32, NAN);
  const Heads all = heads(tensor(memory.data(), {3, 16, 4, 32}), HeadsLayout::bthd);
  KeyCache cache(PagePool(s, slice_heads(all, 0, 2), slice_heads(all, 2, 2)), cache_rope());
  KeyCache own(PagePool(s), cache_rope());
  for (KeyCache* c : {&cache, &own}) {
    append_random(*c, 0, 37), c->evict(4, 9), c->compact(), c->shift(20, 37, -5);
  }
  EXPECT_EQ(attend_ones(cache, 40), attend_ones(own, 40));
}

TEST(CacheFacts, ForksShareUntilOneWrites) {
  const PagePool pool(cache_sizes());
  KeyCache a(pool, cache_rope());
  append_random(a, 0, 20);
  KeyCache b = a.fork();
  EXPECT_EQ(pool.free_pages(), 6);
  EXPECT_EQ(pool.references(0), 2);
  append_random(b, 20, 1);  // the second page is copied
  EXPECT_EQ(pool.free_pages(), 5);
  b.shift(0, 21, -3), b.evict(0, 5);
  EXPECT_EQ(pool.references(0), 2);
  KeyCache fresh(pool, cache_rope());
  append_random(fresh, 0, 20);
  EXPECT_EQ(attend_ones(a, 20), attend_ones(fresh, 20));
  b.rewind(3), fresh.clear();
  EXPECT_EQ(b.size(), 0);
  EXPECT_EQ(pool.free_pages(), 6);
  EXPECT_EQ(pool.references(0), 1);
}

TEST(CacheFacts, SchemesOfAPlan) {
  PoolSizes s = cache_sizes();
  s.arrays = {{"key_modality", DType::i64}};
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    KeyCache cache(PagePool(s), cache_rope(), keeping);
    const std::vector<Index> modality(30, 0);
    test::RandomTokens t(s, 30, 3);
    const NamedArray arrays[] = {{"key_modality", tensor(modality.data(), {30})}};
    const OwnedPositions at = arange(0, 30);
    NewTokens n = t.at(at);
    n.arrays = arrays;
    cache.append(n);
    cache.evict(6, 9), cache.shift(9, 30, -3);
    const AttentionPlan plan("alibi", {.heads = 2, .head_dim = 32, .scale = 0.2});
    const OwnedPositions query = arange(27, 1);
    const LoweredAttention lowered = plan.lower({}, distance_ranges(query, cache.positions()));
    const std::vector<double> q(2 * 32, 1);
    std::vector<double> out(2 * 32), slopes;
    const Index order[] = {30};
    AttentionArgs a;
    a.q = heads(q.data(), 1, 2, 32), a.mask.causal = true;
    a.mask.query_order = tensor(order, {1, 1}), a.query_positions = query;
    cache.attend(lowered, a, {}, {heads(out.data(), 1, 2, 32), {}});
    for (const double slope : {1.0 / 16, 1.0 / 256}) slopes.insert(slopes.end(), 2, -slope);
    LinearTerm term;
    term.table = tensor(std::as_const(slopes).data(), {1, 2, 1, 2});
    const Term terms[] = {term};
    AttentionArgs with;
    with.terms = terms;
    EXPECT_LT(largest_difference(out, attend_ones(cache, 27, 2, with)), 1e-12);

    const AttentionPlan rotary("rope head_dim=32 pairing=half_split", {.heads = 2, .head_dim = 32});
    EXPECT_THAT(test::refusal([&] {
                  cache.attend(rotary.lower({}), a, {}, {heads(out.data(), 1, 2, 32), {}});
                }),
                HasSubstr("must not be rotary"));
    const AttentionPlan gates("forgetting", {.heads = 2, .head_dim = 32});
    EXPECT_THAT(test::refusal([&] {
                  cache.attend(gates.lower({}), a, {}, {heads(out.data(), 1, 2, 32), {}});
                }),
                HasSubstr("forgetting sums over the keys in between"));
  }
}

}  // namespace
}  // namespace posenc::cache_facts
