// SPDX-License-Identifier: Apache-2.0
// Tokens of another cache beside the same tokens appended one by one: which pages are shared, and what comes along.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "posenc/cache/snapshot.h"
#include "posenc/rotary/mrope.h"
#include "posenc/scaling/yarn.h"
#include "support/refusal.h"

namespace posenc::test::cache_append {
namespace {

using ::testing::HasSubstr;

PoolSizes with_documents(Index pages = 12, KeyType type = KeyType::f32) {
  PoolSizes s = cache_sizes(pages);
  s.key_type = s.value_type = type;
  s.arrays = {{"document"}};
  return s;
}
void append_document(KeyCache& cache, Index first, Index n, std::uint64_t seed, Index document) {
  const std::vector<Index> all(static_cast<std::size_t>(n), document);
  const NamedArray arrays[] = {{"document", tensor(all.data(), {n})}};
  const RandomTokens t(cache.pool().sizes(), n, seed);
  const OwnedPositions at = arange(first, n);
  NewTokens tokens = t.at(at);
  tokens.arrays = arrays;
  cache.append(tokens);
}
// Two queries of ones in double behind all tokens, of the calls that read orders, documents and positions.
std::vector<double> attend_all_ways(const KeyCache& cache, Index position) {
  AttentionArgs window;
  window.mask.window_left = 30, window.mask.sink_tokens = 3;
  const Index document[] = {1};
  AttentionArgs documents;
  documents.mask.query_document = tensor(document, {1, 1});
  const std::vector<double> slopes(4, -0.1);
  LinearTerm linear;
  linear.table = tensor(slopes.data(), {1, 2, 1, 2});
  const Term terms[] = {linear};
  AttentionArgs by_distance;
  by_distance.terms = terms;
  std::vector<double> all;
  for (const AttentionArgs& a : {AttentionArgs(), window, documents, by_distance}) {
    const std::vector<double> out = attend_ones(cache, position, 2, a);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

// 21 tokens and a chunk of 40, with all its pages but the first, at position 100.
TEST(CacheAppend, SharesPages) {
  for (const KeyType type : {KeyType::f32, KeyType::bf16, KeyType::q8_0})
    for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
      const PagePool pool(with_documents(12, type));
      KeyCache cache(pool, cache_rope(), keeping), chunk(pool, cache_rope(), keeping),
          want(pool, cache_rope(), keeping);
      append_document(cache, 0, 21, 1, 0), append_document(chunk, 7, 40, 2, 1);
      append_document(want, 0, 21, 1, 0), append_document(want, 7, 40, 2, 1);
      want.shift(21, 61, 93);
      const std::vector<double> before = attend_all_ways(chunk, 50);
      const Index free = pool.free_pages();
      EXPECT_EQ(cache.append(chunk, 93), MoveVerdict::kept);
      EXPECT_EQ(pool.free_pages(), free);
      EXPECT_EQ(cache.pages(), 2 + 3);
      EXPECT_EQ(cache.orders(), want.orders());
      EXPECT_EQ(cache.positions().value, want.positions().value);
      EXPECT_EQ(cache.next_order(), 61);
      EXPECT_EQ(cache.runs(), 2);
      EXPECT_EQ(cache.moves(), 0);
      EXPECT_LT(largest_difference(attend_all_ways(cache, 150), attend_all_ways(want, 150)), 1e-12);
      // Either one that writes copies a page first.
      append_document(cache, 140, 2, 3, 1), append_document(want, 140, 2, 3, 1);
      EXPECT_EQ(pool.free_pages(), free - 1);
      EXPECT_EQ(attend_all_ways(chunk, 50), before);
      EXPECT_EQ(cache.orders(), want.orders());
      append_document(chunk, 47, 1, 4, 1);
      EXPECT_EQ(pool.free_pages(), free - 1);
      cache.compact();
      EXPECT_EQ(cache.pages(), 4);
      EXPECT_EQ(cache.orders(), want.orders());
      EXPECT_LT(largest_difference(attend_all_ways(cache, 150), attend_all_ways(want, 150)), 1e-12);
      cache.rewind(30), want.rewind(30);
      EXPECT_EQ(cache.orders(), want.orders());
    }
}

// Of a cache that lost and shifted tokens: gaps, shifts and what tokens bring.
TEST(CacheAppend, OfAnotherPool) {
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    PoolSizes larger = with_documents();
    larger.page_size = 37;
    const PagePool pool(with_documents(30)), other_pool(larger);
    KeyCache cache(pool, cache_rope(), keeping), want(pool, cache_rope(), keeping);
    KeyCache chunk(other_pool, cache_rope(), keeping), same(pool, cache_rope(), keeping);
    for (KeyCache* c : {&cache, &want}) append_document(*c, 0, 21, 1, 0);
    for (KeyCache* c : {&chunk, &same}) {
      append_document(*c, 0, 90, 2, 1), c->evict(30, 41), c->evict(0, 2), c->shift(60, 90, -11);
    }
    cache.append(chunk, 21), want.append(same, 21);
    EXPECT_EQ(chunk.size(), 77);
    EXPECT_EQ(cache.orders(), want.orders());
    EXPECT_EQ(cache.orders()[21], 23);
    EXPECT_EQ(cache.next_order(), 111);
    EXPECT_EQ(cache.positions().value, want.positions().value);
    EXPECT_LT(largest_difference(attend_all_ways(cache, 150), attend_all_ways(want, 150)), 1e-12);
    chunk.clear();
    EXPECT_EQ(other_pool.free_pages(), 12);
    const KeyCache back = parse_key_cache(key_cache_bytes(cache), "file", other_pool, cache_rope());
    EXPECT_EQ(back.orders(), cache.orders());
    EXPECT_LT(largest_difference(attend_all_ways(back, 150), attend_all_ways(cache, 150)), 1e-12);
    cache.clear(), same.clear(), want.clear();
    EXPECT_EQ(pool.free_pages(), 30);
  }
}

// A page twice in one sequence, its two uses apart, one behind the other, and in the wrong order of slots.
TEST(CacheAppend, OfItself) {
  RotarySpec yarn = cache_rope();
  for (double& f : yarn.blocks[0].spectrum.frequency) f *= 0.5;
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated})
    for (int kind = 0; kind < 5; ++kind) {
      const PagePool pool(with_documents()), reference(with_documents(20));
      KeyCache cache(pool, cache_rope(), keeping), want(reference, cache_rope(), keeping);
      append_document(cache, 0, 16, 1, 1);
      cache.append(cache, 100);
      append_document(want, 0, 16, 1, 1), append_document(want, 0, 16, 1, 1);
      want.shift(16, 32, 100);
      EXPECT_EQ(pool.free_pages(), 11);
      EXPECT_EQ(cache.pages(), 2);
      for (KeyCache* c : {&cache, &want}) {
        if (kind == 0) c->rescale(yarn, {.keys = OtherRotation::move});
        if (kind == 1) c->evict(9, 16), c->evict(16, 25);  // 0 to 8, then 9 to 15
        if (kind == 2) c->evict(0, 9), c->compact();
        if (kind == 3) c->shift(4, 20, -100), c->evict(10, 22);
        if (kind == 4) c->rewind(20), append_document(*c, 200, 5, 3, 0);
        if (kind != 0) c->rescale(yarn, {.keys = OtherRotation::move});
        c->compact();
      }
      EXPECT_EQ(cache.orders(), want.orders()) << kind;
      EXPECT_EQ(cache.positions().value, want.positions().value);
      EXPECT_EQ(cache.pages(), want.pages()) << kind;
      EXPECT_LT(largest_difference(attend_all_ways(cache, 250), attend_all_ways(want, 250)), 2e-6);
      cache.clear();
      EXPECT_EQ(pool.free_pages(), 12);
    }
}

