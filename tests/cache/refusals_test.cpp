// SPDX-License-Identifier: Apache-2.0
// What pools and caches reject, and that nothing has changed then.
#include <gtest/gtest.h>

#include "cache_calls.h"
#include "posenc/scaling/linear.h"
#include "posenc/scaling/yarn.h"
#include "support/refusal.h"

namespace posenc::cache_refusals {
namespace {

using test::append_random;
using test::cache_rope;
using test::cache_sizes;
using test::refusal;
using ::testing::HasSubstr;

std::string pool_says(const PoolSizes& s) {
  return refusal([&] { PagePool pool(s); });
}

TEST(CacheRefusals, SizesOfAPool) {
  PoolSizes s = cache_sizes();
  EXPECT_EQ(pool_says(s), "accepted");
  s.page_size = 15;
  EXPECT_EQ(pool_says(s), "[page_pool] page_size must be from 16 to 256, got 15");
  s.page_size = 257;
  EXPECT_EQ(pool_says(s), "[page_pool] page_size must be from 16 to 256, got 257");
  s = cache_sizes(), s.pages = 0;
  EXPECT_THAT(pool_says(s), HasSubstr("pages must be from 1"));
  s = cache_sizes(), s.head_dim = 40, s.key_type = KeyType::q8_0;
  EXPECT_THAT(pool_says(s), HasSubstr("head_dim must be a multiple of 32"));
  s = cache_sizes(), s.axes = 17;
  EXPECT_THAT(pool_says(s), HasSubstr("axes must be from 1 to 16"));
  s = cache_sizes(), s.value_dim = 0, s.values_in_keys = true;
  EXPECT_THAT(pool_says(s), HasSubstr("value_dim must be set with values_in_keys"));
  s = cache_sizes(), s.arrays = {{"a"}, {"a"}};
  EXPECT_THAT(pool_says(s), HasSubstr("arrays must have different names"));
  s = cache_sizes(), s.arrays = {{"a", DType::bf16}};
  EXPECT_THAT(pool_says(s), HasSubstr("a must be i64, i32, f64 or f32, got \"bf16\""));
  s = cache_sizes(), s.pages = Index{1} << 40;
  EXPECT_THROW(PagePool{s}, OutOfMemory);
}

TEST(CacheRefusals, MemoryOfTheCaller) {
  const PoolSizes s = cache_sizes(2);
  std::vector<float> k(2 * 16 * 2 * 32), v = k;
  const auto view = [](std::vector<float>& x, Index pages, Index dim) {
    return heads(tensor(x.data(), {pages, 16, 2, dim}), HeadsLayout::bthd);
  };
  EXPECT_NO_THROW(PagePool(s, view(k, 2, 32), view(v, 2, 32)));
  EXPECT_THAT(refusal([&] { PagePool(s, view(k, 1, 32), view(v, 2, 32)); }),
              HasSubstr("keys must have memory of [pages, page size, heads, channels]"));
  EXPECT_THAT(refusal([&] { PagePool(s, view(k, 2, 32)); }), HasSubstr("values must have memory"));
  EXPECT_THAT(refusal([&] { PagePool(s, view(k, 2, 32), view(k, 2, 32)); }), HasSubstr("values"));
  PoolSizes none = s;
  none.value_dim = 0;
  EXPECT_THAT(refusal([&] { PagePool(none, view(k, 2, 32), view(v, 2, 32)); }),
              HasSubstr("values must be empty"));
  EXPECT_THAT(refusal([&] { PagePool(none).references(2); }), HasSubstr("within the 2 pages"));
}

struct OneCache {
  PagePool pool{cache_sizes(2)};
  KeyCache cache{pool, cache_rope()};
  OneCache() { append_random(cache, 0, 20); }

