// SPDX-License-Identifier: Apache-2.0
// Fields that follow from the sizes of a model.
#include "posenc/registry/complete.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "posenc/registry/fields.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string completed(std::string_view text, const ModelSizes& sizes) {
  return to_text(complete(text, sizes).encoding);
}

constexpr ModelSizes kSizes{.heads = 8, .head_dim = 64, .width = 768, .rows = 512, .causal = true};

TEST(Complete, FieldsFollowFromTheSizes) {
  EXPECT_EQ(completed("rope pairing=half_split", kSizes), "rope head_dim=64 pairing=half_split");
  EXPECT_EQ(completed("pope", kSizes), "pope head_dim=64");
  EXPECT_EQ(completed("t5", kSizes), "t5 bidirectional=false");
  EXPECT_EQ(completed("t5", {.causal = false}), "t5 bidirectional=true");
  EXPECT_EQ(completed("learned", kSizes), "learned width=768 rows=512");
  EXPECT_EQ(completed("transformer_xl", kSizes), "transformer_xl d_model=768");
  EXPECT_EQ(completed("conformer_absolute_key", kSizes),
            "conformer_absolute_key d_model=768 rows=512");
}

TEST(Complete, WidthIsThatOfAllHeadsUnlessItIsGiven) {
  EXPECT_EQ(completed("transformer_xl", {.heads = 8, .head_dim = 64}),
            "transformer_xl d_model=512");
  EXPECT_THAT(test::refusal([] { complete("transformer_xl", {.heads = 8}); }),
              HasSubstr("d_model must be given"));
}

TEST(Complete, ScalingsListsAndQuotesStay) {
  EXPECT_EQ(completed("rope pairing=half_split + longrope short_factor=[1, 2] long_factor=[2, 4] "
                      "original_context=4096 switch_rule=per_call",
                      {.head_dim = 4}),
            "rope head_dim=4 pairing=half_split + longrope short_factor=[1,2] long_factor=[2,4] "
            "original_context=4096 switch_rule=per_call");
  const ArrayLookup two = [](std::string_view) { return std::vector<double>{0.5, 0.25}; };
  EXPECT_EQ(
      to_text(complete("rope pairing=half_split + frequencies values=@f", {.head_dim = 4}, two)
                  .encoding),
      "rope head_dim=4 pairing=half_split + frequencies values=[0.5,0.25]");
}

TEST(Complete, WhatTheTextHasStays) {
  const Completed own = complete("rope head_dim=128 pairing=half_split", kSizes);
  EXPECT_EQ(to_text(own.encoding), "rope head_dim=128 pairing=half_split");
  EXPECT_TRUE(own.filled.empty());
  EXPECT_THAT(complete("learned width=32", kSizes).filled, ElementsAre("rows"));
  // A default is no gap: alibi_heads, the width of FIRE's network, causal of an offset.
  EXPECT_EQ(completed("fire", kSizes), "fire");
  EXPECT_EQ(completed("alibi", kSizes), "alibi");
  EXPECT_EQ(completed("distance_offset", kSizes), "distance_offset width=768");
}

TEST(Complete, SizesOfPresets) {
  EXPECT_EQ(completed("sinusoidal preset=fairseq", kSizes),
            to_text(parse_encoding("sinusoidal preset=fairseq width=768")));
  EXPECT_EQ(completed("learned preset=opt", kSizes),
            to_text(parse_encoding("learned preset=opt width=768 positions=512")));
}

TEST(Complete, RefusesAsTheGrammarDoes) {
  EXPECT_THAT(test::refusal([] { complete("rope", kSizes); }), HasSubstr("pairing must be given"));
  EXPECT_THAT(test::refusal([] { complete("ropee", kSizes); }), HasSubstr("did you mean rope"));
  EXPECT_THAT(test::refusal([] { complete("t5", {.heads = 2}); }),
              HasSubstr("bidirectional must be given"));
  EXPECT_THAT(test::refusal([] { complete("rope pairing=half_split", {.head_dim = -2}); }),
              HasSubstr("head_dim"));
}

// A new scheme with a required field decides here whether a size gives it.
TEST(Complete, EveryRequiredFieldIsDecided) {
  const std::set<std::string_view> own{
      "pairing",  "sections", "layout",     "axes_dim", "frequencies", "center", "widths", "bands",
      "features", "hidden",   "modalities", "shape",    "vocabulary",  "left",   "window", "size"};
  const std::set<std::string> of_a_network{"indexed rows", "hierarchy rows",
                                           "dynamic_position_bias width"};
  for (const SchemeInfo& s : all_schemes()) {
    std::string text(s.card.name);
    for (const FieldInfo& f : s.fields) {
      if (!f.required || own.count(f.name) > 0) continue;
      if (of_a_network.count(text + " " + std::string(f.name)) > 0) continue;
      std::string got;
      try {
        got = ::testing::PrintToString(complete(text, kSizes).filled);
      } catch (const std::invalid_argument& e) {
        got = e.what();
        EXPECT_EQ(got.find(std::string(f.name) + " must be given"), std::string::npos) << text;
      }
    }
  }
}

}  // namespace
}  // namespace posenc
