// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/omni.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "positions/mixed_numbers.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

OmniPositions built(const OmniRule& rule, const peer::MixedCase& c) {
  const auto view = [&](const Integers& v) { return tensor(v.data(), {c.batch, c.tokens}); };
  return omni_positions(rule, view(c.kinds), c.mask.empty() ? TensorView{} : view(c.mask), c.images,
                        c.videos);
}

// Bit for bit: integers, and float32 numbers of the peer.
void expect_case(const OmniRule& rule, const peer::MixedCase& c) {
  SCOPED_TRACE(c.name);
  const OmniPositions p = built(rule, c);
  const Positions view = p.positions;
  ASSERT_EQ(static_cast<std::size_t>(view.axes * view.batch * view.count), c.positions.size());
  std::size_t i = 0;
  for (std::int32_t a = 0; a < view.axes; ++a)
    for (Index b = 0; b < view.batch; ++b)
      for (Index t = 0; t < view.count; ++t, ++i)
        EXPECT_EQ(position_at(view, a, b, t), c.positions[i])
            << "axis " << a << " row " << b << " token " << t;
  EXPECT_EQ(p.delta, c.delta);
}

TEST(Omni, Qwen25AsTransformers) {
  const std::vector<peer::MixedCase> cases = peer::mixed_cases("qwen2_5_omni");
  EXPECT_EQ(cases.size(), 5u);
  for (const peer::MixedCase& c : cases)
    expect_case(qwen2_5_omni_rule(c.positions_per_second, 2), c);
}

TEST(Omni, Qwen3AsTransformers) {
  const std::vector<peer::MixedCase> cases = peer::mixed_cases("qwen3_omni");
  EXPECT_EQ(cases.size(), 4u);
  for (const peer::MixedCase& c : cases) expect_case(qwen3_omni_rule(c.positions_per_second), c);
}

TEST(Omni, SoundTokensAsTransformers) {
  const Index frames[] = {1, 2, 3, 4, 7, 8, 50, 100, 101, 999};
  const Index tokens[] = {0, 0, 1, 1, 2, 2, 12, 25, 25, 250};
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(qwen2_5_omni_sound_tokens(frames[i]), tokens[i]) << frames[i];
  const Index frames3[] = {1, 2, 8, 9, 99, 100, 101, 350};
  const Index tokens3[] = {1, 1, 1, 2, 13, 13, 14, 46};
  for (std::size_t i = 0; i < 8; ++i)
    EXPECT_EQ(qwen3_omni_sound_tokens(frames3[i]), tokens3[i]) << frames3[i];
  EXPECT_EQ(qwen3_omni_sound_tokens(0), 0);
  EXPECT_THROW(qwen2_5_omni_sound_tokens(-1), std::invalid_argument);
  EXPECT_THROW(qwen3_omni_sound_tokens(-1), std::invalid_argument);
  EXPECT_THROW(qwen3_omni_sound_tokens(1, 0), std::invalid_argument);
}

// <open> sound <close>: text and sound both count, whatever the rule.
OmniPositions one_row(const OmniRule& rule, const Integers& kinds,
                      std::span<const VisionGrid> images = {},
                      std::span<const VisionGrid> videos = {}) {
  return omni_positions(rule, tensor(kinds.data(), {1, static_cast<Index>(kinds.size())}), {},
                        images, videos);
}

TEST(Omni, APaddedRowHoldsWhatTheRowAloneHolds) {
  const VisionGrid video{2, 2, 2, 0.7};
  const Integers alone{0, 2, 2, 0, 0}, kinds{9, 9, 0, 2, 2, 0, 0}, mask{0, 0, 1, 1, 1, 1, 1};
  const OmniPositions p = one_row(qwen3_omni_rule(13), alone, {}, {&video, 1});
  const OmniPositions padded = omni_positions(qwen3_omni_rule(13), tensor(kinds.data(), {1, 7}),
                                              tensor(mask.data(), {1, 7}), {}, {&video, 1});
  for (std::int32_t a = 0; a < 3; ++a) {
    for (Index t = 0; t < 5; ++t)
      EXPECT_EQ(position_at(padded.positions, a, 0, t + 2), position_at(p.positions, a, 0, t));
    EXPECT_EQ(position_at(padded.positions, a, 0, 0), 0);
  }
  EXPECT_EQ(padded.delta, p.delta);
}

