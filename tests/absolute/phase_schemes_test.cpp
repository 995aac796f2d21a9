// SPDX-License-Identifier: Apache-2.0
// Sinusoids' laws and numbers, presets, schemes of several axes, Fourier features and their kin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "posenc/absolute/aligned_rows.h"
#include "posenc/absolute/cape2d.h"
#include "posenc/absolute/continuous_axial.h"
#include "posenc/absolute/coordinates.h"
#include "posenc/absolute/crossmodal.h"
#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/learnable_fourier.h"
#include "posenc/absolute/sinusoidal_laws.h"
#include "posenc/absolute/sinusoidal_nd_presets.h"
#include "posenc/absolute/sinusoidal_presets.h"
#include "posenc/positions.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "accepted";
}

// The encoding alone, [token][channel].
template <class S>
std::vector<std::vector<double>> rows(const S& s, const Positions& at, Index width,
                                      std::span<const TensorView> parameters = {}) {
  LoweredInput low;
  s.lower(parameters, low);
  std::vector<double> y(static_cast<std::size_t>(at.count * width));
  apply_input({}, at, low, tensor(y.data(), {at.count, width}));
  std::vector<std::vector<double>> out;
  for (Index t = 0; t < at.count; ++t)
    out.emplace_back(y.begin() + t * width, y.begin() + (t + 1) * width);
  return out;
}
OwnedPositions real(std::vector<double> v, std::int32_t axes = 1) {
  return explicit_positions(std::move(v), 1, axes);
}
double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i) s += a[i] * b[i];
  return s;
}
std::vector<double> times(const std::vector<double>& m, const std::vector<double>& x) {
  std::vector<double> y(x.size(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += m[i * x.size() + j] * x[j];
  return y;
}

// The classic worked example: four channels, positions 0 and 1; divisors 1 and 100.
TEST(SinusoidalFacts, FourChannelsAtPositionsZeroAndOne) {
  const auto r = rows(Sinusoidal{.width = 4}, arange(0, 2), 4);
  EXPECT_THAT(r[0], ::testing::ElementsAre(0, 1, 0, 1));
  EXPECT_NEAR(r[1][0], 0.8414709848078965, 1e-16);
  EXPECT_NEAR(r[1][1], 0.5403023058681398, 1e-16);
  EXPECT_NEAR(r[1][2], 0.009999833334166664, 1e-17);
  EXPECT_NEAR(r[1][3], 0.9999500004166653, 1e-16);  // 1.0000 to four places, not 0.9999
}

TEST(SinusoidalFacts, WavelengthsAreGeometricAndEndBelowTwoPiTimesTheBase) {
  const std::pair<Index, double> last[] = {{4, 628.32},    {64, 47117.2},  {128, 54410.1},
                                           {512, 60611.5}, {768, 61342.7}, {1024, 61711.7}};
  for (const auto& [width, length] : last) {
    const std::vector<double> w = Sinusoidal{.width = width}.spectrum().frequency;
    EXPECT_NEAR(2 * std::numbers::pi / w[0], 6.283185307179586, 1e-15);
    EXPECT_NEAR(2 * std::numbers::pi / w.back(), length, length < 1000 ? 5e-3 : 5e-2);
    EXPECT_NEAR(w[0] / w[1], std::pow(10000.0, 2 / static_cast<double>(width)), 1e-10);
  }
  const Sinusoidal t2t{.width = 512, .spacing = SineSpacing::t2t};
  EXPECT_NEAR(2 * std::numbers::pi / t2t.spectrum().frequency.back(), 62831.85, 5e-3);
}

TEST(SinusoidalLaws, EveryPositionHasTheSameNorm) {
  for (const Index width : {4, 512, 768})
    for (const Index p : {Index{0}, Index{1}, Index{131071}, (Index{1} << 31) - 1}) {
      const auto r = rows(Sinusoidal{.width = width}, arange(p, 1), width)[0];
      EXPECT_NEAR(std::sqrt(dot(r, r)), std::sqrt(static_cast<double>(width) / 2), 1e-13);
    }
}

TEST(SinusoidalLaws, AShiftIsOneOrthogonalMatrixForEveryPosition) {
  for (const SineLayout layout :
       {SineLayout::interleaved, SineLayout::halves, SineLayout::halves_cos_first})
    for (const Index width : {8, 9}) {
      const Sinusoidal s{.width = width, .layout = layout, .odd = OddWidth::zero_pad};
      const auto m = shift_matrix(s, 7), back = shift_matrix(s, -7), more = shift_matrix(s, 2.5);
      const auto whole = shift_matrix(s, 9.5);
      const auto at = rows(s, real({0, 3, -11, 1000.25}), width);
      const auto moved = rows(s, real({7, 10, -4, 1007.25}), width);
      for (std::size_t t = 0; t < at.size(); ++t) {
        const auto by_matrix = times(m, at[t]);
        for (std::size_t c = 0; c < by_matrix.size(); ++c)
          EXPECT_NEAR(by_matrix[c], moved[t][c], 1e-12);
      }
      const auto n = static_cast<std::size_t>(width);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          EXPECT_NEAR(back[i * n + j], m[j * n + i], 1e-15);  // M_-k = M_k^T
          double sum = 0, square = 0;
          for (std::size_t k = 0; k < n; ++k) {
            sum += m[i * n + k] * more[k * n + j];  // M_k M_l = M_(k+l)
            square += m[i * n + k] * m[j * n + k];
          }
          EXPECT_NEAR(sum, whole[i * n + j], 1e-14);
          EXPECT_NEAR(square, i == j && i < 8 ? 1 : 0, 1e-14);
        }
    }
  EXPECT_THAT(refusal([] { shift_matrix({.width = 5, .odd = OddWidth::truncate}, 1); }),
              HasSubstr("[shift_matrix]"));
}

// Numbers of the inner product at width 512 over its value at distance 0.
TEST(SinusoidalLaws, InnerProductsFallLogarithmically) {
  const Sinusoidal s{.width = 512};
  const std::pair<double, double> known[] = {
      {1, .97306},   {2, .90521},   {5, .74061},    {10, .67887},    {20, .61552},    {50, .51207},
      {100, .43731}, {512, .27631}, {1000, .17567}, {5000, -.02451}, {10000, -.06442}};
  for (const auto& [distance, value] : known) {
    EXPECT_NEAR(inner_product(s, distance) / 256, value, 6e-6) << distance;
    EXPECT_EQ(inner_product(s, distance), inner_product(s, -distance));
  }
  EXPECT_EQ(inner_product(s, 0), 256);
  EXPECT_NEAR(inner_product_law(s, 100) / 256, .4373, 5e-5);
  // Not in proportion to 1 / distance: that would be .0973 and .00973.
  EXPECT_GT(inner_product(s, 10) / inner_product(s, 1), 6 * 0.1);
  EXPECT_GT(inner_product(s, 100) / inner_product(s, 1), 40 * 0.01);
  const auto r = rows(s, real({3.0, 103.0}), 512);
  EXPECT_NEAR(dot(r[0], r[1]), inner_product(s, 100), 1e-12);
}

TEST(SinusoidalLaws, InnerProductsAreNotMonotone) {
  const Sinusoidal s{.width = 512};
  Index first_rise = 0, rises = 0, first_negative = 0;
  double before = inner_product(s, 0);
  for (Index d = 1; d < 3400; ++d) {
    const double x = inner_product(s, static_cast<double>(d));
    if (x > before && first_rise == 0) first_rise = d;
    if (x > before && d <= 100) ++rises;
    if (x < 0 && first_negative == 0) first_negative = d;
    before = x;
  }
  EXPECT_EQ(first_rise, 44);
  EXPECT_EQ(rises, 14);
  EXPECT_EQ(first_negative, 3284);
  EXPECT_NEAR(inner_product(s, 18469) / 256, -0.148, 5e-4);
}

// Rows of distances below 200000 come as near as this (width 2 at 103993, a convergent of pi).
TEST(SinusoidalFacts, FewChannelsKeepPositionsApartBadly) {
  const auto apart = [](Index width, double d) {
    const Sinusoidal s{.width = width};
    return std::sqrt(2 * (inner_product(s, 0) - inner_product(s, d)));
  };
  EXPECT_NEAR(apart(2, 103993), 1.9e-5, 5e-7);
  EXPECT_NEAR(apart(16, 1), 1.0147, 5e-5);
  EXPECT_NEAR(apart(64, 1), 1.4719, 1e-4);
  EXPECT_NEAR(apart(512, 1), 3.7143, 5e-5);
}

// Spacings: how far paper and tensor2tensor are apart at width 512.
TEST(SinusoidalFacts, SpacingsDiffer) {
  const Sinusoidal paper{.width = 512}, t2t{.width = 512, .spacing = SineSpacing::t2t};
  const std::pair<Index, double> known[] = {{1, .0014}, {10, .0142}, {100, .143}, {511, .712}};
  for (const auto& [p, most] : known) {
    const auto a = rows(paper, arange(p, 1), 512)[0], b = rows(t2t, arange(p, 1), 512)[0];
    double largest = 0;
    for (std::size_t c = 0; c < a.size(); ++c) largest = std::max(largest, std::fabs(a[c] - b[c]));
    EXPECT_NEAR(largest, most, most * 0.04) << p;
  }
}

// A phase whose positions are moved by an offset: d row / d w is the moved position times the
// slope.
TEST(InputTerms, FrequenciesOfMovedPositionsHaveTheirGradient) {
  LoweredInput low;
  Spectrum spectrum;
  spectrum.frequency = {0.7};
  InputTerm t;
  t.phase = low.spectrum(spectrum);
  t.layout = SineLayout::sines;
  t.offset = 5;
  t.width = 1;
  low.terms.push_back(t);
  const double one = 1;
  const OwnedInputGradients g = zero_gradients(low, real({2.5}));
  input_gradient({}, real({2.5}), low, tensor(&one, {1, 1}), {}, g.terms);
  EXPECT_NEAR(static_cast<const double*>(g.terms[0].frequency.data)[0], 7.5 * std::cos(7.5 * 0.7),
              1e-14);
  EXPECT_NEAR(static_cast<const double*>(g.terms[0].position.data)[0], 0.7 * std::cos(7.5 * 0.7),
              1e-15);
}

TEST(InputTerms, RefuseWhatDoesNotFit) {
  std::vector<double> y(4), w{1, 2, 3, 4};
  const auto says = [&](const auto& change) {
    return refusal([&] {
      LoweredInput low;
      InputTerm t;
      t.affine = low.table({1, 0}, 2, 1);
      t.width = 1;
      change(t, low);
      low.terms.push_back(t);
      apply_input({}, real({1, 2}), low, tensor(y.data(), {2, t.width}));
    });
  };
  EXPECT_EQ(says([](InputTerm&, LoweredInput&) {}), "accepted");
  EXPECT_THAT(says([](InputTerm& t, LoweredInput& low) {
                t.affine = low.table({1, 0, 2}, 3, 1);
              }),
              HasSubstr("a row for every axis"));
  EXPECT_THAT(says([](InputTerm& t, LoweredInput& low) {
                t.layers = {low.dense({1, 2, 3, 4}, {}, 2, Activation::relu)};
              }),
              HasSubstr("weight of a layer"));
  EXPECT_THAT(says([](InputTerm& t, LoweredInput& low) {
                t.source_width = 1;
                t.layers = {low.dense({1, 2}, {}, 2, Activation::relu)};
              }),
              HasSubstr("last layer"));
  EXPECT_THAT(says([](InputTerm& t, LoweredInput& low) { t.table = low.table({1}, 1, 1); }),
              HasSubstr("one source"));
}

TEST(SinusoidalPresets, AreNamedAndRefuseWhatTheProgramsCannot) {
  EXPECT_EQ(Sinusoidal::presets().size(), 21u);
  for (const auto& [name, s] : Sinusoidal::presets()) EXPECT_NO_THROW(s.parameters()) << name;
  for (const auto& [name, s] : SinusoidalNd::presets()) EXPECT_NO_THROW(s.parameters()) << name;
  for (const auto& [name, s] : FourierFeatures::presets()) EXPECT_NO_THROW(s.parameters()) << name;
  EXPECT_THAT(refusal([] { sinusoidal_presets::fairseq(3); }), HasSubstr("divides by zero"));
  EXPECT_THAT(refusal([] { sinusoidal_presets::whisper(2); }), HasSubstr("divides by zero"));
  EXPECT_THAT(refusal([] { sinusoidal_nd_presets::tensor2tensor(6, 2); }), HasSubstr("timescales"));
  EXPECT_THAT(refusal([] { sinusoidal_nd_presets::diffusers_3d(24); }), HasSubstr("16"));
  EXPECT_NEAR(sinusoidal_presets::tape(64, 128).spectrum().frequency[0], 0.5, 0);
}

TEST(Sinusoidal, RefusesWidthsThatCannotBe) {
  EXPECT_THAT(refusal([] { Sinusoidal{.width = 0}.parameters(); }), HasSubstr("width"));
  EXPECT_THAT(refusal([] { Sinusoidal{.width = 7}.parameters(); }), HasSubstr("even"));
  EXPECT_THAT(refusal([] { Sinusoidal{.width = Index{1} << 60}.parameters(); }),
              HasSubstr("width"));
  EXPECT_THAT(refusal([] { (Sinusoidal{.width = 1, .odd = OddWidth::marian}.parameters()); }),
              HasSubstr("marian"));
  EXPECT_THAT(refusal([] { (Sinusoidal{.width = 4, .layout = SineLayout::sines}.parameters()); }),
              HasSubstr("layout"));
  EXPECT_THAT(refusal([] {
                (Sinusoidal{.width = 4, .spacing = SineSpacing::shifted, .shift = 2}.parameters());
              }),
              HasSubstr("shift"));
  std::vector<double> at{0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_THAT(
      refusal([&] { rows(Sinusoidal{.width = 4}, positions(std::span<const double>(at)), 4); }),
      HasSubstr("finite"));
}

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
  const TensorView p[] = {tensor(w.data(), {1, 1}), tensor(w1.data(), {1, 2}),
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
  std::vector<TensorView> p;
  for (std::size_t i = 0; i < 8; ++i)
    p.push_back(i % 2 == 0 ? tensor(v[i].data(), {1, 1}) : tensor(v[i].data(), {1}));
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto r = rows(s, real({2.0, 5.0}, 2), 1, p)[0];
  EXPECT_NEAR(r[0], 2 * silu(0.5 * 2 + 0.1) + 0.3 + 3 * silu(-5.0) - 0.2, 1e-15);
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
  const TensorView at = tensor(to.data(), {3, 2});
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
  const TensorView p = tensor(zero.data(), {3, 6});
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
