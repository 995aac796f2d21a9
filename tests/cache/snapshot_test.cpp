// SPDX-License-Identifier: Apache-2.0
// Caches in files: the same after a round trip; files that were cut, changed or written by others are rejected; writers
// that are killed leave the old file or the new one.
#include "posenc/cache/snapshot.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cache_calls.h"
#include "posenc/io/array.h"
#include "posenc/rotary/xpos.h"
#include "posenc/scaling/linear.h"
#include "posenc/scaling/yarn.h"
#include "support/refusal.h"
#include "support/sanitized.h"
#include "support/temporary_directory.h"

namespace posenc::cache_snapshots {
namespace {

using test::attend_ones;
using test::cache_rope;
using test::cache_sizes;
using ::testing::HasSubstr;

RotarySpec scaled_rope() {
  Yarn yarn;
  yarn.factor = 4, yarn.original_context = 64;
  return resolve(Rope{.head_dim = 32, .base = 10000, .pairing = Pairing::half_split}, yarn);
}

// With evicted tokens and three shifts.
KeyCache some_cache(const PoolSizes& s, const RotarySpec& r, KeyKeeping keeping,
                    Index tokens = 40) {
  KeyCache cache(PagePool(s), r, keeping);
  std::vector<Index> document(static_cast<std::size_t>(tokens));
  for (Index t = 0; t < tokens; ++t) document[static_cast<std::size_t>(t)] = t % 3;
  const NamedArray arrays[] = {{"document", tensor(std::as_const(document).data(), {tokens})}};
  const test::RandomTokens t(s, tokens, 7);
  const OwnedPositions at = arange(5, tokens);
  NewTokens n = t.at(at);
  if (!s.arrays.empty()) n.arrays = arrays;
  cache.append(n);
  cache.evict(3, 6), cache.shift(6, tokens, -3), cache.shift(tokens / 2, tokens, -1);
  return cache;
}

TEST(CacheSnapshots, TheSameAfterARoundTrip) {
  for (const KeyType type : {KeyType::f32, KeyType::bf16, KeyType::q8_0})
    for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated})
      for (const RotarySpec& r : {cache_rope(), scaled_rope()}) {
        PoolSizes s = cache_sizes();
        s.key_type = type, s.arrays = {{"document"}};
        const KeyCache cache = some_cache(s, r, keeping);
        const std::vector<std::byte> bytes = key_cache_bytes(cache);
        const KeyCache back = parse_key_cache(bytes, "file", PagePool(s), r);
        EXPECT_EQ(back.orders(), cache.orders());
        EXPECT_EQ(back.positions().value, cache.positions().value);
        EXPECT_EQ(back.next_order(), cache.next_order());
        EXPECT_EQ(back.runs(), cache.runs());
        EXPECT_EQ(back.keeping(), keeping);
        EXPECT_EQ(back.rotary(), r);
        EXPECT_EQ(back.pages(), 3);
        EXPECT_EQ(key_cache_bytes(back), bytes);
        std::vector<double> a(37 * 2 * 32), b = a;
        cache.read_keys(heads(a.data(), 37, 2, 32)), back.read_keys(heads(b.data(), 37, 2, 32));
        EXPECT_EQ(a, b);
      }
}

TEST(CacheSnapshots, EveryFieldOfARotation) {
  Xpos decaying;
  decaying.head_dim = 32, decaying.pairing = Pairing::interleaved, decaying.center = 3.5;
  RotarySpec xpos = resolve(decaying);
  xpos.blocks[0].spectrum.valid_from = 3, xpos.blocks[0].spectrum.valid_to = 4096;
  RotarySpec ggml = scaled_rope();
  ggml.precision = Precision::ggml;
  RotarySpec none;
  none.head_dim = 32;
  for (const RotarySpec& r : {xpos, ggml, none}) {
    KeyCache cache(PagePool(cache_sizes()), r);
    test::append_random(cache, 0, 3);
    const KeyCache back =
        parse_key_cache(key_cache_bytes(cache), "file", PagePool(cache_sizes()), r);
    EXPECT_EQ(back.rotary(), r);
    EXPECT_EQ(key_cache_bytes(back), key_cache_bytes(cache));
  }
}

TEST(CacheSnapshots, AnotherRotationMovesOrRefuses) {
  const PoolSizes s = cache_sizes();
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated}) {
    const std::vector<std::byte> bytes = key_cache_bytes(some_cache(s, cache_rope(), keeping));
    const PagePool pool(s);
    const auto load = [&](RescaleOptions o) {
      return parse_key_cache(bytes, "file", pool, scaled_rope(), o);
    };
    const KeyCache moved = load({.keys = OtherRotation::move});
    EXPECT_EQ(moved.moves(), keeping == KeyKeeping::anchored ? 1 : 0);
    KeyCache fresh = some_cache(s, scaled_rope(), keeping);
    EXPECT_LT(test::largest_difference(attend_ones(moved, 50), attend_ones(fresh, 50)), 1e-6);
    const Index free = pool.free_pages();
    EXPECT_THAT(test::refusal([&] { load({}); }), keeping == KeyKeeping::anchored
                                                      ? HasSubstr("needs keys that are moved")
                                                      : HasSubstr("accepted"));
    EXPECT_EQ(pool.free_pages(), free);
    EXPECT_THROW(parse_key_cache(bytes, "file", PagePool(cache_sizes(2)), cache_rope()),
                 OutOfPages);
  }
}