TEST(Omni, DecodeGoesOnBehindTheLargestPosition) {
  const VisionGrid image{1, 2, 12};
  const OmniPositions p = one_row(qwen2_5_omni_rule(25, 2), {0, 1, 1, 1, 1, 1, 1, 0}, {&image, 1});
  EXPECT_THAT(std::get<Integers>(p.positions.value), ElementsAre(0, 1, 1, 1, 1, 1, 1, 7,  //
                                                                 0, 1, 1, 1, 1, 1, 1, 7,  //
                                                                 0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(p.delta, ElementsAre(0));
}

TEST(Omni, WhatDoesNotFitIsRefused) {
  const OmniRule rule = qwen3_omni_rule(13);
  const VisionGrid grid{1, 2, 2};
  const std::span<const VisionGrid> one(&grid, 1);
  const auto image = [&](const Integers& kinds) {
    return refusal([&] { one_row(rule, kinds, one); });
  };
  EXPECT_EQ(image({0, 1, 0}), "accepted");
  EXPECT_THAT(image({1, 0}), HasSubstr("[omni] images, videos and sounds must have the tokens"));
  EXPECT_THAT(image({0, 1}), HasSubstr("must have the tokens that open and close them"));
  EXPECT_THAT(image({0, 1, 0, 3, 0}), HasSubstr("must have the tokens"));
  EXPECT_THAT(image({0, 3, 1, 0}), HasSubstr("must have the tokens"));
  EXPECT_THAT(image({0, 1, 1, 0}), HasSubstr("a grid must fill its run"));
  EXPECT_THAT(image({0, 1, 0, 0, 1, 0}), HasSubstr("there are more runs"));
  EXPECT_THAT(image({0, 0}), HasSubstr("every grid must have its run"));
  EXPECT_THAT(image({0, 4, 0}), HasSubstr("token types must be 0 text, 1 image, 2 video or 3"));
  EXPECT_THAT(image({0, -1, 0}), HasSubstr("token types"));
  EXPECT_THAT(refusal([&] { one_row(rule, {0, 2, 0}); }), HasSubstr("more runs"));
  const auto video = [&](const Integers& kinds, double seconds) {
    const VisionGrid g{2, 2, 2, seconds};
    return refusal([&] { one_row(rule, kinds, {}, {&g, 1}); });
  };
  EXPECT_EQ(video({0, 0, 2, 3, 2, 3, 0, 0}, 0.05), "accepted");
  EXPECT_THAT(video({0, 0, 2, 2, 3, 3, 0, 0}, 0.05), HasSubstr("in the order of their times"));
  EXPECT_THAT(video({0, 2, 3, 2, 3, 0, 0}, 0.05), HasSubstr("must have the tokens"));
  EXPECT_THAT(video({0, 2, 2, 0}, NAN), HasSubstr("seconds must be finite"));
  EXPECT_THAT(video({0, 2, 2, 0}, -1), HasSubstr("seconds must be finite and not negative"));
  EXPECT_THAT(video({0, 2, 2, 0}, 1e30), HasSubstr("times must be finite and below 2^53"));
  for (const double bad : {0.0, -1.0, double(NAN), double(INFINITY)})
    EXPECT_THAT(refusal([&] { one_row(qwen3_omni_rule(bad), {0}); }),
                HasSubstr("positions_per_second must be finite and positive"));
  EXPECT_THAT(refusal([&] { one_row(qwen2_5_omni_rule(25, 0.01), {0}); }),
              HasSubstr("a chunk must have 1 to 2^31 positions"));
  const VisionGrid odd{1, 3, 2};
  EXPECT_THAT(refusal([&] { one_row(rule, {0, 1, 0}, {&odd, 1}); }), HasSubstr("rows of a grid"));
  const Integers kinds{0, 0}, mask{1};
  EXPECT_THAT(
      refusal([&] {
        omni_positions(rule, tensor(kinds.data(), {1, 2}), tensor(mask.data(), {1, 1}), {}, {});
      }),
      HasSubstr("mask must have the shape"));
}

TEST(Omni, NoTokensGiveNoPositions) {
  const OmniPositions p = one_row(qwen3_omni_rule(13), {});
  EXPECT_EQ(p.positions.count(), 0);
  EXPECT_THAT(p.delta, ElementsAre(0));
}

}  // namespace
}  // namespace posenc
