// SPDX-License-Identifier: Apache-2.0
// Blocks of queries x keys, and tiles of keys that are read, against the visible keys of each query.
#include <gtest/gtest.h>

#include <set>

#include "attention/call/visible_runs.h"
#include "attention/random_call.h"

namespace posenc {
namespace {

using namespace detail;

bool sees(Runs runs, Index j) {
  for (const Run& run : runs)
    if (j >= run.begin && j < run.end) return true;
  return false;
}

MaskBlock block_by_pairs(const ReadyCall& c, Index b, Index h, Run queries, Run keys) {
  Index visible = 0, pairs = 0;
  std::vector<detail::Run> memory(static_cast<std::size_t>(most_runs(c)));
  RunList runs(memory);
  for (Index i = queries.begin; i < queries.end; ++i) {
    find_visible(c, b, h, i, c.place(b, i), runs);
    for (Index j = keys.begin; j < keys.end; ++j) ++pairs, visible += sees(runs, j) ? 1 : 0;
  }
  if (visible == 0) return MaskBlock::hidden;
  return visible == pairs ? MaskBlock::whole : MaskBlock::mixed;
}

TEST(MaskBlock, AgreesWithTheVisibleKeysOfEachQuery) {
  int count[3] = {};
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    const RandomCall call(seed);
    CallArena arena;
    const ReadyCall c(call.args, arena);
    test::Random r(seed);
    for (Index n = 0; n < 8 && c.Tq > 0 && c.Tk > 0; ++n) {
      const Index b = r.integer(0, c.B - 1), h = r.integer(0, c.H - 1);
      const Index i = r.integer(0, c.Tq - 1), j = r.integer(0, c.Tk - 1);
      const detail::Run queries{i, r.integer(i + 1, c.Tq)}, keys{j, r.integer(j + 1, c.Tk)};
      const MaskBlock got = mask_block(c, b, h, queries, keys);
      ASSERT_EQ(got, block_by_pairs(c, b, h, queries, keys)) << "seed " << seed;
      ++count[static_cast<int>(got)];
    }
  }
  for (const int n : count) EXPECT_GT(n, 5000);
}

TEST(MaskBlock, WithoutPairsIsHidden) {
  const RandomCall call(1);
  CallArena arena;
  const ReadyCall c(call.args, arena);
  EXPECT_EQ(mask_block(c, 0, 0, {0, 0}, {0, c.Tk}), MaskBlock::hidden);
  EXPECT_EQ(mask_block(c, 0, 0, {0, c.Tq}, {0, 0}), MaskBlock::hidden);
}

TEST(TilesSeen, HoldEveryVisibleKey) {
  Index skipped = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const RandomCall call(seed, {false, static_cast<Index>(seed % 3 + 1), 100});
    CallArena arena;
    const ReadyCall c(call.args, arena);
    const Index tiles = whole_tiles(c.Tk) / kTile;
    std::set<Index> seen;
    std::vector<detail::Run> memory(static_cast<std::size_t>(most_runs(c)));
    RunList runs(memory);
    for (Index b = 0; b < c.B; ++b)
      for (Index h = 0; h < c.H; ++h)
        for (Index i = 0; i < c.Tq; ++i) {
          const QueryPlace p = c.place(b, i);
          find_visible(c, b, h, i, p, runs);
          each_key(runs, [&](Index j) { seen.insert(p.row * tiles + j / kTile); });
          if (const Index own = c.own_key(p); own >= 0) seen.insert(p.row * tiles + own / kTile);
        }
    const std::span<const std::uint8_t> flags = tiles_seen(c, true, arena);
    ASSERT_EQ(static_cast<Index>(flags.size()), c.R * tiles);
    for (const Index tile : seen)
      ASSERT_EQ(flags[static_cast<std::size_t>(tile)], 1) << "seed " << seed;
    skipped += c.R * tiles - static_cast<Index>(seen.size());
  }
  EXPECT_GT(skipped, 1000);
}

// One query behind 16,384 keys: a window, sinks, a chunk, a length each leave few tiles to read.
TEST(TilesSeen, FollowTheMask) {
  const std::vector<float> x(16384 * 2);
  AttentionArgs a;
  a.q = heads(x.data(), 1, 1, 2), a.k = a.v = heads(x.data(), 16384, 1, 2);
  a.scale = 1;
  a.mask.query_offset = 16383;
  const auto count = [&] {
    Index n = 0;
    CallArena arena;
    for (const std::uint8_t flag : tiles_seen(ReadyCall(a, arena), false, arena)) n += flag;
    return n;
  };
  EXPECT_EQ(count(), 1024);
  a.mask.window_left = 1023;  // and its own: 1024 keys from 15,360 on
  EXPECT_EQ(count(), 64);
  a.mask.sink_tokens = 4;
  EXPECT_EQ(count(), 65);
  a.mask = {.query_offset = 16383, .chunk = 4096};
  EXPECT_EQ(count(), 256);
  const Index length = 100;
  a.mask = {.key_length = tensor(&length, {1})};
  EXPECT_EQ(count(), 7);
}

}  // namespace
}  // namespace posenc
