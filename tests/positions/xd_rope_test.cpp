// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/xd_rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "positions/mixed_numbers.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

TEST(XdRope, AsTransformers) {
  const std::vector<peer::MixedCase> cases = peer::mixed_cases("hunyuan");
  EXPECT_EQ(cases.size(), 2u);
  for (const peer::MixedCase& c : cases) {
    SCOPED_TRACE(c.name);
    XdRopeRule rule;
    rule.axes = c.axes;
    const MropePositions p =
        xd_rope_positions(rule, tensor(c.kinds.data(), {c.batch, c.tokens}), {}, c.images);
    EXPECT_EQ(std::get<Integers>(p.positions.value),
              Integers(c.positions.begin(), c.positions.end()));
    EXPECT_EQ(p.delta, Integers(c.delta.begin(), c.delta.end()));
  }
}

MropePositions one_row(const XdRopeRule& rule, const Integers& kinds,
                       std::span<const VisionGrid> images) {
  return xd_rope_positions(rule, tensor(kinds.data(), {1, static_cast<Index>(kinds.size())}), {},
                           images);
}

TEST(XdRope, ImagesAreNumberedThroughTheBatchOrInEachRow) {
  const VisionGrid grid{1, 2, 2};
  const std::vector<VisionGrid> images(2, grid);
  const Integers kinds{1, 1, 0, 1, 1, 0};
  const auto last_stream = [&](ImageNumber n) {
    XdRopeRule rule;
    rule.image_number = n;
    const MropePositions p = xd_rope_positions(rule, tensor(kinds.data(), {2, 3}), {}, images);
    const auto& v = std::get<Integers>(p.positions.value);
    return Integers(v.end() - 6, v.end());
  };
  EXPECT_THAT(last_stream(ImageNumber::over_batch), ElementsAre(0, 0, 2, 1, 1, 2));
  EXPECT_THAT(last_stream(ImageNumber::per_row), ElementsAre(0, 0, 2, 0, 0, 2));
}

TEST(XdRope, PaddingStandsAtZeroAndChangesNothingElse) {
  const VisionGrid grid{1, 4, 4};
  const Integers kinds{7, 7, 0, 1, 1, 1, 1, 1, 1, 0}, mask{0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const Integers alone(kinds.begin() + 2, kinds.end());
  const MropePositions p = one_row({}, alone, {&grid, 1});
  const MropePositions padded = xd_rope_positions({}, tensor(kinds.data(), {1, 10}),
                                                  tensor(mask.data(), {1, 10}), {&grid, 1});
  for (std::int32_t a = 0; a < 4; ++a) {
    EXPECT_EQ(integer_position_at(padded.positions, a, 0, 1), 0);
    for (Index t = 0; t < 8; ++t)
      EXPECT_EQ(integer_position_at(padded.positions, a, 0, t + 2),
                integer_position_at(p.positions, a, 0, t));
  }
  EXPECT_EQ(padded.delta, p.delta);
}

TEST(XdRope, WhatDoesNotFitIsRefused) {
  const VisionGrid grid{1, 2, 2};
  const auto says = [&](const Integers& kinds, std::span<const VisionGrid> images,
                        XdRopeRule rule = {}) {
    return refusal([&] { one_row(rule, kinds, images); });
  };
  const std::span<const VisionGrid> one(&grid, 1);
  EXPECT_EQ(says({1, 1}, one), "accepted");
  EXPECT_EQ(says({1, 1, 1, 1}, one), "accepted");
  EXPECT_THAT(says({1, 1, 1}, one), HasSubstr("[xd_rope] a run of image tokens must hold"));
  EXPECT_THAT(says({1}, one), HasSubstr("a run of image tokens must hold"));
  EXPECT_THAT(says({0}, one), HasSubstr("every grid must have its run"));
  EXPECT_THAT(says({1, 1, 0, 1, 1}, one), HasSubstr("there are more runs"));
  EXPECT_THAT(says({2}, {}), HasSubstr("token types must be 0 text or 1 image"));
  XdRopeRule rule;
  rule.axes = 2;
  EXPECT_THAT(says({0}, {}, rule), HasSubstr("axes must be 3 or 4"));
  rule = {};
  rule.merge = 0;
  EXPECT_THAT(says({0}, {}, rule), HasSubstr("merge must be positive"));
  const VisionGrid video{2, 2, 2}, odd{1, 3, 2};
  EXPECT_THAT(says({1, 1}, {&video, 1}), HasSubstr("images must have one frame"));
  EXPECT_THAT(says({1, 1}, {&odd, 1}), HasSubstr("rows of a grid"));
  EXPECT_EQ(one_row({}, {}, {}).positions.count(), 0);
}

}  // namespace
}  // namespace posenc