// Two uses of one page become one when it is moved, with the orders of both and of their holes.
TEST(CacheAppend, OrdersOfAMovedPage) {
  RotarySpec slower = cache_rope();
  for (double& f : slower.blocks[0].spectrum.frequency) f *= 0.5;
  const PagePool pool(with_documents());
  KeyCache cache(pool, cache_rope());
  append_document(cache, 0, 16, 1, 1);
  cache.append(cache, 16), cache.append(cache, 32);
  cache.evict(0, 32), cache.evict(41, 57);  // slots 0 to 8 and 9 to 15
  cache.evict(35, 37), cache.evict(57, 60);
  EXPECT_EQ(cache.rescale(slower, {.keys = OtherRotation::move}), MoveVerdict::moved);
  EXPECT_EQ(cache.pages(), 1);
  std::vector<Index> left{32, 33, 34, 37, 38, 39, 40, 60, 61, 62, 63};
  EXPECT_EQ(cache.orders(), left);
  while (!left.empty()) {
    cache.evict(left.front(), left.front() + 1);
    left.erase(left.begin());
    EXPECT_EQ(cache.orders(), left);
    if (left.empty()) break;
    cache.evict(std::vector<Index>{left.back()});
    left.pop_back();
    EXPECT_EQ(cache.orders(), left);
  }
  EXPECT_EQ(pool.free_pages(), 12);
}

