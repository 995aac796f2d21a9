// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/mrope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/positions/sequence.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

std::vector<VisionGrid> grids(const support::Suite& suite, const std::string& name,
                              const std::string& kind, double seconds = 1) {
  std::vector<VisionGrid> g;
  const std::string array = name + "/" + kind + "_grid_thw";
  if (!suite.has(array)) return g;
  const Integers v = suite.array(array).integers();
  for (std::size_t i = 0; i < v.size(); i += 3) g.push_back({v[i], v[i + 1], v[i + 2], seconds});
  return g;
}

void expect_case(const support::Suite& suite, const std::string& name, const MropeRule& rule,
                 const std::string& types_name, const std::string& delta_name, double seconds = 1) {
  SCOPED_TRACE(name);
  const auto types = suite(name, types_name), mask = suite(name, "attention_mask");
  const Integers t = types.integers(), m = mask.integers();
  const auto view = [&](const Integers& v) {
    return tensor(v.data(), {types.dim(0), types.dim(1)});
  };
  const MropePositions p = mrope_positions(rule, view(t), view(m), grids(suite, name, "image"),
                                           grids(suite, name, "video", seconds));
  EXPECT_EQ(std::get<Integers>(p.positions.value), suite(name, "position_ids").integers());
  EXPECT_EQ(p.delta, suite(name, delta_name).integers());
}

TEST(Mrope, TextImagesAndVideosAsTransformers5And4) {
  const support::Suite suite("absolute");
  for (const std::string what :
       {"two_images", "short_video", "long_video", "right_padded", "padded_batch"}) {
    expect_case(suite, "mrope_hf5_qwen2vl_" + what, qwen2_vl_rule(), "token_types", "deltas");
    expect_case(suite, "mrope_hf4_qwen2vl_" + what, qwen2_vl_classic_rule(), "token_types",
                "deltas");
  }
}

TEST(Mrope, Qwen25VideosStandTheirSecondsApart) {
  const support::Suite suite("rotary_hugging_face");
  expect_case(suite, "positions_qwen2_vl_images", qwen2_vl_rule(), "mm_token_type_ids",
              "rope_deltas");
  expect_case(suite, "positions_qwen2_5_vl_video_1_0", qwen2_5_vl_rule(4), "mm_token_type_ids",
              "rope_deltas", 1.0);
  expect_case(suite, "positions_qwen2_5_vl_video_0_5", qwen2_5_vl_rule(4), "mm_token_type_ids",
              "rope_deltas", 0.5);
}

MropePositions one_row(const MropeRule& rule, const Integers& types,
                       std::span<const VisionGrid> images, std::span<const VisionGrid> videos) {
  return mrope_positions(rule, tensor(types.data(), {1, static_cast<Index>(types.size())}), {},
                         images, videos);
}

TEST(Mrope, HalfASecondIsLostWhenSecondsAreCutFirst) {
  MropeRule rule = qwen2_5_vl_rule(4);
  const VisionGrid video{3, 2, 2, 0.5};
  const Integers types{2, 2, 2};
  const auto time = [&] {
    const MropePositions p = one_row(rule, types, {}, {&video, 1});
    const auto& v = std::get<Integers>(p.positions.value);
    return Integers(v.begin(), v.begin() + 3);
  };
  EXPECT_THAT(time(), ElementsAre(0, 2, 4));
  rule.whole_seconds = true;
  EXPECT_THAT(time(), ElementsAre(0, 0, 0));
}

TEST(Mrope, Qwen3FramesAreGridsOfTheirOwnBetweenTextTimestamps) {
  // <time> frame <time> frame: a video of two frames of 2 x 2 merged patches.
  const VisionGrid video{2, 4, 4};
  const Integers types{0, 2, 2, 2, 2, 0, 2, 2, 2, 2, 0};
  const MropePositions p = one_row(qwen3_vl_rule(), types, {}, {&video, 1});
  EXPECT_THAT(std::get<Integers>(p.positions.value),
              ElementsAre(0, 1, 1, 1, 1, 3, 4, 4, 4, 4, 6,  //
                          0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6,  //
                          0, 1, 2, 1, 2, 3, 4, 5, 4, 5, 6));
  EXPECT_THAT(p.delta, ElementsAre(7 - 11));
  // Decode: cache length + delta on all streams.
  const Index deltas[] = {p.delta[0]};
  EXPECT_THAT(std::get<Integers>(shifted(repeated_axes(arange(11, 1), 3), deltas).value),
              ElementsAre(7, 7, 7));
}

TEST(Mrope, WhatDoesNotFitIsRefused) {
  const VisionGrid image{1, 4, 4};
  const std::span<const VisionGrid> one(&image, 1);
  const MropeRule rule = qwen2_vl_rule();
  const auto says = [&](const Integers& types, std::span<const VisionGrid> images) {
    return refusal([&] { one_row(rule, types, images, {}); });
  };
  EXPECT_THAT(says({1, 1, 1, 1}, {}), HasSubstr("[mrope] there are more runs"));
  EXPECT_THAT(says({0}, one), HasSubstr("[mrope] every grid must have its run"));
  EXPECT_THAT(says({1, 1, 1}, one), HasSubstr("[mrope] a grid must fit its run"));
  EXPECT_THAT(says({1, 1, 1, 1, 1}, one), HasSubstr("more runs"));
  EXPECT_THAT(says({3}, {}), HasSubstr("token types must be"));
  const VisionGrid odd{1, 3, 4}, empty{0, 4, 4}, nan{2, 4, 4, NAN};
  EXPECT_THAT(says({1, 1}, {&odd, 1}), HasSubstr("rows of a grid"));
  EXPECT_THAT(says({1, 1}, {&empty, 1}), HasSubstr("at least one frame"));
  EXPECT_THAT(says({1, 1}, {&nan, 1}), HasSubstr("seconds must be finite"));
  MropeRule zero = rule;
  zero.merge = 0;
  EXPECT_THAT(refusal([&] { one_row(zero, {0}, {}, {}); }), HasSubstr("merge must be positive"));
  const Integers types{0, 0}, mask{1};
  EXPECT_THAT(
      refusal([&] {
        mrope_positions(rule, tensor(types.data(), {1, 2}), tensor(mask.data(), {1, 1}), {}, {});
      }),
      HasSubstr("mask must have the shape"));
  const VisionGrid late{3, 2, 2, 1e300};
  EXPECT_THAT(refusal([&] { one_row(rule, {2, 2, 2}, {}, {&late, 1}); }), HasSubstr("64 bits"));
}

TEST(Mrope, NoTokensGiveNoPositions) {
  const MropePositions p = one_row(qwen2_vl_rule(), {}, {}, {});
  EXPECT_EQ(p.positions.count(), 0);
  EXPECT_THAT(p.delta, ElementsAre(0));
}

}  // namespace
}  // namespace posenc
