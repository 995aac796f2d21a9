// SPDX-License-Identifier: Apache-2.0
// Schemes of several axes, Fourier features and their kin, coordinates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <numbers>
#include "absolute/encoding_rows.h"
#include "posenc/absolute/aligned_rows.h"
#include "posenc/absolute/cape2d.h"
#include "posenc/absolute/continuous_axial.h"
#include "posenc/absolute/coordinates.h"
#include "posenc/absolute/crossmodal.h"
#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/learnable_fourier.h"
#include "posenc/absolute/sinusoidal_nd_presets.h"
#include "posenc/positions.h"
#include "posenc/registry.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::real;
using test::refusal;
using test::rows;
using ::testing::HasSubstr;

TEST(SinusoidalNd, AnAxisIsASinusoidOfItsOwn) {
  const SinusoidalNd s{.widths = {4, 6}, .stream = {1, 0}, .scale = {0.5, 2}};
  const OwnedPositions at = real({3.0, 5.0, 2.0, -8.0}, 2);
  const auto both = rows(s, at, 10);
  for (std::size_t t = 0; t < 2; ++t) {
    const auto& v = std::get<std::vector<double>>(at.value);
    const auto x = rows(Sinusoidal{.width = 4}, real({v[2 + t] * 0.5}), 4)[0];
    const auto y = rows(Sinusoidal{.width = 6}, real({v[t] * 2}), 6)[0];
    for (std::size_t c = 0; c < 10; ++c) EXPECT_NEAR(both[t][c], c < 4 ? x[c] : y[c - 4], 1e-15);
  }
  EXPECT_THAT(refusal([] { (SinusoidalNd{.widths = {}}.parameters()); }), HasSubstr("widths"));
  EXPECT_THAT(refusal([] { (SinusoidalNd{.widths = {0}}.parameters()); }), HasSubstr("all be 0"));
  EXPECT_THAT(refusal([] { (SinusoidalNd{.widths = {4, 3}}.parameters()); }), HasSubstr("even"));
  EXPECT_THAT(
      refusal([] {
        (SinusoidalNd{.widths = {4, 4}, .stream = {0, 0}, .arrangement = AxisArrangement::joint}
             .parameters());
      }),
      HasSubstr("every axis once"));
}

// Each block by its own descriptor: first channel, width, layout, spacing, base, scale, stream. The
// blocks are Sinusoidal with those fields; where they share channels they are summed.
TEST(SinusoidalNd, BlocksMayDiffer) {
  const SinusoidalNd s{.widths = {4, 6},
                       .stream = {1, 0},
                       .scale = {0.5, 2},
                       .starts = {5, 0},
                       .layouts = {SineLayout::halves_cos_first, SineLayout::interleaved},
                       .spacings = {SineSpacing::t2t, SineSpacing::paper},
                       .bases = {100, 2000}};
  const auto both = rows(s, real({3.0, 2.0}, 2), 9)[0];
  const auto a = rows(Sinusoidal{.width = 4,
                                 .layout = SineLayout::halves_cos_first,
                                 .spacing = SineSpacing::t2t,
                                 .base = 100},
                      real({2.0 * 0.5}), 4)[0];
  const auto b = rows(Sinusoidal{.width = 6, .base = 2000}, real({3.0 * 2}), 6)[0];
  for (std::size_t c = 0; c < 9; ++c)
    EXPECT_NEAR(both[c], (c < 6 ? b[c] : 0) + (c >= 5 ? a[c - 5] : 0), 1e-15) << c;
  EXPECT_EQ(to_text(Scheme(s)),
            "sinusoidal_nd widths=[4,6] stream=[1,0] scale=[0.5,2] starts=[5,0] "
            "layouts=[halves_cos_first,interleaved] spacings=[t2t,paper] bases=[100,2000]");
  const auto says = [](SinusoidalNd x) { return refusal([&] { (void)x.parameters(); }); };
  EXPECT_THAT(says({.widths = {4, 4}, .layouts = {SineLayout::halves}}), HasSubstr("layouts must"));
  EXPECT_THAT(says({.widths = {4, 4}, .spacings = {SineSpacing::t2t}}), HasSubstr("spacings must"));
  EXPECT_THAT(says({.widths = {4, 4}, .bases = {1, 2, 3}}), HasSubstr("bases must"));
  EXPECT_THAT(says({.widths = {4, 4}, .starts = {0}}), HasSubstr("starts must"));
  EXPECT_THAT(says({.widths = {4, 4}, .starts = {0, -1}}), HasSubstr("starts must lie"));
  EXPECT_THAT(says({.widths = {4, 4}, .bases = {100, -1}}), HasSubstr("base must"));
  for (SinusoidalNd joint :
       {SinusoidalNd{.widths = {4, 4}, .starts = {0, 4}},
        SinusoidalNd{.widths = {4, 4}, .layouts = {SineLayout::halves, SineLayout::halves}}}) {
    joint.arrangement = AxisArrangement::joint;
    EXPECT_THAT(says(joint), HasSubstr("one layout"));
  }
}