TEST(CacheAppend, TokensAreNamedByTheirNewOrders) {
  const PagePool pool(with_documents());
  KeyCache cache(pool, cache_rope()), chunk(pool, cache_rope());
  append_document(cache, 0, 10, 1, 0), append_document(chunk, 0, 20, 2, 1);
  cache.append(chunk), cache.append(chunk);
  EXPECT_EQ(cache.next_order(), 50);
  const Index some[] = {9, 10, 29, 30, 49};
  cache.evict(some);
  EXPECT_EQ(cache.size(), 45);
  EXPECT_EQ(chunk.size(), 20);
  cache.shift(20, 40, 3);
  const std::vector<Index> at = std::get<0>(cache.positions().value);
  const std::vector<Index> orders = cache.orders();
  for (std::size_t n = 0; n < orders.size(); ++n) {
    const Index order = orders[n], in_chunk = order < 10 ? order : (order - 10) % 20;
    EXPECT_EQ(at[n], in_chunk + (order >= 20 && order < 40 ? 3 : 0)) << order;
  }
  EXPECT_EQ(cache.keep(2, 5), 38);
  EXPECT_EQ(cache.orders(), (std::vector<Index>{0, 1, 44, 45, 46, 47, 48}));
  KeyCache none(pool, cache_rope());
  cache.append(none, 5), none.append(chunk), none.rewind(0), cache.append(none);
  EXPECT_EQ(cache.size(), 7);
}

TEST(CacheAppend, KeysOfAnotherRotationAreMovedOrRefused) {
  Yarn scaling;
  scaling.factor = 4, scaling.original_context = 256;
  const RotarySpec yarn =
      resolve(Rope{.head_dim = 32, .base = 10000, .pairing = Pairing::half_split}, scaling);
  for (const bool one_pool : {true, false}) {
    const PagePool pool(with_documents(20)), other(one_pool ? pool : PagePool(with_documents(20)));
    KeyCache cache(pool, cache_rope()), chunk(other, yarn);
    append_document(cache, 0, 20, 1, 0), append_document(chunk, 0, 20, 2, 1);
    const std::vector<double> was = attend_all_ways(cache, 60), chunk_was = attend_ones(chunk, 30);
    EXPECT_THAT(refusal([&] { cache.append(chunk, 20); }), HasSubstr("needs keys that are moved"));
    EXPECT_EQ(attend_all_ways(cache, 60), was);
    EXPECT_EQ(cache.append(chunk, 20, {.keys = OtherRotation::move}), MoveVerdict::moved);
    EXPECT_EQ(cache.moves(), 1);
    EXPECT_EQ(cache.runs(), 1);
    EXPECT_EQ(attend_ones(chunk, 30), chunk_was);
    KeyCache want(pool, cache_rope());
    append_document(want, 0, 20, 1, 0), append_document(want, 20, 20, 2, 1);
    EXPECT_LT(largest_difference(attend_all_ways(cache, 60), attend_all_ways(want, 60)), 2e-6);
    EXPECT_EQ(pool.free_pages(), 20 - 2 - 2 - 3 - (one_pool ? 2 : 0));

    KeyCache raw(pool, cache_rope(), KeyKeeping::unrotated);
    KeyCache raw_chunk(other, yarn, KeyKeeping::unrotated);
    append_document(raw, 0, 20, 1, 0), append_document(raw_chunk, 0, 20, 2, 1);
    EXPECT_EQ(raw.append(raw_chunk, 20), MoveVerdict::kept);
    EXPECT_LT(largest_difference(attend_all_ways(raw, 60), attend_all_ways(want, 60)), 2e-6);
  }
}

