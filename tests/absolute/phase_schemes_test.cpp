// SPDX-License-Identifier: Apache-2.0
// Sinusoids' laws and numbers, presets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "absolute/encoding_rows.h"
#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/sinusoidal_laws.h"
#include "posenc/absolute/sinusoidal_nd_presets.h"
#include "posenc/absolute/sinusoidal_presets.h"
#include "posenc/positions.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::real;
using test::refusal;
using test::rows;
using ::testing::HasSubstr;

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

// Where the inner product of two positions rises with their distance and falls below zero.
struct Rises {
  Index first = 0, to_100 = 0, to_512 = 0, first_negative = 0;
  bool operator==(const Rises&) const = default;
};
Rises rises_of(Index width) {
  const Sinusoidal s{.width = width};
  Rises found;
  double before = inner_product(s, 0);
  for (Index d = 1; d < 3400; ++d) {
    const double x = inner_product(s, static_cast<double>(d));
    if (x > before && found.first == 0) found.first = d;
    if (x > before && d <= 100) ++found.to_100;
    if (x > before && d <= 512) ++found.to_512;
    if (x < 0 && found.first_negative == 0) found.first_negative = d;
    before = x;
  }
  return found;
}

TEST(SinusoidalLaws, InnerProductsAreNotMonotone) {
  EXPECT_EQ(rises_of(512), (Rises{44, 14, 202, 3284}));
  const Rises narrow = rises_of(128);
  EXPECT_EQ(narrow.first, 12);
  EXPECT_EQ(narrow.to_100, 35);
  EXPECT_EQ(narrow.first_negative, 1707);
  EXPECT_NEAR(inner_product(Sinusoidal{.width = 512}, 18469) / 256, -0.148, 5e-4);
}

// Rows of distances below 200000 come as near as this (width 2 at 103993, a convergent of pi); from
// 16 channels on the nearest are neighbours.
TEST(SinusoidalFacts, FewChannelsKeepPositionsApartBadly) {
  const auto apart = [](Index width, double d) {
    const Sinusoidal s{.width = width};
    return std::sqrt(2 * (inner_product(s, 0) - inner_product(s, d)));
  };
  const auto nearest = [&](Index width) {
    std::pair<double, Index> best{1e9, 0};
    for (Index d = 1; d < 200000; ++d)
      best = std::min(best, {apart(width, static_cast<double>(d)), d});
    return best;
  };
  EXPECT_EQ(nearest(2).second, 103993);
  EXPECT_NEAR(apart(2, 103993), 1.9e-5, 5e-7);
  EXPECT_NEAR(nearest(4).first, .0016, 5e-5);
  EXPECT_NEAR(nearest(8).first, .0033, 5e-5);
  EXPECT_EQ(nearest(16).second, 1);
  EXPECT_NEAR(apart(16, 1), 1.0147, 5e-5);
  EXPECT_NEAR(apart(64, 1), 1.4719, 1e-4);
  EXPECT_NEAR(apart(512, 1), 3.7143, 5e-5);
}

// Share of the pairs of 512 channels that complete no period in so many positions.
TEST(SinusoidalFacts, SlowChannels) {
  const std::vector<double> w = Sinusoidal{.width = 512}.spectrum().frequency;
  const std::pair<double, double> slow[] = {
      {512, 52.0}, {1024, 44.5}, {2048, 37.1}, {5000, 27.3}, {32768, 7.0}};
  for (const auto& [length, percent] : slow) {
    const auto n = std::count_if(w.begin(), w.end(),
                                 [l = length](double x) { return 2 * std::numbers::pi / x > l; });
    EXPECT_NEAR(100 * static_cast<double>(n) / 256, percent, 0.05) << length;
  }
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
  EXPECT_EQ(Sinusoidal::presets().size(), 30u);
  EXPECT_THAT(refusal([] { sinusoidal_presets::fairseq(3); }), HasSubstr("divides by zero"));
  for (const Index width : {2, 3})
    EXPECT_THAT(refusal([&] { sinusoidal_presets::musicgen(width); }),
                HasSubstr("divides by zero"));
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

}  // namespace
}  // namespace posenc