TEST(FourierFeatures, NerfAsPaperAndAsCode) {
  const std::vector<double> c{0.3, -0.7};
  const OwnedPositions at = real(c, 2);
  const auto paper = rows(fourier_presets::nerf(2, 3), at, 12)[0];
  const auto code = rows(fourier_presets::nerf_code(2, 3), at, 14)[0];
  EXPECT_EQ(code[0], c[0]);
  EXPECT_EQ(code[1], c[1]);
  for (std::size_t a = 0; a < 2; ++a)
    for (std::size_t k = 0; k < 3; ++k) {
      const double f = std::exp2(static_cast<double>(k));
      EXPECT_NEAR(paper[a * 6 + 2 * k], std::sin(f * std::numbers::pi * c[a]), 2e-15);
      EXPECT_NEAR(paper[a * 6 + 2 * k + 1], std::cos(f * std::numbers::pi * c[a]), 2e-15);
      EXPECT_NEAR(code[2 + k * 4 + a], std::sin(f * c[a]), 1e-15);
      EXPECT_NEAR(code[2 + k * 4 + 2 + a], std::cos(f * c[a]), 1e-15);
    }
  EXPECT_THAT(refusal([] { (FourierFeatures{.bands = 2}.parameters()); }), HasSubstr("last"));
}

TEST(LearnableFourier, IsItsFormula) {
  const LearnableFourier s{.width = 4, .axes = 1, .groups = 2, .features = 2, .hidden = 1};
  std::vector<double> w{0.7}, w1{0.4, -1.1}, b1{0.2}, w2{0.5, -2}, b2{0.1, 0.3};
  const ConstTensorView p[] = {tensor(w.data(), {1, 1}), tensor(w1.data(), {1, 2}),
                               tensor(b1.data(), {1}), tensor(w2.data(), {2, 1}),
                               tensor(b2.data(), {2})};
  const auto r = rows(s, real({1.5, -0.4}, 2), 4, p)[0];
  for (std::size_t g = 0; g < 2; ++g) {
    const double a = 0.7 * (g == 0 ? 1.5 : -0.4);
    const double z = (0.4 * std::cos(a) - 1.1 * std::sin(a)) / std::sqrt(2.0) + 0.2;
    const double h = z * std::erfc(-z / std::sqrt(2.0)) / 2;
    EXPECT_NEAR(r[2 * g], 0.5 * h + 0.1, 1e-15);
    EXPECT_NEAR(r[2 * g + 1], -2 * h + 0.3, 1e-15);
  }
}

TEST(ContinuousAxial, SumsANetworkOfEachAxis) {
  const ContinuousAxial s{.width = 1, .axes = 2, .hidden = 1, .depth = 1};
  std::vector<double> v[] = {{0.5}, {0.1}, {2}, {0.3}, {-1}, {0}, {3}, {-0.2}};
  std::vector<ConstTensorView> p;
  for (std::size_t i = 0; i < 8; ++i)
    p.push_back(i % 2 == 0 ? tensor(v[i].data(), {1, 1}) : tensor(v[i].data(), {1}));
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto r = rows(s, real({2.0, 5.0}, 2), 1, p)[0];
  EXPECT_NEAR(r[0], 2 * silu(0.5 * 2 + 0.1) + 0.3 + 3 * silu(-5.0) - 0.2, 1e-15);
}

