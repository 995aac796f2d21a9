// SPDX-License-Identifier: Apache-2.0
// Against GLM's own worked example (arXiv:2103.10360, figure 2) and the position ids that the
// released code of ChatGLM-6B gives (get_position_ids of THUDM/chatglm-6b, by hand).
#include "posenc/positions/glm.h"

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

constexpr Index kMask = 130000, kGMask = 130001, kSMask = 130002, kStart = 130004;

// x1 x2 [M] x4 [M] [S] x5 x6 [S] x3: the paper counts from 1.
TEST(Glm, TheExampleOfThePaper) {
  const GlmSpan spans[] = {{4, 3}, {2, 2}};
  const OwnedPositions p = glm_positions(5, spans);
  EXPECT_EQ(p.axes, 2);
  EXPECT_THAT(std::get<Integers>(shifted(p, Index{1}).value),
              ElementsAre(1, 2, 3, 4, 5, 5, 5, 5, 3, 3,  //
                          1, 1, 1, 1, 1, 2, 3, 4, 2, 3));
}

OwnedPositions chatglm(const ChatGlmRule& rule, const Integers& ids) {
  return chatglm_positions(rule, tensor(ids.data(), {static_cast<Index>(ids.size())}));
}

// 5 6 7 [gMASK] <sop> 8 9
TEST(Glm, ChatGlmStaysAtItsMask) {
  for (const Index mask : {kMask, kGMask, kSMask})
    EXPECT_THAT(std::get<Integers>(chatglm({}, {5, 6, 7, mask, kStart, 8, 9}).value),
                ElementsAre(0, 1, 2, 3, 3, 3, 3,  //
                            0, 0, 0, 0, 1, 2, 3));
  // The mask inside the context.
  EXPECT_THAT(std::get<Integers>(chatglm({}, {5, kMask, 7, kStart, 8}).value),
              ElementsAre(0, 1, 2, 1, 1,  //
                          0, 0, 0, 1, 2));
}

TEST(Glm, ChatGlmWithOneStreamCountsOnBehindGmask) {
  ChatGlmRule rule;
  rule.two_streams = false;
  rule.gmask_counts_on = true;
  EXPECT_THAT(std::get<Integers>(chatglm(rule, {5, kGMask, kStart, 8}).value),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(std::get<Integers>(chatglm(rule, {5, kMask, kStart, 8}).value),
              ElementsAre(0, 1, 1, 1));
  rule.two_streams = true;
  EXPECT_THAT(std::get<Integers>(chatglm(rule, {5, kGMask, kStart, 8}).value),
              ElementsAre(0, 1, 2, 3, 0, 0, 1, 2));
}

// A token decoded later stands where the whole row would put it, and a padded row where the row
// alone would.
TEST(Glm, RowsPaddedOnTheLeft) {
  const Integers ids{3, 3, 5, kGMask, kStart, 8, 5, 6, 7, kGMask, kStart, 8},
      mask{0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  const OwnedPositions p =
      chatglm_positions({}, tensor(ids.data(), {2, 6}), tensor(mask.data(), {2, 6}));
  EXPECT_EQ(p.batch, 2);
  EXPECT_THAT(std::get<Integers>(p.value), ElementsAre(0, 0, 0, 1, 1, 1, 0, 1, 2, 3, 3, 3,  //
                                                       0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 2));
}

// The streams that the peer's rotation was run with are those of a row of this kind.
TEST(Glm, PositionsOfTheSuite) {
  const support::Suite suite("rotary_engines");
  const Integers first = suite("paper_glm_2d", "position_ids").integers();
  const Integers second = suite("paper_glm_2d", "block_position_ids").integers();
  Index context = 0;
  while (context < static_cast<Index>(second.size()) &&
         second[static_cast<std::size_t>(context)] == 0)
    ++context;
  const Index tokens = static_cast<Index>(first.size());
  ASSERT_GT(context, 0);
  ASSERT_LT(context, tokens);
  const GlmSpan span{first[static_cast<std::size_t>(context)], tokens - context};
  Integers want = first;
  want.insert(want.end(), second.begin(), second.end());
  EXPECT_EQ(std::get<Integers>(glm_positions(context, {&span, 1}).value), want);
}

TEST(Glm, WhatDoesNotFitIsRefused) {
  const auto says = [](const Integers& ids) { return refusal([&] { chatglm({}, ids); }); };
  EXPECT_THAT(says({5, kGMask, 8}), HasSubstr("[chatglm] a batch entry must hold the start token"));
  EXPECT_THAT(says({5, kStart, kGMask}), HasSubstr("must hold [MASK], [sMASK] or [gMASK] before"));
  EXPECT_THAT(says({kMask, kGMask, kStart}), HasSubstr("masks of one kind"));
  EXPECT_EQ(says({kMask, 5, kMask, kStart}), "accepted");
  const auto spans = [](Index context, GlmSpan s) {
    return refusal([&] { glm_positions(context, {&s, 1}); });
  };
  EXPECT_THAT(spans(-1, {0, 0}), HasSubstr("[glm] context must be from 0"));
  EXPECT_THAT(spans(2, {2, 1}), HasSubstr("a mask must be inside the context of 2, got 2"));
  EXPECT_THAT(spans(2, {-1, 1}), HasSubstr("a mask must be inside"));
  EXPECT_THAT(spans(2, {1, -1}), HasSubstr("tokens of a span"));
  EXPECT_THAT(spans(2, {1, Index{1} << 62}), HasSubstr("tokens of a span"));
  EXPECT_EQ(glm_positions(0, {}).count(), 0);
  const Integers ids{5, kGMask, kStart}, mask{1, 1};
  EXPECT_THAT(refusal([&] {
                chatglm_positions({}, tensor(ids.data(), {1, 3}), tensor(mask.data(), {1, 2}));
              }),
              HasSubstr("mask must have the shape"));
}

}  // namespace
}  // namespace posenc