  template <class F>
  std::string says(F&& f) {
    const std::vector<Index> before = cache.orders();
    const std::vector<double> was = test::attend_ones(cache, 30);
    const std::string text = refusal([&] { f(cache); });
    EXPECT_EQ(cache.orders(), before);
    EXPECT_EQ(test::attend_ones(cache, 30), was) << text;
    return text;
  }
};

TEST(CacheRefusals, Tokens) {
  OneCache one;
  test::RandomTokens t(cache_sizes(), 2, 5);
  const OwnedPositions halves{std::vector<double>{20.5, 21.5}}, two = arange(20, 2);
  const auto append = [&](const NewTokens& n) {
    return one.says([&](KeyCache& c) { c.append(n); });
  };
  EXPECT_THAT(append(t.at(arange(20, 3))), HasSubstr("positions must be one for each of 2 tokens"));
  EXPECT_THAT(append(t.at(arange((Index{1} << 37) - 0, 2))), HasSubstr("must be at most 2^37"));
  EXPECT_THAT(append(t.at(arange(-(Index{1} << 37) - 1, 2))), HasSubstr("must be at least -2^37"));
  EXPECT_THAT(append(t.at(halves)), HasSubstr("must be whole numbers"));
  NewTokens n = t.at(two);
  n.v = {};
  EXPECT_THAT(append(n), HasSubstr("v must be"));
  n = t.at(two), n.k.dim = 31;
  EXPECT_THAT(append(n), HasSubstr("k must be [1, tokens, heads, channels], [1, 2, 2, 32]"));
  const double sum[] = {1, 2};
  const NamedArray array[] = {{"sum", tensor(sum, {2})}};
  n = t.at(two), n.arrays = array;
  EXPECT_THAT(append(n), HasSubstr("arrays must be token arrays of the pool, got \"sum\""));
}

TEST(CacheRefusals, OutOfPagesChangesNothing) {
  OneCache one;
  const std::vector<double> was = test::attend_ones(one.cache, 30);
  try {
    append_random(one.cache, 20, 13);
    FAIL();
  } catch (const OutOfPages& e) {
    EXPECT_STREQ(e.what(), "[page_pool] the operation needs 1 page, and 0 are free");
    EXPECT_EQ(e.needed(), 1);
  }
  EXPECT_EQ(one.cache.size(), 20);
  EXPECT_EQ(test::attend_ones(one.cache, 30), was);
  append_random(one.cache, 20, 12);
  EXPECT_EQ(one.cache.size(), 32);
}

TEST(CacheRefusals, TokensThatAreNotThere) {
  OneCache one;
  const auto evict = [&](std::vector<Index> list) {
    return one.says([&](KeyCache& c) { c.evict(list); });
  };
  EXPECT_EQ(evict({3, 20}), "[key_cache] tokens must be there, and one is not, got 20");
  EXPECT_EQ(evict({-1}), "[key_cache] tokens must be there, and one is not, got -1");
  EXPECT_EQ(evict({3, 4, 3}), "[key_cache] tokens must be listed once, got 3");
  one.cache.evict(3, 4);
  EXPECT_EQ(evict({3}), "[key_cache] tokens must be there, and one is not, got 3");
  EXPECT_THAT(one.says([](KeyCache& c) { c.evict(5, 21); }), HasSubstr("end must be at most"));
  EXPECT_THAT(one.says([](KeyCache& c) { c.evict(5, 4); }), HasSubstr("first must be from 0"));
  EXPECT_THAT(one.says([](KeyCache& c) { c.rewind(21); }), HasSubstr("order must be from 0 to 20"));
  EXPECT_THAT(one.says([](KeyCache& c) { (void)c.keep(-1, 2); }), HasSubstr("sinks"));
  EXPECT_THAT(one.says([](KeyCache& c) { c.shift(0, 20, Index{1} << 37); }),
              HasSubstr("positions must be at most 2^37"));
  const Index two[] = {1, 2};
  EXPECT_THAT(one.says([&](KeyCache& c) { c.shift(0, 20, two); }), HasSubstr("delta must have 1"));
}

TEST(CacheRefusals, Rotations) {
  OneCache one;
  const auto rescale = [&](const RotarySpec& r, OtherRotation keys = OtherRotation::refuse) {
    return one.says([&](KeyCache& c) { c.rescale(r, {.keys = keys}); });
  };
  EXPECT_THAT(rescale(cache_rope(64)),
              HasSubstr("head_dim of the rotation must be that of the pool"));
  const RotarySpec linear = resolve(
      Rope{.head_dim = 32, .base = 10000, .pairing = Pairing::half_split}, Linear{.factor = 2});
  EXPECT_THAT(rescale(linear), HasSubstr("needs keys that are moved"));
  EXPECT_THAT(rescale(cache_rope(32, 16), OtherRotation::move), HasSubstr("refused: "));
  RotarySpec brief = linear;
  brief.blocks[0].spectrum.valid_to = 10;
  EXPECT_THAT(rescale(brief, OtherRotation::move), HasSubstr("positions must be below 10"));
  RotarySpec peer = cache_rope();
  peer.precision = Precision::hf_float32;
  KeyCache compatible(one.pool, peer);
  EXPECT_THAT(refusal([&] { compatible.shift(0, 0, 1); }), HasSubstr("precision exact"));
}

TEST(CacheRefusals, Calls) {
  OneCache one;
  const auto attend = [&](const AttentionArgs& a) {
    return one.says([&](KeyCache& c) { test::attend_ones(c, 30, 2, a); });
  };
  AttentionArgs a;
  EXPECT_EQ(attend(a), "accepted");
  a.mask.query_offset = 3;
  EXPECT_THAT(attend(a), HasSubstr("mask.query_offset must be absent: the cache knows the order"));
  a = {}, a.k = heads(static_cast<const float*>(nullptr), 0, 2, 32);
  EXPECT_THAT(attend(a), HasSubstr("k must be absent: the cache has the keys"));
  const Stage stage{.kind = StageKind::l2};
  a = {}, a.prepare = std::span(&stage, 1);
  EXPECT_THAT(attend(a), HasSubstr("prepare must be absent"));
  const std::vector<std::uint8_t> seen(32, 1);
  a = {}, a.mask.visible = tensor(seen.data(), {1, 32});
  EXPECT_THAT(attend(a), HasSubstr("mask.visible must be absent"));
  const Index document[] = {0};
  a = {}, a.mask.query_document = tensor(document, {1, 1});
  EXPECT_THAT(attend(a), HasSubstr("must be token arrays of the pool, got \"document\""));
}

TEST(CacheRefusals, SumsOverTheKeysInBetween) {
  OneCache one;
  AttentionArgs a;
  a.normalisation = Normalisation::stick_breaking;
  const auto attend = [&] { return refusal([&] { test::attend_ones(one.cache, 30, 2, a); }); };
  EXPECT_EQ(attend(), "accepted");
  one.cache.evict(0, 3);
  EXPECT_EQ(attend(), "accepted");
  one.cache.shift(3, 20, -3);
  EXPECT_EQ(attend(), "accepted");
  one.cache.shift(5, 20, -1);
  EXPECT_EQ(attend(),
            "[key_cache] stick_breaking sums over the keys in between, so all tokens must have one "
            "shift, distinct shifts, got 2");
  one.cache.shift(5, 20, 1);
  EXPECT_EQ(attend(), "accepted");
  one.cache.evict(7, 8);
  EXPECT_EQ(attend(),
            "[key_cache] stick_breaking sums over the keys in between, so only the oldest tokens "
            "may be evicted; missing, got 1");
}

}  // namespace
}  // namespace posenc::cache_refusals