// A term an axis that multiplies would make x MLP_0 MLP_1 of x (MLP_0 + MLP_1).
TEST(ContinuousAxial, SeveralAxesCanOnlyBeAdded) {
  ContinuousAxial s{.width = 1, .axes = 2, .hidden = 1, .depth = 1};
  for (const Compose c : {Compose::multiply, Compose::one_plus, Compose::concat}) {
    s.compose = c;
    EXPECT_EQ(refusal([&] { s.parameters(); }),
              "[continuous_axial] networks that are summed can only be added, got \"" +
                  std::string(enum_text(c)) + "\"");
  }
  s.axes = 1, s.activation = Activation::identity, s.compose = Compose::multiply;
  std::vector<double> v[] = {{2}, {0}, {1}, {0}}, x{10}, y{0};
  const ConstTensorView p[] = {tensor(v[0].data(), {1, 1}), tensor(v[1].data(), {1}),
                               tensor(v[2].data(), {1, 1}), tensor(v[3].data(), {1})};
  LoweredInput low;
  s.lower(p, low);
  apply_input(tensor(x.data(), {1, 1}), real({3.0}), low, tensor(y.data(), {1, 1}));
  EXPECT_EQ(y[0], 60) << "one axis: 10 * (2 * 3)";
}

TEST(Coordinates, AreChannels) {
  const auto r = rows(Coordinates{}, linspace_grid({{2, 3}}), 2);
  EXPECT_THAT(r[0], ::testing::ElementsAre(-1, -1));
  EXPECT_THAT(r[4], ::testing::ElementsAre(1, 0));
}

// Liu et al., with_r. The middle of the grid is 0 by the paper, 1/2 on both axes in the authors'
// code, although the coordinates run from -1 to 1: rr = sqrt((xx - 0.5)^2 + (yy - 0.5)^2).
TEST(Coordinates, RadiusOfThePaperAndOfTheCode) {
  const OwnedPositions grid = linspace_grid({{3, 5}});
  const auto paper = rows(Coordinates{.radius = CoordinateRadius::middle}, grid, 3);
  const auto code = rows(Coordinates{.radius = CoordinateRadius::code, .gain = 2}, grid, 3);
  for (std::size_t i = 0; i < 15; ++i) {
    const double y = static_cast<double>(i / 5) - 1, x = static_cast<double>(i % 5) / 2 - 1;
    EXPECT_THAT(paper[i], ::testing::ElementsAre(y, x, std::hypot(x, y)));
    EXPECT_EQ(code[i][0], 2 * y);
    EXPECT_NEAR(code[i][2], 2 * std::hypot(x - 0.5, y - 0.5), 5e-16);
  }
  EXPECT_EQ(paper[7][2], 0);
  EXPECT_NEAR(code[0][2] / 2, 2.1213203435596424, 1e-15);
  EXPECT_NEAR(code[7][2] / 2, 0.7071067811865476, 1e-15);
  // The slope at the centre is 0, not NaN.
  LoweredInput lowered;
  Coordinates{.radius = CoordinateRadius::middle}.lower({}, lowered);
  OwnedInputGradients g = zero_gradients(lowered, grid);
  std::vector<double> d(15 * 3, 1.0);
  input_gradient({}, grid, lowered, tensor(d.data(), {15, 3}), {}, g.terms);
  const auto* slope = static_cast<const double*>(g.terms[1].position.data);
  EXPECT_EQ(slope[7], 0);
  EXPECT_EQ(slope[15 + 7], 0);
  EXPECT_NEAR(slope[4], -1 / std::sqrt(2.0), 1e-15);  // upper right corner: y = -1, x = 1
  EXPECT_NEAR(slope[15 + 4], 1 / std::sqrt(2.0), 1e-15);
  ContinuousAxial hidden;
  hidden.width = 1, hidden.activation = Activation::root;
  EXPECT_THROW((void)hidden.parameters(), std::invalid_argument);
}