TEST(CacheSnapshots, OfAnotherPool) {
  const std::vector<std::byte> bytes =
      key_cache_bytes(some_cache(cache_sizes(), cache_rope(), KeyKeeping::anchored));
  const auto says = [&](const PoolSizes& s) {
    return test::refusal([&] { parse_key_cache(bytes, "file", PagePool(s), cache_rope()); });
  };
  PoolSizes s = cache_sizes();
  s.page_size = 32;
  EXPECT_EQ(says(s), "accepted");
  s = cache_sizes(), s.heads = 1;
  EXPECT_EQ(says(s), "[key_cache] heads of the snapshot must be that of the pool, 1, got 2");
  s = cache_sizes(), s.key_type = KeyType::bf16;
  EXPECT_THAT(says(s), HasSubstr("key_type of the snapshot must be that of the pool, bf16"));
  s = cache_sizes(), s.arrays = {{"document"}};
  EXPECT_THAT(says(s), HasSubstr("it lacks, got \"document\""));
}

// A file that was damaged is rejected, or nothing that it says was changed.
void expect_rejected_or_same(const std::vector<std::byte>& bytes,
                             const std::vector<std::byte>& whole, const PoolSizes& s,
                             std::size_t where) {
  const PagePool pool(s);
  try {
    const KeyCache cache = parse_key_cache(bytes, "file", pool, cache_rope());
    EXPECT_EQ(key_cache_bytes(cache), whole) << where;
  } catch (const FormatError&) {
  } catch (const ArgumentError&) {
  } catch (const OutOfPages&) {
  }
  EXPECT_EQ(pool.free_pages(), s.pages) << where;
}

TEST(CacheSnapshots, DamagedFiles) {
  PoolSizes s = cache_sizes();
  s.heads = 1, s.key_type = s.value_type = KeyType::bf16;
  const std::vector<std::byte> whole =
      key_cache_bytes(some_cache(s, cache_rope(), KeyKeeping::anchored, 10));
  const std::size_t step = test::kSanitized ? 7 : 1;
  for (std::size_t n = 0; n < whole.size(); n += step)
    EXPECT_THROW(parse_key_cache(std::span(whole).first(n), "file", PagePool(s), cache_rope()),
                 FormatError)
        << n;
  test::Random r(5);
  for (std::size_t n = 0; n < whole.size(); n += step) {
    std::vector<std::byte> bytes = whole;
    bytes[n] ^= static_cast<std::byte>(1 << r.integer(0, 7));
    expect_rejected_or_same(bytes, whole, s, n);
  }
  std::vector<std::byte> longer = whole;
  longer.push_back({});
  EXPECT_THROW(parse_key_cache(longer, "file", PagePool(s), cache_rope()), FormatError);
  const std::vector<std::byte> foreign =
      safetensors_bytes({{"keys", make_array(DType::f32, {2, 1, 32})}});
  try {
    parse_key_cache(foreign, "file", PagePool(s), cache_rope());
    FAIL();
  } catch (const FormatError& e) {
    EXPECT_STREQ(e.what(),
                 "file: #: is not a snapshot of a key cache: the text format must be \"posenc key "
                 "cache 1\"");
  }
}

TEST(CacheSnapshots, KilledWritersLeaveAWholeFile) {
  const test::TemporaryDirectory folder;
  const std::filesystem::path path = folder.path() / "cache.safetensors";
  const PoolSizes s = cache_sizes(64);
  const KeyCache old = some_cache(s, cache_rope(), KeyKeeping::anchored, 40);
  KeyCache next = old.fork();
  test::append_random(next, 60, 500);
  save_key_cache(old, path);
  const std::vector<std::byte> a = key_cache_bytes(old), b = key_cache_bytes(next);
  test::Random r(1);
  for (int n = 0; n < (test::kSanitized ? 10 : 100); ++n) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) save_key_cache(next, path), save_key_cache(old, path);
    }
    ::usleep(static_cast<useconds_t>(r.integer(100, 4000)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::vector<std::byte> now =
        key_cache_bytes(load_key_cache(path, PagePool(s), cache_rope()));
    ASSERT_TRUE(now == a || now == b) << n;
  }
}

}  // namespace
}  // namespace posenc::cache_snapshots