TEST(CacheAppend, OutOfPagesChangesNothing) {
  RotarySpec faster = cache_rope();
  faster.blocks[0].spectrum.frequency[3] *= 2;
  const PagePool pool(with_documents(4)), other(with_documents());
  KeyCache cache(pool, cache_rope()), inside(pool, faster), outside(other, cache_rope());
  append_document(cache, 0, 20, 1, 0), append_document(inside, 0, 20, 2, 1);
  append_document(outside, 0, 20, 2, 1);
  const std::vector<double> was = attend_all_ways(cache, 60), chunk_was = attend_ones(inside, 30);
  EXPECT_THROW(cache.append(outside, 20), OutOfPages);
  EXPECT_THROW(cache.append(inside, 20, {.keys = OtherRotation::move}), OutOfPages);
  EXPECT_EQ(attend_all_ways(cache, 60), was);
  EXPECT_EQ(attend_ones(inside, 30), chunk_was);
  EXPECT_EQ(cache.next_order(), 20);
  inside.clear();
  EXPECT_EQ(pool.free_pages(), 2);
  cache.append(outside, 20);
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(CacheAppend, DeltasByAxis) {
  Mrope sections;
  sections.head_dim = 32, sections.pairing = Pairing::half_split;
  sections.sections = {4, 6, 6}, sections.layout = MropeLayout::chunked;
  PoolSizes s = cache_sizes();
  s.axes = 3;
  const PagePool pool(s);
  const std::vector<Index> at{0, 1, 2, 0, 1, 1, 0, 0, 1};
  const Index delta[] = {10, -2, 1 << 20}, two[] = {1, 2};
  KeyCache cache(pool, resolve(sections)), chunk(pool, resolve(sections));
  const RandomTokens t(s, 3, 9);
  chunk.append(t.at(positions(tensor(at.data(), {3, 1, 3}))));
  cache.append(chunk), cache.append(chunk, delta);
  const std::vector<Index> got = std::get<0>(cache.positions().value);
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::size_t n = 0; n < 6; ++n)
      EXPECT_EQ(got[axis * 6 + n], at[axis * 3 + n % 3] + (n < 3 ? 0 : delta[axis]));
  EXPECT_THAT(refusal([&] { cache.append(chunk, two); }), HasSubstr("delta must have 3 axes"));
}

// What does not go together, by its name.
TEST(CacheAppend, Refusals) {
  const PagePool pool(with_documents());
  KeyCache cache(pool, cache_rope());
  append_document(cache, 0, 20, 1, 0);
  const std::vector<double> was = attend_all_ways(cache, 60);
  const auto says = [&](const PoolSizes& s) {
    const KeyCache other(PagePool(s), cache_rope(s.head_dim));
    return refusal([&] { cache.append(other); });
  };
  EXPECT_EQ(says(with_documents()), "accepted");
  PoolSizes s = with_documents();
  s.heads = 4;
  EXPECT_THAT(says(s), HasSubstr("heads of the other cache must be that of this one, 2, got 4"));
  s = with_documents(), s.head_dim = 64;
  EXPECT_THAT(says(s), HasSubstr("head_dim of the other cache"));
  s = with_documents(), s.value_dim = 64;
  EXPECT_THAT(says(s), HasSubstr("value_dim of the other cache"));
  s = with_documents(), s.key_type = KeyType::bf16;
  EXPECT_THAT(says(s), HasSubstr("key_type of the other cache"));
  s = with_documents(), s.value_type = KeyType::bf16;
  EXPECT_THAT(says(s), HasSubstr("value_type of the other cache"));
  s = with_documents(), s.arrays[0].name = "class";
  EXPECT_THAT(says(s), HasSubstr("arrays of the other cache"));
  s = with_documents(), s.arrays[0].dtype = DType::f32;
  EXPECT_THAT(says(s), HasSubstr("array document of the other cache"));
  s = with_documents(), s.arrays.clear();
  EXPECT_THAT(says(s), HasSubstr("arrays of the other cache"));

  EXPECT_THAT(refusal([&] { cache.append(cache, (Index{1} << 37) - 10); }),
              HasSubstr("positions must be at most 2^37"));
  EXPECT_THAT(refusal([&] { cache.append(cache, Index{1} << 60); }), HasSubstr("delta must be"));
  RotarySpec short_one = cache_rope(), compatible = cache_rope();
  short_one.blocks[0].spectrum.valid_to = 64, compatible.precision = Precision::hf_float32;
  KeyCache small(pool, short_one);
  EXPECT_THAT(refusal([&] { small.append(cache, 50); }), HasSubstr("must be below 64"));
  small.append(cache, 44);
  KeyCache other(pool, compatible);
  append_document(other, 0, 5, 1, 0);
  EXPECT_THAT(refusal([&] { other.append(other, 1); }), HasSubstr("needs the precision exact"));
  other.append(other, 0);
  EXPECT_EQ(attend_all_ways(cache, 60), was);
}

}  // namespace
}  // namespace posenc::test::cache_append