TEST(Cape2d, BothRadii) {
  const OwnedPositions at = real({0.4, -0.3}, 2);
  for (const CapeRadius radius : {CapeRadius::from_zero, CapeRadius::from_one}) {
    const auto r = rows(Cape2d{.width = 6, .radius = radius}, at, 6)[0];
    for (int n = 0; n < 3; ++n) {
      const double e = radius == CapeRadius::from_zero ? n / 2.0 : (n + 1) / 3.0;
      const double a = std::numbers::pi * std::pow(10, e) * (0.4 * std::cos(n) - 0.3 * std::sin(n));
      EXPECT_NEAR(r[static_cast<std::size_t>(n)], std::cos(a), 2e-14);
      EXPECT_NEAR(r[static_cast<std::size_t>(n) + 3], std::sin(a), 2e-14);
    }
  }
}

TEST(AlignedRows, MeansAndTheirTranspose) {
  std::vector<double> table{1, 2, 3, 4, 5, 6}, y(6), up{1, 10, 2, 20, 3, 30}, d(6, 0.0);
  const std::vector<Index> to{0, 2, -1, -1, 1, -1};
  const ConstTensorView at = tensor(to.data(), {3, 2});
  aligned_rows(tensor(table.data(), {3, 2}), at, tensor(y.data(), {3, 2}));
  EXPECT_THAT(y, ::testing::ElementsAre(3, 4, 0, 0, 3, 4));
  aligned_rows_gradient(tensor(up.data(), {3, 2}), at, tensor(d.data(), {3, 2}));
  EXPECT_THAT(d, ::testing::ElementsAre(0.5, 5, 3, 30, 0.5, 5));
  EXPECT_THAT(refusal([&] {
                aligned_rows(tensor(table.data(), {2, 2}), at, tensor(y.data(), {3, 2}));
              }),
              HasSubstr("[aligned_rows] an entry must have a row, got 2"));
}

// A word said at 1.5 s and the audio frame of that moment share their rows; a patch has no time.
TEST(CrossModal, TokensOfOneMomentShareTheirRow) {
  const CrossModal s{.width = 6, .modalities = 3, .widths = {2, 2, 2}};
  const Modality all[] = {
      {0, arange(0, 4), {0, -1, -1}, {0.5, 1, 1}, {}},               // words, half a second each
      {1, grid({2, 2}), {-1, 0, 1}, {1, 16, 16}, {}},                // patches of 16 pixels
      {2, arange(0, 100), {0, -1, -1}, {0.02, 1, 1}, {0.5, 0, 0}}};  // frames of 20 ms from 0.5 s
  const OwnedPositions at = modality_positions(all, 3);
  EXPECT_EQ(at.count(), 108);
  EXPECT_EQ(at.axes, 4);
  std::vector<double> zero(18, 0.0);
  const ConstTensorView p = tensor(zero.data(), {3, 6});
  const auto r = rows(s, at, 6, std::span(&p, 1));
  for (std::size_t c = 0; c < 6; ++c) EXPECT_NEAR(r[3][c], r[8 + 50][c], 1e-15);  // both at 1.5 s
  EXPECT_EQ(r[5][0], 0);
  EXPECT_EQ(r[5][1], 0);
  EXPECT_NEAR(r[5][4], std::sin(16.0), 1e-15);
  for (std::size_t i = 0; i < 18; ++i) zero[i] = static_cast<double>(i / 6);
  EXPECT_NEAR(rows(s, at, 6, std::span(&p, 1))[8][2], 2, 1e-15);
  EXPECT_THAT(refusal([&] { modality_positions(all, 2); }), HasSubstr("[modalities]"));
}

}  // namespace
}  // namespace posenc
