// SPDX-License-Identifier: Apache-2.0
// Caches at their limits: every size of a page and type of a key, no tokens or queries, numbers that are none in slots
// without a token.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "core/convert.h"
#include "core/element.h"
#include "posenc/cache/snapshot.h"
#include "posenc/scaling/longrope.h"
#include "support/refusal.h"

namespace posenc::test::cache_limits {
namespace {

constexpr KeyKeeping kKeepings[] = {KeyKeeping::anchored, KeyKeeping::unrotated};

// One query of ones in float, as attend_ones in double.
std::vector<double> attend_floats(const KeyCache& cache, Index position) {
  const std::vector<float> q(2 * 32, 1);
  std::vector<float> out(2 * 32);
  const Index order[] = {cache.next_order()}, at[] = {position};
  AttentionArgs a;
  a.q = heads(q.data(), 1, 2, 32), a.scale = 0.2, a.mask.causal = true;
  a.mask.query_order = tensor(order, {1, 1}), a.query_positions = positions(std::span(at));
  cache.attend(a, {heads(out.data(), 1, 2, 32), {}});
  return {out.begin(), out.end()};
}

TEST(CacheLimits, PagesOfEverySize) {
  for (const KeyKeeping keeping : kKeepings) {
    KeyCache small(PagePool(cache_sizes(40)), cache_rope(), keeping);
    append_random(small, 0, 600);
    for (const Index size : {17, 100, 128, 129, 255, 256}) {
      PoolSizes s = cache_sizes(40);
      s.page_size = size;
      KeyCache cache(PagePool(s), cache_rope(), keeping);
      append_random(cache, 0, 600);
      EXPECT_EQ(cache.pages(), (600 + size - 1) / size);
      EXPECT_LT(largest_difference(attend_ones(cache, 600), attend_ones(small, 600)), 1e-12);
      EXPECT_LT(largest_difference(attend_floats(cache, 600), attend_ones(small, 600)), 5e-6);
      cache.evict(300, 310), cache.compact();
      EXPECT_EQ(cache.pages(), (590 + size - 1) / size);
    }
  }
}

// Long factors hold from a length on that the cache does not have yet: the program knows how long the text will be.
TEST(CacheLimits, ShortCachesOfALongScaling) {
  LongRope scaling;
  scaling.short_factor.assign(16, 1), scaling.long_factor.assign(16, 1.5);
  scaling.original_context = 4096, scaling.switch_rule = LongRopeSwitch::per_call;
  scaling.factor = 8;
  const Rope rope{.head_dim = 32, .base = 10000, .pairing = Pairing::half_split};
  const RotarySpec spec = resolve(rope, scaling, {.length = 8000});
  ASSERT_EQ(spec.valid_from(), 4097);
  for (const KeyType type : {KeyType::f32, KeyType::f64}) {
    PoolSizes sizes = cache_sizes();
    sizes.key_type = type;
    const double rounding = type == KeyType::f64 ? 1e-12 : 5e-6;
    KeyCache anchored(PagePool(sizes), spec);
    KeyCache unrotated(PagePool(sizes), spec, KeyKeeping::unrotated);
    for (KeyCache* c : {&anchored, &unrotated}) append_random(*c, 0, 5);
    EXPECT_LT(largest_difference(attend_floats(unrotated, 5), attend_floats(anchored, 5)), 5e-6);
    EXPECT_LT(largest_difference(attend_ones(unrotated, 5), attend_ones(anchored, 5)), rounding);
    std::vector<double> a(5 * 2 * 32), b = a;
    anchored.read_keys(heads(a.data(), 5, 2, 32)), unrotated.read_keys(heads(b.data(), 5, 2, 32));
    EXPECT_LT(largest_difference(a, b), rounding);
    EXPECT_EQ(anchored.rescale(cache_rope(), {.keys = OtherRotation::move}), MoveVerdict::moved);
    EXPECT_EQ(anchored.rescale(spec, {.keys = OtherRotation::move}), MoveVerdict::moved);
    EXPECT_LT(largest_difference(attend_ones(unrotated, 5), attend_ones(anchored, 5)), rounding);
  }
}

TEST(CacheLimits, NoTokensAndNoQueries) {
  for (const KeyKeeping keeping : kKeepings) {
    const PagePool pool(cache_sizes());
    KeyCache cache(pool, cache_rope(), keeping);
    append_random(cache, 0, 0);
    EXPECT_EQ(attend_ones(cache, 3), std::vector<double>(64));
    EXPECT_EQ(attend_floats(cache, 3), std::vector<double>(64));
    cache.evict(0, 0), cache.shift(0, 0, 3), cache.compact(), cache.rewind(0);
    EXPECT_EQ(cache.keep(0, 0), 0);
    EXPECT_EQ(cache.rescale(cache_rope()), MoveVerdict::kept);
    cache.read_keys(heads(static_cast<float*>(nullptr), 0, 2, 32));
    const KeyCache back = parse_key_cache(key_cache_bytes(cache), "file", pool, cache_rope());
    EXPECT_EQ(back.size(), 0);
    append_random(cache, 0, 20);
    for (const bool causal : {false, true}) {
      AttentionArgs a;
      a.q = heads(static_cast<const float*>(nullptr), 0, 2, 32), a.scale = 1;
      a.mask.causal = causal;
      cache.attend(a, {heads(static_cast<float*>(nullptr), 0, 2, 32), {}});
      cache.shift(5, 20, 1);
      cache.attend(a, {heads(static_cast<float*>(nullptr), 0, 2, 32), {}});
    }
    cache.keep(0, 0);
    EXPECT_EQ(cache.size(), 0);
    EXPECT_EQ(pool.free_pages(), 8);
  }
}

TEST(CacheLimits, QueriesWithoutMemory) {
  for (const KeyKeeping keeping : kKeepings) {
    KeyCache cache(PagePool(cache_sizes()), cache_rope(), keeping);
    append_random(cache, 0, 20);
    std::vector<float> out(64);
    AttentionArgs a;
    a.q = heads(std::as_const(out).data(), 1, 2, 32), a.q.data = nullptr, a.scale = 1;
    EXPECT_THAT(refusal([&] {
                  cache.attend(a, {heads(out.data(), 1, 2, 32), {}});
                }),
                ::testing::HasSubstr("q must have memory"));
  }
}

// Slots of evicted tokens, slots that a copied page never had, and memory of the caller that was never written.
TEST(CacheLimits, SlotsWithoutATokenMayHoldAnything) {
  for (const KeyType type : {KeyType::f32, KeyType::bf16})
    for (const KeyKeeping keeping : kKeepings) {
      PoolSizes s = cache_sizes();
      s.key_type = s.value_type = type;
      const Index size = type == KeyType::f32 ? 4 : 2;
      std::vector<std::byte> k(static_cast<std::size_t>(8 * 16 * 2 * 32 * size), std::byte{0xff});
      std::vector<std::byte> v = k;
      const auto view = [&](std::vector<std::byte>& x) {
        return heads(tensor(static_cast<void*>(x.data()), static_cast<DType>(type), {8, 16, 2, 32}),
                     HeadsLayout::bthd);
      };
      const PagePool dirty(s, view(k), view(v)), clean(s);
      KeyCache cache(dirty, cache_rope(), keeping), want(clean, cache_rope(), keeping);
      RandomTokens bad(s, 10, 5);
      std::fill(bad.k.begin(), bad.k.end(), NAN), std::fill(bad.v.begin(), bad.v.end(), HUGE_VALF);
      cache.append(bad.at(arange(0, 10))), append_random(want, 0, 10);
      for (KeyCache* c : {&cache, &want}) append_random(*c, 10, 15, 7), c->evict(0, 10);
      for (KeyCache* c : {&cache, &want}) {
        KeyCache fork = c->fork();  // the next append copies a page from slot 4 on
        c->evict(16, 20), append_random(*c, 25, 3, 8);
      }
      const auto same = [&] {
        EXPECT_EQ(attend_ones(cache, 30), attend_ones(want, 30));
        EXPECT_EQ(attend_floats(cache, 30), attend_floats(want, 30));
      };
      same();
      KeyCache fork = cache.fork();
      for (KeyCache* c : {&cache, &want}) c->evict(20, 22), c->shift(22, 28, -2);
      same();
      const RotarySpec faster =
          resolve(Rope{.head_dim = 32, .base = 500, .pairing = Pairing::half_split});
      for (KeyCache* c : {&cache, &want}) c->rescale(faster, {.keys = OtherRotation::move});
      same();
      for (KeyCache* c : {&cache, &want}) c->compact();
      same();
    }
}

// Strided keys of every type, in pools of every type.
TEST(CacheLimits, KeysOfEveryType) {
  constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
  const std::vector<double> x = Random(3).normals(20 * 2 * 32);
  for (const DType type : kTypes)
    for (const KeyType stored :
         {KeyType::f64, KeyType::f32, KeyType::f16, KeyType::bf16, KeyType::q8_0})
      for (const KeyKeeping keeping : kKeepings)
        for (const Index step : {1, 3}) {
          PoolSizes s = cache_sizes();
          s.key_type = s.value_type = stored;
          KeyCache cache(PagePool(s), cache_rope(), keeping);
          std::vector<std::byte> memory(x.size() * 8 * static_cast<std::size_t>(step));
          std::vector<double> want(x.size());
          for (std::size_t i = 0; i < x.size(); ++i) {
            const Index at = static_cast<Index>(i) * step;
            detail::put_element(memory.data(), type, at, x[i]);
            want[i] = detail::float_element(memory.data(), type, at);
          }
          NewTokens t;
          t.k = heads(tensor(static_cast<const void*>(memory.data()), type, {20, 2, 32}),
                      HeadsLayout::thd);
          t.k.dim_stride *= step, t.k.head_stride *= step, t.k.token_stride *= step;
          t.v = t.k;
          const OwnedPositions at = arange(3, 20);
          t.positions = at;
          cache.append(t);
          std::vector<double> got(x.size());
          cache.read_keys(heads(got.data(), 20, 2, 32));
          RotaryPlan(cache_rope(), DType::f64).apply(QK{{}, heads(want.data(), 20, 2, 32)}, at);
          const double bound = stored == KeyType::f64    ? type == DType::f64 ? 1e-14 : 1e-6
                               : stored == KeyType::f32  ? 1e-6
                               : stored == KeyType::f16  ? 3e-3
                               : stored == KeyType::bf16 ? 2e-2
                                                         : 3e-2;
          EXPECT_LT(largest_difference(got, want), bound)
              << dtype_name(type) << " " << enum_text(stored) << " " << enum_text(keeping);
          std::vector<float> narrow(x.size());
          cache.read_keys(heads(narrow.data(), 20, 2, 32));
          EXPECT_LT(largest_difference({narrow.begin(), narrow.end()}, got), 2e-6);
        }
}

// Rotations that imitate another program: keys at the positions of their tokens, in every type.
TEST(CacheLimits, OtherPrecisions) {
  for (const Precision precision : {Precision::hf_float32, Precision::ggml})
    for (const KeyKeeping keeping : kKeepings) {
      Rope rope{.head_dim = 32, .base = 10000, .pairing = Pairing::half_split};
      RotarySpec spec = resolve(rope);
      spec.precision = precision;
      KeyCache cache(PagePool(cache_sizes()), spec, keeping),
          exact(PagePool(cache_sizes()), cache_rope());
      append_random(cache, 0, 40), append_random(exact, 0, 40);
      EXPECT_LT(largest_difference(attend_floats(cache, 41), attend_floats(exact, 41)), 1e-4);
      std::vector<float> a(40 * 2 * 32), b = a;
      cache.read_keys(heads(a.data(), 40, 2, 32)), exact.read_keys(heads(b.data(), 40, 2, 32));
      EXPECT_LT(largest_difference({a.begin(), a.end()}, {b.begin(), b.end()}), 1e-4);
    }
}

// Terms by distance read a table, which holds the distances of tokens and none of free slots.
TEST(CacheLimits, TablesOfDistancesBesideFreeSlots) {
  PoolSizes s = cache_sizes();
  RotarySpec none;
  none.head_dim = 32;
  const std::vector<double> table = Random(8).normals(8 * 2);
  const NamedArray parameters[] = {{"table", tensor(table.data(), {8, 2})}};
  for (const bool causal : {true, false})
    for (const RotarySpec& rotary : {none, cache_rope()}) {
      KeyCache cache(PagePool(s), rotary,
                     rotary.blocks.empty() ? KeyKeeping::anchored : KeyKeeping::unrotated);
      const RandomTokens t(s, 20, 3);
      const OwnedPositions at = arange(0, 20), query = arange(15, 5);
      cache.append(t.at(at));
      const AttentionPlan plan(std::string("t5 num_buckets=8 max_distance=12 bidirectional=") +
                                   (causal ? "false" : "true"),
                               {.heads = 2, .head_dim = 32, .scale = 0.2});
      const LoweredAttention lowered = plan.lower(parameters, distance_ranges(query, at));
      const std::vector<double> q = Random(9).normals(5 * 2 * 32);
      const std::vector<float> narrow(q.begin(), q.end());
      std::vector<double> out(q.size()), want(q.size());
      std::vector<float> floats(q.size());
      AttentionArgs a;
      a.q = heads(q.data(), 5, 2, 32), a.mask.causal = causal;
      cache.attend(lowered, a, {}, {heads(out.data(), 5, 2, 32), {}});
      AttentionArgs f = a;
      f.q = heads(narrow.data(), 5, 2, 32);
      cache.attend(lowered, f, {}, {heads(floats.data(), 5, 2, 32), {}});
      EXPECT_LT(largest_difference({floats.begin(), floats.end()}, out), 5e-6);
      std::vector<double> k(t.k.begin(), t.k.end()), v(t.v.begin(), t.v.end()), y = q;
      if (!rotary.blocks.empty()) {
        RotaryPlan(rotary, DType::f64).apply(QK{{}, heads(k.data(), 20, 2, 32)}, at);
        RotaryPlan(rotary, DType::f64).apply(QK{heads(y.data(), 5, 2, 32), {}}, query);
      }
      a.q = heads(std::as_const(y).data(), 5, 2, 32);
      a.k = heads(std::as_const(k).data(), 20, 2, 32),
      a.v = heads(std::as_const(v).data(), 20, 2, 32);
      a.mask.query_offset = 15, a.query_positions = query, a.key_positions = at;
      lowered.forward(a, {}, {heads(want.data(), 5, 2, 32), {}});
      EXPECT_LT(largest_difference(out, want), 1e-12);
    }
}

TEST(CacheLimits, CancelledCalls) {
  const auto stop = [](void*) { return true; };
  Executor e = inline_executor();
  e.cancelled = stop;
  for (const KeyKeeping keeping : kKeepings) {
    KeyCache cache(PagePool(cache_sizes(40)), cache_rope(), keeping);
    append_random(cache, 0, 600);
    const std::vector<float> q(2 * 32, 1);
    std::vector<float> out(2 * 32);
    AttentionArgs a;
    a.q = heads(q.data(), 1, 2, 32), a.scale = 1;
    EXPECT_THROW(cache.attend(a, {heads(out.data(), 1, 2, 32), {}}, e), Cancelled);
    cache.shift(20, 600, -1);
    EXPECT_THROW(cache.attend(a, {heads(out.data(), 1, 2, 32), {}}, e), Cancelled);
    append_random(cache, 600, 20);
  }
}

}  // namespace
}  // namespace posenc::test::cache_limits
