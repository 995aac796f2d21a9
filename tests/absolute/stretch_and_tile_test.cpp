// SPDX-License-Identifier: Apache-2.0
// Ways of making a table longer that people publish: position interpolation and copies of the rows;
// and sizes that do not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "posenc/absolute/extend.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> longer(std::vector<double> table, const TableShape& from, const TableShape& to,
                           const Extension& e) {
  std::vector<double> out(static_cast<std::size_t>(to.rows()));
  extend_table(tensor(table.data(), {from.rows(), 1}), from, tensor(out.data(), {to.rows(), 1}), to,
               e);
  return out;
}

Extension stretch(std::optional<ResizeBorder> border = {}, std::optional<double> scale = {}) {
  Extension e{ExtendHow::stretch};
  e.border = border;
  e.scale_y = scale;
  return e;
}

// LongEmbed (dwzhu-pku/LongEmbed): new row o is (1 - r) old[o / s] + r old[o / s + 1],
// r = o mod s / s, and the last rows repeat.
TEST(Stretch, IsPositionInterpolationOfLongEmbed) {
  EXPECT_THAT(longer({0, 8, 4}, {3}, {12}, stretch()),
              ElementsAre(0, 2, 4, 6, 8, 7, 6, 5, 4, 4, 4, 4));
}

// Long-CLIP (beichenzbc/Long-CLIP): the first rows are kept, the last step goes on.
TEST(Stretch, KeepsRowsAndGoesOnAsLongClip) {
  EXPECT_THAT(longer({7, 6, 0, 8, 4}, {3, 1, 2}, {12, 1, 2}, stretch(ResizeBorder::extrapolate)),
              ElementsAre(7, 6, 0, 2, 4, 6, 8, 7, 6, 5, 4, 3, 2, 1));
}

TEST(Stretch, TakesAFactorInsteadOfTheSizes) {
  EXPECT_THAT(longer({0, 8, 4}, {3}, {5}, stretch({}, 2)), ElementsAre(0, 4, 8, 6, 4));
  EXPECT_THAT(longer({0, 8, 4}, {3}, {4}, stretch({}, 0.5)), ElementsAre(0, 4, 4, 4));
  EXPECT_THAT(longer({0, 8, 4}, {3}, {3}, stretch()), ElementsAre(0, 8, 4));
}

// Longformer: rows 0 and 1 kept, row 2 + i is old row 2 + i mod 512.
TEST(Tile, CopiesTheRowsBehindTheKeptOnes) {
  EXPECT_THAT(longer({7, 6, 0, 8, 4}, {3, 1, 2}, {8, 1, 2}, {ExtendHow::tile}),
              ElementsAre(7, 6, 0, 8, 4, 0, 8, 4, 0, 8));
}

// <y, A x> = <A' y, x>.
TEST(StretchAndTile, GradientsAreTheTranspose) {
  for (const Extension& e : {stretch(), stretch(ResizeBorder::extrapolate), stretch({}, 1.7),
                             Extension{ExtendHow::tile}}) {
    std::vector<double> x, y, back(6);
    for (int i = 0; i < 6; ++i) x.push_back(std::sin(3.0 * i + 1));
    for (int i = 0; i < 14; ++i) y.push_back(std::cos(5.0 * i + 2));
    const TableShape from{4, 1, 1, 1}, to{12, 1, 1, 1};
    const std::vector<double> ax = longer(x, from, to, e);
    extend_gradient(tensor(y.data(), {14, 1}), to, tensor(back.data(), {6, 1}), from, e);
    double left = 0, right = 0;
    for (std::size_t i = 0; i < y.size(); ++i) left += y[i] * ax[i];
    for (std::size_t i = 0; i < x.size(); ++i) right += x[i] * back[i];
    EXPECT_NEAR(left, right, 1e-14);
  }
}

TEST(StretchAndTile, Refusals) {
  const auto of = [](const Extension& e, const TableShape& from, const TableShape& to) {
    return refusal(
        [&] { (void)longer(std::vector<double>(std::size_t(from.rows())), from, to, e); });
  };
  Extension e = stretch();
  e.align_corners = true;
  EXPECT_THAT(of(e, {3}, {6}), HasSubstr("no sampling options but scale and border"));
  EXPECT_THAT(of(stretch(ResizeBorder::renormalise), {3}, {6}), HasSubstr("repeat or extrapolate"));
  EXPECT_THAT(of(stretch(ResizeBorder::extrapolate), {1}, {6}),
              HasSubstr("two rows or more, got 1"));
  EXPECT_THAT(of(stretch({}, -1), {3}, {6}), HasSubstr("finite and positive"));
  EXPECT_THAT(of(stretch(), {3, 3}, {6, 6}), HasSubstr("stretch is for one axis"));
  e = {ExtendHow::tile};
  e.scale_y = 2;
  EXPECT_THAT(of(e, {3}, {6}), HasSubstr("has no sampling options, got \"tile\""));
  e = {ExtendHow::linear};
  e.border = ResizeBorder::extrapolate;
  EXPECT_THAT(of(e, {3}, {6}), HasSubstr("extrapolate must be with stretch, got \"linear\""));
}

TEST(TableRows, ByTheNamesOfTensors) {
  for (const char* name : {"layers.0.blocks.1.attn.relative_position_bias_table",
                           "encoder.layer.0.attention.rel_pos_w", "self.distance_embedding.weight"})
    EXPECT_EQ(table_rows_of(name), TableRows::offsets) << name;
  for (const char* name : {"block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                           "attention.rel_attn_embed.weight", "encoder.rel_pos_x_bias.weight"})
    EXPECT_EQ(table_rows_of(name), TableRows::buckets) << name;
  EXPECT_EQ(table_rows_of("embeddings.position_embeddings.weight"), TableRows::positions);
}

TEST(TableRows, SizesThatDoNotExist) {
  const auto of = [](TableRows rows, const TableShape& from, const TableShape& to, ExtendHow how) {
    Extension e{how};
    e.rows = rows;
    return refusal(
        [&] { (void)longer(std::vector<double>(std::size_t(from.rows())), from, to, e); });
  };
  EXPECT_THAT(of(TableRows::offsets, {13, 13}, {12, 23}, ExtendHow::bicubic),
              HasSubstr("an odd number of rows on each axis, 2 N - 1 of a window of N, got 12"));
  EXPECT_THAT(of(TableRows::offsets, {13, 13, 3}, {23, 23, 3}, ExtendHow::bicubic),
              HasSubstr("prefix of a table of offsets must be 0"));
  EXPECT_THAT(of(TableRows::buckets, {32}, {64}, ExtendHow::linear),
              HasSubstr("a table of buckets must keep its number of rows"));
  Extension e{ExtendHow::bicubic};
  e.rows = TableRows::offsets;
  EXPECT_NO_THROW((void)longer(std::vector<double>(28), {5, 5, 0, 3}, {9, 9, 0, 3}, e));
}

}  // namespace
}  // namespace posenc
