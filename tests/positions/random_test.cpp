// SPDX-License-Identifier: Apache-2.0
// Positions that are drawn: laws of the draws, the same for any batch split, published settings.
#include "posenc/positions/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "posenc/positions/grid.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<double>& reals(const OwnedPositions& p) {
  return std::get<std::vector<double>>(p.value);
}
const std::vector<Index>& wholes(const OwnedPositions& p) {
  return std::get<std::vector<Index>>(p.value);
}

const Cape kText{.max_global_shift = 5, .max_local_shift = 0.5, .max_global_scaling = 1.03};

TEST(Cape, DrawsStayInsideTheirBoundsAndFillThem) {
  const CapeDraws d = draw_cape(kText, 500, 20, 1, {7, 3, 0});
  const auto [low, high] = std::minmax_element(d.shift.begin(), d.shift.end());
  EXPECT_GT(*low, -5);
  EXPECT_LT(*high, 5);
  EXPECT_LT(*low, -4.9);
  EXPECT_GT(*high, 4.9);
  double sum = 0, most = 0, scale = 0;
  for (const double x : d.local) sum += x, most = std::max(most, std::fabs(x));
  for (const double x : d.log_scale) scale = std::max(scale, std::fabs(x));
  EXPECT_LT(most, 0.5);
  EXPECT_GT(most, 0.499);
  EXPECT_NEAR(sum / 10000, 0, 5 * 0.289 / 100);
  EXPECT_LT(scale, std::log(1.03));
  EXPECT_GT(scale, 0.99 * std::log(1.03));
  Cape half = kText;
  half.local = CapeLocal::half;
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(draw_cape(half, 500, 20, 1, {7, 3, 0}).local[i], d.local[i] / 2);
}

TEST(Cape, ABatchSplitInAnyWayDrawsTheSame) {
  const CapeDraws whole = draw_cape(kText, 4, 6, 1, {7, 3, 10});
  const CapeDraws part = draw_cape(kText, 2, 6, 1, {7, 3, 12});
  for (std::size_t b = 0; b < 2; ++b) {
    EXPECT_EQ(part.shift[b], whole.shift[b + 2]);
    EXPECT_EQ(part.log_scale[b], whole.log_scale[b + 2]);
    for (std::size_t t = 0; t < 6; ++t)
      EXPECT_EQ(part.local[b * 6 + t], whole.local[(b + 2) * 6 + t]);
  }
  EXPECT_NE(draw_cape(kText, 1, 1, 1, {7, 4, 10}).shift[0], whole.shift[0]);
  EXPECT_NE(draw_cape(kText, 1, 1, 1, {8, 3, 10}).shift[0], whole.shift[0]);
}

TEST(Cape, EvaluationIsPlainPositions) {
  EXPECT_THAT(reals(cape_positions(kText, 1, 4, {}, {}, {})), ElementsAre(0, 1, 2, 3));
  Cape audio = kText;
  audio.normalise = true;
  const double step = 0.5, lengths[] = {1.5, 9};
  // Three positions below 1.5 s; the mean of 0, .5, 1 is .5.
  EXPECT_THAT(reals(cape_positions(audio, 2, 4, std::span(&step, 1), lengths, {}, -7)),
              ElementsAre(-0.5, 0, 0.5, -7, -0.75, -0.25, 0.25, 0.75));
  audio.padding = CapePadding::after_length;  // one token of padding stays
  EXPECT_THAT(reals(cape_positions(audio, 2, 4, std::span(&step, 1), lengths, {}, -7)),
              ElementsAre(-0.75, -0.25, 0.25, 0.75, -0.75, -0.25, 0.25, 0.75));
}

TEST(Cape, TrainingMovesAndStretches) {
  const CapeDraws d{{1}, {0.25, -0.25}, {std::log(2.0)}};
  const double step = 2;
  const auto p = reals(cape_positions(kText, 1, 2, std::span(&step, 1), {}, d));
  EXPECT_NEAR(p[0], (0 + 1 + 0.5) * 2, 1e-15);
  EXPECT_NEAR(p[1], (2 + 1 - 0.5) * 2, 1e-15);
  const CapeDraws two{{0.5, -0.5}, {}, {0}};
  EXPECT_THAT(reals(cape_grid_positions(2, 2, 1, two)),
              ElementsAre(-0.5, -0.5, 1.5, 1.5, -1.5, 0.5, -1.5, 0.5));
  CapeDraws local{{}, std::vector<double>(12, 0.5), {}};
  EXPECT_NEAR(reals(cape_grid_positions(2, 3, 1, local, CapeStep::first_axis))[6], 0, 1e-15);
  EXPECT_NEAR(reals(cape_grid_positions(2, 3, 1, local, CapeStep::own_axis))[6], -0.5, 1e-15);
}

TEST(Shape, PaperAndCodeDrawFromDifferentRanges) {
  const auto extremes = [](const ShapeShift& s, Index tokens) {
    const std::vector<Index> k = shape_offsets(s, 2000, tokens, {1, 2, 0});
    return std::pair{*std::min_element(k.begin(), k.end()), *std::max_element(k.begin(), k.end())};
  };
  EXPECT_EQ(extremes({.max_shift = 12}, 5), (std::pair<Index, Index>{0, 12}));
  const ShapeShift code{.max_shift = 12, .variant = ShapeVariant::code, .table = 40};
  EXPECT_EQ(extremes(code, 5), (std::pair<Index, Index>{0, 11}));
  EXPECT_EQ(extremes(code, 33), (std::pair<Index, Index>{0, 6}));  // min(40 - 33, 12) - 1
  EXPECT_EQ(shape_evaluation_offset(code), 12);                    // never drawn
  EXPECT_EQ(shape_evaluation_offset({.max_shift = 12}), 0);
  EXPECT_THAT(refusal([&] { shape_offsets(code, 1, 40, {}); }), HasSubstr("[shape]"));
  for (const Index shift : {kUnbounded, Index{-1}})
    EXPECT_EQ(refusal([&] { shape_offsets({.max_shift = shift}, 1, 1, {}); }),
              "[shape] max_shift must lie between 0 and 2^63 - 2, got " + std::to_string(shift));
  EXPECT_EQ(shape_offsets({.max_shift = 12}, 3, 5, {1, 2, 4})[1],
            shape_offsets({.max_shift = 12}, 1, 5, {1, 2, 5})[0]);
}

