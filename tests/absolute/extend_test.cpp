// SPDX-License-Identifier: Apache-2.0
// Tables at another size: numbers of other programs, laws, refusals. The suite `absolute` has the
// rest (57 cases of torch, timm, transformers and the authors of DINOv2).
#include "posenc/absolute/extend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "posenc/core/philox.h"
#include "support/suite.h"

namespace posenc {
namespace {

std::vector<double> random_table(Index rows, Index channels, std::uint64_t seed = 1) {
  const Draws draws(seed);
  std::vector<double> v(static_cast<std::size_t>(rows * channels));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = draws.normal(i);
  return v;
}

TensorView view(std::vector<double>& v, Index channels) {
  return tensor(v.data(), {static_cast<Index>(v.size()) / channels, channels});
}

std::vector<double> extended(std::vector<double> table, const TableShape& from,
                             const TableShape& to, const Extension& e, Index channels,
                             const Executor& executor = default_executor()) {
  std::vector<double> out(static_cast<std::size_t>(to.rows() * channels));
  extend_table(view(table, channels), from, view(out, channels), to, e, executor);
  return out;
}

// Tables of relative positions by the three methods of the suite `relative_bias`.
void expect_resized(const std::string& name, const TableShape& from, const TableShape& to,
                    const Extension& e, double tolerance) {
  const support::Suite suite("relative_bias");
  const support::SuiteArray table = suite(name, "table"), want = suite(name, "resized");
  const std::vector<double> got = extended(table.value, from, to, e, table.dim(1));
  ASSERT_EQ(got.size(), want.value.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want.value[i], tolerance) << name << " " << i;
}
TEST(Extend, SwinTablesByThreeMethods) {
  expect_resized("swin_resize_bicubic", {7, 7}, {11, 11}, {ExtendHow::bicubic}, 2e-13);
  Extension levit{ExtendHow::bicubic};
  levit.antialias = true;
  expect_resized("swin_resize_levit_antialias", {11, 11}, {7, 7}, levit, 2e-13);
  expect_resized("beit_resize_geometric", {7, 7, 0, 3}, {11, 11, 0, 3}, {ExtendHow::geometric},
                 1e-12);
}

// SAM's decomposed table of 9 rows on a window of 3: five rows, so points 0.4, 2.2, 4, 5.8, 7.6.
TEST(Extend, LineByHand) {
  std::vector<double> table(9);
  for (std::size_t i = 0; i < 9; ++i) table[i] = static_cast<double>(i * i);
  const std::vector<double> got = extended(table, {9}, {5}, {ExtendHow::linear}, 1);
  const double want[] = {0.4, 4 * 0.8 + 9 * 0.2, 16, 25 * 0.2 + 36 * 0.8, 49 * 0.4 + 64 * 0.6};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(got[i], want[i], 1e-14) << i;
}

struct Way {
  const char* name;
  Extension e;
  TableShape from, to;
};
std::vector<Way> ways() {
  Extension corners{ExtendHow::bilinear}, antialias{ExtendHow::bicubic}, factor{ExtendHow::bicubic};
  Extension dino{ExtendHow::bicubic}, jax{ExtendHow::bicubic}, soft{ExtendHow::bilinear};
  corners.align_corners = true;
  antialias.antialias = true;
  factor.scale_y = 1.7, factor.scale_x = 0.6;
  dino.offset = 0.1;
  jax.a = -0.5, jax.border = ResizeBorder::renormalise;
  soft.antialias = true, soft.border = ResizeBorder::repeat;
  Extension line_factor{ExtendHow::linear};
  line_factor.scale_y = 1.7;
  return {{"linear", {ExtendHow::linear}, {7, 1, 2, 1}, {12, 1, 2, 1}},
          {"linear factor", line_factor, {7}, {11}},
          {"bilinear", {ExtendHow::bilinear}, {5, 7, 1}, {8, 3, 1}},
          {"align_corners", corners, {5, 7}, {8, 1}},
          {"bicubic", {ExtendHow::bicubic}, {4, 4, 5}, {7, 6, 5}},
          {"antialias", antialias, {9, 6, 1}, {4, 13, 1}},
          {"factor", factor, {4, 10}, {6, 6}},
          {"dino", dino, {14, 14, 1}, {16, 9, 1}},
          {"jax", jax, {6, 5}, {9, 4}},
          {"repeat", soft, {9, 6}, {4, 3}},
          {"geometric", {ExtendHow::geometric}, {7, 5, 0, 3}, {11, 9, 0, 3}},
          {"hierarchical", {ExtendHow::hierarchical}, {5, 1, 2}, {23, 1, 2}}};
}

// <y, A x> = <A' y, x>.
TEST(Extend, GradientIsTheTranspose) {
  constexpr Index channels = 3;
  for (const Way& w : ways()) {
    std::vector<double> x = random_table(w.from.rows(), channels, 2);
    std::vector<double> y = random_table(w.to.rows(), channels, 3);
    const std::vector<double> ax = extended(x, w.from, w.to, w.e, channels);
    std::vector<double> aty(x.size(), 7.0);  // overwritten
    extend_gradient(view(y, channels), w.to, view(aty, channels), w.from, w.e);
    double left = 0, right = 0, size = 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      left += y[i] * ax[i], size += std::fabs(y[i] * ax[i]);
    for (std::size_t i = 0; i < x.size(); ++i) right += x[i] * aty[i];
    EXPECT_NEAR(left, right, 1e-15 * size) << w.name;
    EXPECT_NE(left, 0) << w.name;
  }
}

// The weights of every new row sum to 1, but for the hierarchical u, whose parts do: a constant
// stays.
TEST(Extend, ConstantTablesStayConstant) {
  for (const Way& w : ways()) {
    const std::vector<double> got = extended(
        std::vector<double>(static_cast<std::size_t>(w.from.rows()), 0.7), w.from, w.to, w.e, 1);
    // Keys' weights sum to 1 within a few roundings, two axes.
    for (const double v : got) EXPECT_NEAR(v, 0.7, 1e-15) << w.name;
  }
}

TEST(Extend, EqualSizesCopyEveryBit) {
  std::vector<double> table = random_table(3 * 4 + 2, 2);
  table[3] = -0.0, table[8] = std::numeric_limits<double>::infinity();
  table[9] = std::numeric_limits<double>::quiet_NaN();
  for (const ExtendHow how : {ExtendHow::bilinear, ExtendHow::bicubic})
    for (const bool antialias : {false, true}) {
      Extension e{how};
      e.antialias = antialias;
      const std::vector<double> got = extended(table, {3, 4, 2}, {3, 4, 2}, e, 2);
      EXPECT_EQ(std::memcmp(got.data(), table.data(), 8 * table.size()), 0);
      e.scale_y = e.scale_x = 1;  // the same points by arithmetic: no row leaks into another
      const std::vector<double> computed = extended(table, {3, 4, 2}, {3, 4, 2}, e, 2);
      for (std::size_t i = 0; i < table.size(); ++i)
        EXPECT_TRUE(computed[i] == table[i] || (i == 9 && std::isnan(computed[i]))) << i;
    }
}

// torch 2.15, F.interpolate(scale_factor=(1.3, 1.5)) of a 3 x 3 grid to 3 x 4: the axis that keeps
// its size is copied, but by the cubic kernel without antialias. Gradients of 1, 2, 3 ...
TEST(Extend, AFactorLeavesAnAxisOfEqualSizeAsTorchDoes) {
  std::vector<double> grid{0, 1, 5, 2, -1, 3, 7, 4, -2}, up(12);
  for (std::size_t i = 0; i < up.size(); ++i) up[i] = static_cast<double>(i + 1);
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
  };
  Extension e{ExtendHow::bilinear};
  e.scale_y = 1.3, e.scale_x = 1.5;
  const double third = 1.0 / 3;
  expect(extended(grid, {3, 3}, {3, 4}, e, 1),
         {0, 0.5, 5 * third, 13 * third, 2, 0.5, -third, 7 * third, 7, 5.5, 3, -1});
  std::vector<double> d(9);
  extend_gradient(view(up, 1), {3, 4}, view(d, 1), {3, 3}, e);
  expect(d, {2, 12.5 * third, 11.5 * third, 8, 30.5 * third, 23.5 * third, 14, 48.5 * third,
             35.5 * third});
  e.how = ExtendHow::bicubic;
  expect(extended(grid, {3, 3}, {3, 4}, e, 1),
         {-0.245759882479, 0.125, 1.819833956553, 4.583430201011, 0.933834964345, -0.533999665737,
          -0.310364696598, 3.449816221405, 4.576758908929, 2.581279159081, 0.540485881948,
          0.680557728658});
  extend_gradient(view(up, 1), {3, 4}, view(d, 1), {3, 3}, e);
  expect(d, {2.96490202865, 6.661788381463, 5.16211250295, 15.317187677799, 20.392468317487,
             13.012322839489, 4.780410293551, 6.001298856606, 3.707509102006});
  e.antialias = true;
  expect(extended(grid, {3, 3}, {3, 4}, e, 1),
         {-0.065789473684, 0.235294117647, 1.578947368421, 4.55579868709, 2.197368421053,
          0.352941176471, -0.649885583524, 2.512035010941, 7.197368421053, 5.941176470588,
          3.045766590389, -1.35010940919});
  std::vector<double> line{0, 1, 5}, slope{1, 2, 4}, back(3);
  Extension one;
  one.scale_y = 1.3;
  EXPECT_EQ(extended(line, {3}, {3}, one, 1), line);
  extend_gradient(view(slope, 1), {3}, view(back, 1), {3}, one);
  EXPECT_EQ(back, slope);
  one = {}, one.offset = 0.1;  // the factor (3 + 0.1) / 3
  EXPECT_EQ(extended(line, {3}, {3}, one, 1), line);
  one.border = ResizeBorder::renormalise;  // nothing of torch's
  EXPECT_NE(extended(line, {3}, {3}, one, 1), line);
}

// 1 / factor beyond the integers, and beyond the doubles: the last row again and again.
TEST(Extend, PointsFarBehindATableAreItsLastRow) {
  const std::vector<double> table{0, 1, 5, 2};
  for (const double factor : {1e-3, 1e-17, 1e-19, 1e-300, 5e-324})
    for (const ExtendHow how : {ExtendHow::linear, ExtendHow::bilinear, ExtendHow::bicubic}) {
      Extension e{how};
      e.scale_y = factor;
      EXPECT_EQ(extended(table, {4}, {3}, e, 1), (std::vector<double>{2, 2, 2}))
          << enum_text(how) << " " << factor;
      e.border = ResizeBorder::renormalise;  // there no row is left to divide by
      EXPECT_THROW(extended(table, {4}, {3}, e, 1), std::invalid_argument) << factor;
    }
}

// q[0 .. n) = p bit for bit; the published form with u elsewhere.
TEST(Extend, HierarchicalKeepsItsFirstRows) {
  constexpr Index n = 6, channels = 2;
  const std::vector<double> p = random_table(n, channels, 5);
  Extension e{ExtendHow::hierarchical};
  for (const double alpha : {0.4, 0.3, 0.9}) {
    e.alpha = alpha;
    const std::vector<double> q = extended(p, {n}, {n * n}, e, channels);
    EXPECT_EQ(std::memcmp(q.data(), p.data(), 8 * p.size()), 0);
    const auto u = [&](Index t, Index c) {
      return (p[static_cast<std::size_t>(t * channels + c)] -
              alpha * p[static_cast<std::size_t>(c)]) /
             (1 - alpha);
    };
    for (Index o = 0; o < n * n; ++o)
      for (Index c = 0; c < channels; ++c)
        EXPECT_NEAR(q[static_cast<std::size_t>(o * channels + c)],
                    alpha * u(o / n, c) + (1 - alpha) * u(o % n, c), 4e-14)
            << alpha << " " << o;
  }
}

// A dumb double loop over all sixteen taps.
TEST(Extend, BicubicAgainstTheWholeSum) {
  using Wide = long double;  // the expanded polynomials cancel
  const auto keys = [](Wide x) {
    const Wide a = -0.75L;
    x = std::fabs(x);
    if (x <= 1) return (a + 2) * x * x * x - (a + 3) * x * x + 1;
    return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : Wide{0};
  };
  constexpr Index h = 6, w = 5, h2 = 9, w2 = 11, channels = 2;
  const std::vector<double> table = random_table(h * w, channels, 8);
  const std::vector<double> got = extended(table, {h, w}, {h2, w2}, {ExtendHow::bicubic}, channels);
  for (Index y = 0; y < h2; ++y)
    for (Index x = 0; x < w2; ++x)
      for (Index c = 0; c < channels; ++c) {
        const Wide sy = (static_cast<Wide>(y) + 0.5L) * h / h2 - 0.5L;
        const Wide sx = (static_cast<Wide>(x) + 0.5L) * w / w2 - 0.5L;
        Wide sum = 0;
        for (Index i = -8; i < h + 8; ++i)
          for (Index j = -8; j < w + 8; ++j)
            sum += keys(sy - static_cast<Wide>(i)) * keys(sx - static_cast<Wide>(j)) *
                   table[static_cast<std::size_t>(
                       (std::clamp<Index>(i, 0, h - 1) * w + std::clamp<Index>(j, 0, w - 1)) *
                           channels +
                       c)];
        EXPECT_NEAR(got[static_cast<std::size_t>((y * w2 + x) * channels + c)],
                    static_cast<double>(sum), 4e-15);
      }
}

// Nothing depends on who runs it; float and half tables are the double result rounded once.
TEST(Extend, ThreadsAndDtypes) {
  constexpr Index channels = 67;
  const TableShape from{14, 14, 1, 0}, to{37, 35, 1, 0};
  Extension e{ExtendHow::bicubic};
  std::vector<double> table = random_table(from.rows(), channels, 9);
  for (double& v : table) v = static_cast<double>(static_cast<float>(v));
  const std::vector<double> alone = extended(table, from, to, e, channels, inline_executor());
  EXPECT_EQ(alone, extended(table, from, to, e, channels));
  std::vector<float> narrow(table.begin(), table.end()), out(alone.size());
  extend_table(tensor(narrow.data(), {from.rows(), channels}), from,
               tensor(out.data(), {to.rows(), channels}), to, e);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<float>(alone[i])) << i;
  // Rows farther apart than their channels.
  std::vector<float> wide(static_cast<std::size_t>(from.rows()) * 80, -1.0F), again(out.size());
  for (Index r = 0; r < from.rows(); ++r)
    for (Index c = 0; c < channels; ++c)
      wide[static_cast<std::size_t>(r * 80 + c)] =
          narrow[static_cast<std::size_t>(r * channels + c)];
  const Index shape[] = {from.rows(), channels}, stride[] = {80, 1};
  extend_table(tensor(static_cast<void*>(wide.data()), DType::f32, shape, stride), from,
               tensor(again.data(), {to.rows(), channels}), to, e);
  EXPECT_EQ(out, again);
}

