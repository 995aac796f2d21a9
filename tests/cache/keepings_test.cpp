// SPDX-License-Identifier: Apache-2.0
// append(other) between the keepings: unrotated keys into an anchored cache are what append would store if it were given
// the stored numbers, bit for bit; anchored keys are turned back. Both within their bound in double.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "cache_model.h"
#include "posenc/rotary/mrope.h"
#include "posenc/rotary/xpos.h"
#include "posenc/scaling/yarn.h"
#include "support/refusal.h"

namespace posenc::test::cache_keepings {
namespace {

using ::testing::HasSubstr;
constexpr KeyType kTypes[] = {KeyType::f64, KeyType::f32, KeyType::f16, KeyType::bf16,
                              KeyType::q8_0};
constexpr RescaleOptions kMove{.keys = OtherRotation::move};

PoolSizes typed_sizes(KeyType type, Index pages = 20, Index page_size = 16) {
  PoolSizes s = cache_sizes(pages);
  s.page_size = page_size, s.key_type = s.value_type = type;
  return s;
}
RotarySpec yarn_rope() {
  Yarn scaling;
  scaling.factor = 4, scaling.original_context = 256;
  return resolve(Rope{.head_dim = 32, .base = 100, .pairing = Pairing::interleaved}, scaling);
}
RotarySpec reordered() {
  RotarySpec s = yarn_rope();
  s.blocks[0].output_order = OutputOrder::even_then_odd;
  return s;
}
RotarySpec with_precision(Precision p) {
  RotarySpec s = cache_rope();
  s.precision = p;
  return s;
}
// [tokens, heads][head_dim]
std::vector<Doubles> stored_keys(const KeyCache& cache) {
  const PoolSizes& s = cache.pool().sizes();
  std::vector<Doubles> all;
  for (const StoredToken& t : stored_tokens(cache))
    for (Index h = 0; h < s.heads; ++h)
      all.push_back(stored_head(cache.pool().keys(), s.key_type, s.head_dim, t.page, t.slot, h));
  return all;
}
// Tokens with gaps and three shifts, from which pages of several uses come.
void append_story(KeyCache& cache, std::uint64_t seed = 2) {
  append_random(cache, 7, 60, seed);
  cache.evict(30, 36), cache.evict(0, 2);
  cache.shift(40, 60, -6), cache.shift(50, 60, 3);
}
// The numbers that a cache stores, as tokens at its positions + by.
void append_stored(KeyCache& to, const KeyCache& from, Index by) {
  const PoolSizes& s = from.pool().sizes();
  std::vector<double> k;
  for (const Doubles& head : stored_keys(from)) k.insert(k.end(), head.begin(), head.end());
  std::vector<Index> at = std::get<0>(from.positions().value);
  for (Index& p : at) p += by;
  const Index n = from.size();
  const std::vector<double> v(k.size());
  std::vector<float> narrow(k.begin(), k.end());
  std::vector<std::uint16_t> bits;
  for (const double x : k) bits.push_back(s.key_type == KeyType::f16 ? f16_from(x) : bf16_from(x));
  NewTokens t{.k = heads(std::as_const(narrow).data(), n, s.heads, s.head_dim),
              .v = heads(v.data(), n, s.heads, s.value_dim),
              .positions = positions(std::span<const Index>(at))};
  const Index shape[] = {1, n, s.heads, s.head_dim};
  if (s.key_type == KeyType::f64) t.k = heads(std::as_const(k).data(), n, s.heads, s.head_dim);
  if (s.key_type == KeyType::f16 || s.key_type == KeyType::bf16)
    t.k =
        heads(tensor(static_cast<const void*>(bits.data()), static_cast<DType>(s.key_type), shape),
              HeadsLayout::bthd);
  to.append(t);
}

TEST(CacheKeepings, RotatedOnceAsAppendRotates) {
  const RotarySpec specs[] = {cache_rope(), yarn_rope(), reordered(),
                              with_precision(Precision::hf_float32),
                              with_precision(Precision::ggml)};
  for (const KeyType type : kTypes)
    for (const RotarySpec& spec : specs)
      for (const Index page_size : {16, 37}) {
        const PagePool pool(typed_sizes(type)), other(typed_sizes(type, 8, page_size));
        KeyCache cache(pool, spec), want(pool, spec);
        // Of another rotation, which unrotated keys do not have.
        KeyCache chunk(page_size == 16 ? pool : other, cache_rope(), KeyKeeping::unrotated);
        append_story(chunk);
        const std::vector<Doubles> was = stored_keys(chunk);
        for (KeyCache* c : {&cache, &want}) {
          append_random(*c, 0, 21);
          if (spec.precision == Precision::exact) c->shift(0, 21, 100);
        }
        EXPECT_EQ(cache.append(chunk, 93, kMove), MoveVerdict::moved);
        append_stored(want, chunk, 93);
        EXPECT_EQ(stored_keys(cache), stored_keys(want)) << enum_text(type);
        EXPECT_EQ(cache.positions().value, want.positions().value);
        EXPECT_EQ(cache.runs(), 1) << "the run of the last token goes on";
        EXPECT_EQ(cache.moves(), 1);
        EXPECT_EQ(cache.orders()[21], 23);
        EXPECT_EQ(cache.next_order(), 81);
        EXPECT_EQ(stored_keys(chunk), was);
        cache.clear(), want.clear(), chunk.clear();
        EXPECT_EQ(pool.free_pages(), 20);
        EXPECT_EQ(other.free_pages(), 8);
      }
}

// What the tokens were before any rounding, beside what is stored after one move, over the bound. In place: `from`
// rotated these pairs.
double worst_unrotated(const KeyCache& cache, const RandomTokens& tokens, RotarySpec from) {
  const PoolSizes& s = cache.pool().sizes();
  for (RotaryBlock& b : from.blocks) b.output_order = OutputOrder::in_place;
  const double bound = RerotationPlan(cache_rope(), cache_rope(), s.key_type).bound(2);
  double worst = 0;
  const std::vector<Doubles> got = stored_keys(cache);
  const std::vector<Index> orders = cache.orders();
  for (std::size_t n = 0; n < got.size(); ++n) {
    const auto head = static_cast<Index>(n) % s.heads;
    const Index token = orders[n / static_cast<std::size_t>(s.heads)];
    const auto first = tokens.k.begin() + (token * s.heads + head) * s.head_dim;
    worst = std::max(
        worst, worst_pair(from, s.key_type, Doubles(first, first + s.head_dim), got[n]) / bound);
  }
  return worst;
}

TEST(CacheKeepings, TurnedBackWithinTheBound) {
  for (const KeyType type : kTypes)
    for (const RotarySpec& spec : {cache_rope(), yarn_rope(), reordered()}) {
      const PagePool pool(typed_sizes(type));
      KeyCache chunk(pool, spec), cache(pool, cache_rope(), KeyKeeping::unrotated);
      append_story(chunk);
      const std::vector<Doubles> was = stored_keys(chunk);
      EXPECT_THAT(refusal([&] { cache.append(chunk, 93); }),
                  HasSubstr("keeping of the other cache must be that of this one, unrotated, "
                            "unless keys may be moved (RescaleOptions::keys), got \"anchored\""));
      EXPECT_EQ(cache.append(chunk, 93, kMove), MoveVerdict::moved);
      EXPECT_EQ(cache.moves(), 1);
      EXPECT_LT(worst_unrotated(cache, RandomTokens(pool.sizes(), 60, 2), spec), 1)
          << enum_text(type);
      EXPECT_EQ(stored_keys(chunk), was);
      std::vector<Index> at = std::get<0>(chunk.positions().value);
      for (Index& p : at) p += 93;
      EXPECT_EQ(std::get<0>(cache.positions().value), at);
      EXPECT_EQ(cache.orders(), chunk.orders());
      // And where they came from: two more roundings.
      KeyCache again(pool, spec);
      EXPECT_EQ(again.append(cache, -93, kMove), MoveVerdict::moved);
      EXPECT_EQ(again.moves(), 2);
      const double bound = RerotationPlan(spec, spec, type).bound(3);
      EXPECT_LT(largest_difference(attend_ones(again, 90), attend_ones(chunk, 90)), 20 * bound);
    }
}

TEST(CacheKeepings, KeptWhereNothingRotates) {
  RotarySpec still;
  still.head_dim = 32;
  const PagePool pool(typed_sizes(KeyType::f16));
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    const KeyKeeping other =
        keeping == KeyKeeping::anchored ? KeyKeeping::unrotated : KeyKeeping::anchored;
    // Unrotated keys follow the rotation of the cache, also none; those of an anchored cache must not rotate.
    KeyCache cache(pool, keeping == KeyKeeping::anchored ? still : cache_rope(), keeping);
    KeyCache chunk(pool, keeping == KeyKeeping::anchored ? cache_rope() : still, other);
    append_random(cache, 0, 21), append_random(chunk, 0, 40, 2);
    const Index free = pool.free_pages();
    EXPECT_EQ(cache.append(chunk, 21), MoveVerdict::kept);
    EXPECT_EQ(cache.moves(), 0);
    EXPECT_EQ(pool.free_pages(), free);
    KeyCache want(pool, cache.rotary(), keeping);
    append_random(want, 0, 21), append_random(want, 21, 40, 2);
    EXPECT_LT(largest_difference(attend_ones(cache, 70), attend_ones(want, 70)), 1e-12);
  }
  // No keys either.
  KeyCache cache(pool, cache_rope());
  const KeyCache none(pool, cache_rope(), KeyKeeping::unrotated);
  EXPECT_EQ(cache.append(none), MoveVerdict::kept);
}

// Channels that do not rotate keep their bits: values in keys, and blocks made by another rule than ours.
TEST(CacheKeepings, OtherChannelsKeepTheirBits) {
  for (const KeyType type : {KeyType::bf16, KeyType::q8_0})
    for (const KeyKeeping from : {KeyKeeping::unrotated, KeyKeeping::anchored}) {
      PoolSizes s{.pages = 8, .page_size = 16, .heads = 1, .head_dim = 96, .value_dim = 64};
      s.key_type = type, s.values_in_keys = true;
      RotarySpec spec = cache_rope();
      spec.head_dim = 96, spec.blocks[0].offset = 64;
      const PagePool pool(s);
      KeyCache chunk(pool, spec, from);
      KeyCache cache(pool, spec,
                     from == KeyKeeping::anchored ? KeyKeeping::unrotated : KeyKeeping::anchored);
      append_random(chunk, 5, 30);
      if (type == KeyType::q8_0) {
        auto* const block = static_cast<std::byte*>(const_cast<void*>(pool.keys().data));
        block[2] = std::byte{0x80};  // -128, which no rounding gives
        std::fill_n(block + 3, 31, std::byte{3});
      }
      const std::vector<Doubles> before = stored_keys(chunk);
      EXPECT_EQ(cache.append(chunk, 0, kMove), MoveVerdict::moved);
      const std::vector<Doubles> after = stored_keys(cache);
      ASSERT_EQ(after.size(), before.size());
      for (std::size_t n = 0; n < after.size(); ++n) {
        EXPECT_TRUE(std::equal(before[n].begin(), before[n].begin() + 64, after[n].begin())) << n;
        EXPECT_FALSE(std::equal(before[n].begin() + 64, before[n].end(), after[n].begin() + 64));
      }
    }
}

TEST(CacheKeepings, CutBlocksNeedLeave) {
  const PagePool pool(typed_sizes(KeyType::q8_0));
  for (const KeyKeeping from : {KeyKeeping::unrotated, KeyKeeping::anchored}) {
    KeyCache chunk(pool, cache_rope(32, 24), from);
    KeyCache cache(pool, cache_rope(32, 24),
                   from == KeyKeeping::anchored ? KeyKeeping::unrotated : KeyKeeping::anchored);
    append_random(chunk, 5, 20);
    const Index free = pool.free_pages();
    EXPECT_THAT(refusal([&] { cache.append(chunk, 0, kMove); }), HasSubstr("share a q8_0 block"));
    EXPECT_EQ(pool.free_pages(), free);
    EXPECT_EQ(cache.append(chunk, 0, {.keys = OtherRotation::move, .cut_blocks = true}),
              MoveVerdict::moved);
    EXPECT_LT(largest_difference(attend_ones(cache, 30), attend_ones(chunk, 30)), 0.02);
  }
}

// A compatibility precision cannot shift anchored keys, but tokens that are rotated now may have any delta.
TEST(CacheKeepings, CompatiblePrecisions) {
  const RotarySpec spec = with_precision(Precision::hf_float32);
  const PagePool pool(typed_sizes(KeyType::f32));
  KeyCache anchored(pool, spec), raw(pool, spec, KeyKeeping::unrotated), want(pool, spec);
  append_random(raw, 0, 30), append_random(want, 1000, 30);
  EXPECT_EQ(anchored.append(raw, 1000, kMove), MoveVerdict::moved);
  EXPECT_EQ(stored_keys(anchored), stored_keys(want));
  KeyCache back(pool, spec, KeyKeeping::unrotated);
  EXPECT_EQ(back.append(anchored, -1000, kMove), MoveVerdict::moved);
  EXPECT_LT(worst_unrotated(back, RandomTokens(pool.sizes(), 30, 1), spec), 1);
}

TEST(CacheKeepings, ByAxis) {
  Mrope sections;
  sections.head_dim = 32, sections.pairing = Pairing::half_split;
  sections.sections = {4, 6, 6}, sections.layout = MropeLayout::chunked;
  PoolSizes s = typed_sizes(KeyType::f32);
  s.axes = 3;
  const PagePool pool(s);
  const std::vector<Index> at{0, 1, 2, 0, 1, 1, 0, 0, 1};
  std::vector<Index> later = at;
  const Index delta[] = {10, -2, 1 << 20};
  for (std::size_t n = 0; n < 9; ++n) later[n] += delta[n / 3];
  const RandomTokens t(s, 3, 9);
  KeyCache raw(pool, resolve(sections), KeyKeeping::unrotated);
  KeyCache cache(pool, resolve(sections)), want(pool, resolve(sections));
  raw.append(t.at(positions(tensor(at.data(), {3, 1, 3}))));
  want.append(t.at(positions(tensor(later.data(), {3, 1, 3}))));
  EXPECT_EQ(cache.append(raw, delta, kMove), MoveVerdict::moved);
  EXPECT_EQ(stored_keys(cache), stored_keys(want));
  EXPECT_EQ(cache.positions().value, want.positions().value);
  KeyCache back(pool, resolve(sections), KeyKeeping::unrotated);
  EXPECT_EQ(back.append(want, std::span<const Index>(), kMove), MoveVerdict::moved);
  EXPECT_LT(worst_unrotated(back, t, resolve(sections)), 1);
}

// Each leaves both caches and their pools as they were.
TEST(CacheKeepings, Refusals) {
  const PagePool pool(typed_sizes(KeyType::f32, 4)), other(typed_sizes(KeyType::f32));
  KeyCache cache(pool, cache_rope()), raw(other, cache_rope(), KeyKeeping::unrotated);
  append_random(cache, 0, 20), append_random(raw, 0, 40, 2);
  const std::vector<double> was = attend_ones(cache, 60), raw_was = attend_ones(raw, 60);
  EXPECT_THAT(refusal([&] { cache.append(raw, 20); }),
              HasSubstr("keeping of the other cache must be that of this one, anchored, unless"));
  EXPECT_THROW(cache.append(raw, 20, kMove), OutOfPages);
  EXPECT_THAT(refusal([&] { raw.append(raw, Index{1} << 37); }), HasSubstr("at most 2^37"));
  RotarySpec short_one = cache_rope();
  short_one.blocks[0].spectrum.valid_to = 64;
  KeyCache small(other, short_one);
  EXPECT_THAT(refusal([&] { small.append(raw, 30, kMove); }), HasSubstr("must be below 64"));
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_EQ(other.free_pages(), 20 - 3);
  EXPECT_EQ(attend_ones(cache, 60), was);
  EXPECT_EQ(attend_ones(raw, 60), raw_was);

  Xpos decaying;
  decaying.head_dim = 32, decaying.pairing = Pairing::interleaved, decaying.center = 12.5;
  const RotarySpec xpos = resolve(decaying);
  KeyCache decayed(other, xpos);
  append_random(decayed, 0, 20);
  EXPECT_THAT(refusal([&] { raw.append(decayed, 0, kMove); }),
              HasSubstr("append refused: xPos scales keys"));
  EXPECT_EQ(decayed.append(raw, 20, kMove), MoveVerdict::moved);
  KeyCache want(other, xpos);
  append_random(want, 0, 20), append_random(want, 20, 40, 2);
  EXPECT_EQ(stored_keys(decayed), stored_keys(want));
}

}  // namespace
}  // namespace posenc::test::cache_keepings