TEST(Randomised, DistinctOrderedAndFair) {
  for (const auto& [most, count] : std::vector<std::pair<Index, Index>>{
           {12, 12}, {40, 7}, {2048, 40}, {Index{1} << 40, 9}, {5, 0}}) {
    const std::vector<Index> p = wholes(random_positions(most, count, {5, 6, 7}));
    ASSERT_EQ(static_cast<Index>(p.size()), count);
    for (std::size_t i = 0; i < p.size(); ++i) {
      EXPECT_GE(p[i], i == 0 ? 0 : p[i - 1] + 1);
      EXPECT_LT(p[i], most);
    }
  }
  EXPECT_EQ(wholes(random_positions(12, 12, {})), wholes(arange(0, 12)));
  for (const Index count : {2, 6}) {  // both ways of drawing
    std::vector<int> seen(8, 0);
    for (std::uint64_t step = 0; step < 4000; ++step) {
      const std::vector<Index> p = wholes(random_positions(8, count, {9, step, 0}));
      for (const Index x : p) ++seen[static_cast<std::size_t>(x)];
    }
    const double each = 4000 * static_cast<double>(count) / 8;
    for (const int n : seen) EXPECT_NEAR(n, each, 5 * std::sqrt(each));
  }
  EXPECT_THAT(refusal([] { random_positions(4, 5, {}); }), HasSubstr("[randomised]"));
}

TEST(Randomised, AFirstPositionOfZeroLeavesTheOthers) {
  const DrawKey key{5, 6, 7};
  std::vector<Index> drawn = wholes(random_positions(2048, 9, key));
  ASSERT_GT(drawn.front(), 0);
  drawn.front() = 0;
  EXPECT_EQ(wholes(random_positions(2048, 9, key, RandomisedFirst::zero)), drawn);
  EXPECT_EQ(wholes(random_positions(2048, 1, key, RandomisedFirst::zero)), std::vector<Index>{0});
  EXPECT_EQ(random_positions(2048, 0, key, RandomisedFirst::zero).count(), 0);
}

TEST(Randomised, DistancesAreTheirOwnDraw) {
  const std::vector<Index> d = random_distances(40, 7, {5, 6, 7});
  ASSERT_EQ(d.size(), 7u);
  EXPECT_EQ(d[0], 0);
  for (std::size_t i = 1; i < d.size(); ++i) EXPECT_GT(d[i], d[i - 1]);
  EXPECT_LT(d.back(), 40);
  EXPECT_EQ(random_distances(7, 7, {}), wholes(arange(0, 7)));
  EXPECT_TRUE(random_distances(3, 0, {}).empty());
}

TEST(Lengths, AMaskMustSayTheSame) {
  const std::vector<Index> lengths{3, 1};
  EXPECT_THAT(wholes(from_lengths(lengths, 4, -1, 2)), ElementsAre(2, 3, 4, -1, 2, -1, -1, -1));
  std::vector<std::uint8_t> mask{1, 1, 1, 0, 1, 0, 0, 0};
  EXPECT_NO_THROW(from_lengths(lengths, 4, -1, 0, tensor(mask.data(), {2, 4})));
  mask[3] = 1;
  EXPECT_THAT(refusal([&] {
                from_lengths(lengths, 4, -1, 0, tensor(mask.data(), {2, 4}));
              }),
              HasSubstr("[from_lengths] mask contradicts"));
  EXPECT_THAT(refusal([&] { from_lengths(lengths, 2, -1); }), HasSubstr("lengths"));
}

TEST(CountedGrid, CountsVisiblePixelsFromOne) {
  const std::vector<std::uint8_t> mask{1, 1, 0, 1, 1, 0};
  const auto v = reals(counted_grid(tensor(mask.data(), {1, 2, 3}), {.normalise = false}));
  EXPECT_THAT(v, ElementsAre(1, 1, 0, 2, 2, 0, 1, 2, 2, 1, 2, 2));
  const auto n = reals(counted_grid(tensor(mask.data(), {1, 2, 3}), {.scale = 1, .eps = 0}));
  EXPECT_THAT(n, ElementsAre(0.5, 0.5, 0, 1, 1, 0, 0.5, 1, 1, 0.5, 1, 1));
  EXPECT_THAT(refusal([&] {
                counted_grid(tensor(mask.data(), {2, 3}));
              }),
              HasSubstr("[counted_grid]"));
  const std::vector<std::uint8_t> wrong{2};
  EXPECT_NE(refusal([&] { counted_grid(tensor(wrong.data(), {1, 1, 1})); }), "accepted");
}

TEST(Reversed, FromTheEndOfEveryRow) {
  EXPECT_THAT(wholes(reversed(explicit_positions(std::vector<Index>{1, 2, 3, 7, 8, 9}, 2))),
              ElementsAre(3, 2, 1, 9, 8, 7));
  const double size[] = {4, 8};
  EXPECT_THAT(reals(normalised(explicit_positions(std::vector<Index>{1, 4}, 1, 2), size)),
              ElementsAre(-0.5, 0));
}

}  // namespace
}  // namespace posenc