TEST(Extend, SixteenBitTablesRoundOnce) {
  std::vector<std::uint16_t> table{0x3f80, 0x4000, 0xc040, 0x3e99};  // bf16 1, 2, -3, 0.2988
  std::vector<std::uint16_t> out(8);
  const Index shape[] = {4, 1}, wide[] = {8, 1};
  extend_table(tensor(static_cast<void*>(table.data()), DType::bf16, shape), {4},
               tensor(static_cast<void*>(out.data()), DType::bf16, wide), {8}, {});
  // Points -0.25 .. 3.25 in steps of a half: 1, 1.25, 1.75, 0.75, -1.75, -2.175, -0.5259, 0.2988.
  const std::uint16_t want[] = {0x3f80, 0x3fa0, 0x3fe0, 0x3f40, 0xbfe0, 0xc00b, 0xbf07, 0x3e99};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], want[i]) << i;
}

// Every frame of every image, in merge blocks, from its own resize.
TEST(Extend, PackedImages) {
  constexpr Index channels = 2;
  std::vector<double> table = random_table(25, channels, 4);
  Extension e{ExtendHow::bilinear};
  e.align_corners = true;
  const std::vector<VisionGrid> images{{2, 4, 6, 1}, {1, 2, 2, 1}};
  std::vector<double> out(52 * channels);
  extend_packed(view(table, channels), {5, 5}, images, 2, view(out, channels), e);
  const std::vector<double> first = extended(table, {5, 5}, {4, 6}, e, channels);
  const Index block[] = {0, 1, 6, 7, 2, 3, 8, 9};  // the first two blocks of rows of six
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t frame = 0; frame < 2; ++frame)
      EXPECT_EQ(out[(frame * 24 + i) * channels],
                first[static_cast<std::size_t>(block[i]) * channels]);
  std::vector<double> d = random_table(52, channels, 6), gradient(table.size());
  extend_packed_gradient(view(d, channels), images, 2, view(gradient, channels), {5, 5}, e);
  double left = 0, right = 0;
  for (std::size_t i = 0; i < d.size(); ++i) left += d[i] * out[i];
  for (std::size_t i = 0; i < table.size(); ++i) right += table[i] * gradient[i];
  EXPECT_NEAR(left, right, 1e-13);
  EXPECT_THROW(extend_packed(view(table, channels), {5, 5}, images, 4, view(out, channels), e),
               std::invalid_argument);
}

