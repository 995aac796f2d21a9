// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "posenc/positions.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

Integers list(const RulePositions& p) {
  return std::get<Integers>(p.positions.value);
}

std::string refused(std::string_view text, std::span<const PositionArray> arrays = {}) {
  return refusal([&] { (void)positions_by_rule(text, arrays); });
}

// Ranks of ring-flash-attention, made by its own code.
TEST(Rule, ShardsAsRingFlashAttention) {
  const support::Suite attention("attention");
  for (const auto& [name, layout] :
       {std::pair{"ring_plain", "contiguous"}, std::pair{"ring_zigzag", "zigzag"}})
    for (int rank = 0; rank < 4; ++rank) {
      const std::string text =
          "shard tokens=16 ranks=4 rank=" + std::to_string(rank) + " layout=" + layout;
      EXPECT_EQ(list(positions_by_rule(text)),
                attention(name, "rank" + std::to_string(rank) + "_positions").integers());
    }
}

TEST(Rule, PackedDocumentsRestart) {
  const Integers cu{0, 3, 3, 5}, lengths{3, 0, 2};
  const PositionArray by_end[] = {{"cu_seqlens", tensor(cu.data(), {4})}};
  const PositionArray by_length[] = {{"lengths", tensor(lengths.data(), {3})}};
  EXPECT_THAT(list(positions_by_rule("packed", by_end)), ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(list(positions_by_rule("packed_lengths first=1", by_length)),
              ElementsAre(1, 2, 3, 1, 2));
}

TEST(Rule, PaddingIsAsEachProgramHasIt) {
  const Integers mask{0, 0, 1, 1, 1, 1, 1, 0}, ids{1, 1, 7, 8, 9, 5, 5, 1};
  const PositionArray left[] = {{"mask", tensor(mask.data(), {1, 5})}};
  EXPECT_THAT(list(positions_by_rule("left_padded padded=1", left)), ElementsAre(1, 1, 0, 1, 2));
  const PositionArray tokens[] = {{"tokens", tensor(ids.data(), {1, 8})}};
  EXPECT_THAT(list(positions_by_rule("fairseq padding_idx=1", tokens)),
              ElementsAre(1, 1, 2, 3, 4, 5, 6, 1));
  const PositionArray any[] = {{"mask", tensor(mask.data(), {2, 4})}};
  EXPECT_THAT(refused("left_padded", any), HasSubstr("[left_padded]"));
}

// The defaults of the table are those of the structs.
TEST(Rule, DefaultsAreThoseOfTheFunctions) {
  const Integers types{0, 0, 1, 1, 1, 1, 0}, grid{1, 4, 4}, real{1, 1, 1, 1, 1, 1, 1};
  const PositionArray arrays[] = {{"token_types", tensor(types.data(), {1, 7})},
                                  {"image_grid", tensor(grid.data(), {1, 3})}};
  const VisionGrid image{1, 4, 4, 1};
  const RulePositions by_name = positions_by_rule("mrope", arrays);
  const MropePositions made =
      mrope_positions(MropeRule{}, tensor(types.data(), {1, 7}), {}, {&image, 1}, {});
  EXPECT_EQ(list(by_name), std::get<Integers>(made.positions.value));
  EXPECT_THAT(by_name.delta, ElementsAre(static_cast<double>(made.delta[0])));
  EXPECT_EQ(by_name.positions.axes, 3);
  const Integers ids{5, 130001, 130004, 9};
  const PositionArray tokens[] = {{"tokens", tensor(ids.data(), {1, 4})}};
  EXPECT_EQ(list(positions_by_rule("chatglm", tokens)),
            std::get<Integers>(chatglm_positions({}, tensor(ids.data(), {1, 4})).value));
  const PositionArray pixels[] = {{"mask", tensor(real.data(), {1, 7, 1})}};
  EXPECT_EQ(
      std::get<std::vector<double>>(positions_by_rule("counted_grid", pixels).positions.value),
      std::get<std::vector<double>>(counted_grid(tensor(real.data(), {1, 7, 1})).value));
  const DrawKey key{.seed = 3};
  const Cape cape{.max_global_shift = 2};
  EXPECT_EQ(std::get<std::vector<double>>(
                positions_by_rule("cape tokens=4 max_global_shift=2 seed=3").positions.value),
            std::get<std::vector<double>>(
                cape_positions(cape, 1, 4, {}, {}, draw_cape(cape, 1, 4, 1, key)).value));
}

// EVA-02: cells of a 2 x 2 image at the coordinates of the 4 x 4 one that was trained on.
TEST(Rule, GridsHaveTheirParts) {
  EXPECT_EQ(std::get<std::vector<double>>(
                positions_by_rule("scaled_grid shape=[2,2] reference=[4,4]").positions.value),
            (std::vector<double>{0, 0, 2, 2, 0, 2, 0, 2}));
  EXPECT_THAT(list(positions_by_rule("grid shape=[1,2] first=1 swap_xy=true after=1")),
              ElementsAre(1, 2, 0, 1, 1, 0));
}

TEST(Rule, RefusesByNameOfKeyOrArray) {
  const Integers v{0, 1};
  const PositionArray mask[] = {{"mask", tensor(v.data(), {2})}};
  EXPECT_THAT(refused(""), HasSubstr("must begin with its name"));
  EXPECT_THAT(refused("arrange count=3"), HasSubstr("one of arange, from_mask"));
  EXPECT_THAT(refused("arange"), HasSubstr("arange needs count="));
  EXPECT_THAT(refused("arange count"), HasSubstr("key=value"));
  EXPECT_THAT(refused("arange count="), HasSubstr("key=value"));
  EXPECT_THAT(refused("arange count=3 count=4"), HasSubstr("once"));
  EXPECT_THAT(refused("arange count=3 stride=2"), HasSubstr("one of first, count, step"));
  EXPECT_THAT(refused("arange count=3.5"), HasSubstr("count of arange must be a whole number"));
  EXPECT_THAT(refused("arange count=-1"), HasSubstr("[arange]"));
  EXPECT_THAT(refused("reversed seed=1", mask), HasSubstr("has no keys"));
  EXPECT_THAT(refused("arange count=3", mask), HasSubstr("mask is not read by arange"));
  EXPECT_THAT(refused("left_padded"), HasSubstr("left_padded needs the array mask"));
  EXPECT_THAT(refused("grid shape=24"), HasSubstr("shape of grid must be a list"));
  EXPECT_THAT(refused("grid shape=[2,x]"), HasSubstr("[24,24]"));
  EXPECT_THAT(refused("grid shape=[4] merge=2"), HasSubstr("merge needs a grid of two axes"));
  EXPECT_THAT(refused("shard tokens=8 ranks=2 rank=0 layout=snake"),
              HasSubstr("one of contiguous, zigzag, striped"));
  EXPECT_THAT(refused("random max_length=8 tokens=2 seed=-1"), HasSubstr("seed"));
  const PositionArray seconds[] = {{"token_types", tensor(v.data(), {1, 2})},
                                   {"seconds", tensor(v.data(), {2})}};
  EXPECT_THAT(refused("mrope", seconds), HasSubstr("seconds needs the array video_grid"));
}

// Every key of the table is read by its rule, and every default can be read.
TEST(Rule, EveryRuleIsInTheTableOnce) {
  std::set<std::string_view> names;
  for (const RuleInfo& r : position_rules()) {
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    EXPECT_FALSE(r.text.empty()) << r.name;
  }
  EXPECT_GE(names.size(), 30u);
}

}  // namespace
}  // namespace posenc