TEST(Extend, Refusals) {
  const auto refused = [](const TableShape& from, const TableShape& to, const Extension& e) {
    std::vector<double> table(1000), out(1000);
    const auto rows = [](std::vector<double>& v, const TableShape& l) {
      return tensor(v.data(), {std::max<Index>(l.rows(), 0), 1});
    };
    try {
      extend_table(rows(table, from), from, rows(out, to), to, e);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  Extension e{ExtendHow::bicubic};
  EXPECT_EQ(refused({0, 4}, {4, 4}, e), "[extend] height and width must be 1 to 2^31, got 0");
  EXPECT_EQ(refused({4, 4}, {4, -1}, e), "[extend] height and width must be 1 to 2^31, got -1");
  EXPECT_EQ(refused({4, 4, 1}, {8, 8}, e),
            "[extend] prefix and suffix are kept: both layouts must have the same, rows, got 0");
  EXPECT_EQ(refused({4, 4}, {8, 8}, {ExtendHow::linear}),
            "[extend] linear is for one axis: width must be 1, got 4");
  e.align_corners = true, e.offset = 0.1;
  EXPECT_EQ(refused({4, 4}, {8, 8}, e),
            "[extend] align_corners computes points from the sizes: omit factor and offset");
  e = {ExtendHow::bicubic};
  e.scale_y = std::nan("");
  EXPECT_EQ(refused({4, 4}, {8, 8}, e), "[extend] a factor must be finite and positive, got nan");
  e = {ExtendHow::bilinear};
  e.a = -0.5;
  EXPECT_EQ(refused({4, 4}, {8, 8}, e), "[extend] a belongs to bicubic, got -0.5");
  EXPECT_EQ(refused({4, 4}, {7, 7}, {ExtendHow::geometric}),
            "[extend] geometric needs a middle: an odd number of rows, got 4");
  EXPECT_EQ(refused({5}, {26}, {ExtendHow::hierarchical}),
            "[extend] hierarchical reaches n^2 positions, n = 5, got 26");
  e = {ExtendHow::hierarchical};
  e.alpha = 0.5;
  EXPECT_EQ(refused({5}, {25}, e),
            "[extend] alpha must lie between 0 and 1 and not be 1/2, got 0.5");
  std::vector<double> table(4), out(8);
  EXPECT_THROW(extend_table(tensor(table.data(), {2, 2}), {2}, tensor(out.data(), {4, 1}), {4}, {}),
               std::invalid_argument);
  std::vector<std::int64_t> whole(4);
  EXPECT_THROW(extend_table(tensor(whole.data(), {4, 1}), {4}, tensor(out.data(), {8, 1}), {8}, {}),
               std::invalid_argument);
}

}  // namespace
}  // namespace posenc
