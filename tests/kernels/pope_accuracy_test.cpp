// SPDX-License-Identifier: Apache-2.0
// PoPE's length, its slope and its angle against MPFR, on every instruction set.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "posenc/core/isa.h"
#include "posenc/rotary/pope.h"

namespace posenc {
namespace {

constexpr Index kChannels = 20000;
constexpr double kSmallest = 0x1p-1074;

// ln(1 + e^x) and e^x / (1 + e^x).
struct Exact {
  mpfr_t e, length, slope, term;
  Exact() { mpfr_inits2(200, e, length, slope, term, static_cast<mpfr_ptr>(nullptr)); }
  ~Exact() { mpfr_clears(e, length, slope, term, static_cast<mpfr_ptr>(nullptr)); }
  Exact(const Exact&) = delete;
  Exact& operator=(const Exact&) = delete;

  void at(double x) {
    mpfr_set_d(term, x, MPFR_RNDN);
    mpfr_exp(e, term, MPFR_RNDN);
    if (x > 1e6) {  // e^x is no number of MPFR's
      mpfr_set_d(length, x, MPFR_RNDN), mpfr_set_d(slope, 1, MPFR_RNDN);
      return;
    }
    mpfr_log1p(length, e, MPFR_RNDN);
    mpfr_add_ui(term, e, 1, MPFR_RNDN);
    mpfr_div(slope, e, term, MPFR_RNDN);
  }
  // |got - exact| beyond one smallest number, as a part of exact.
  double error(const mpfr_t exact, double got) {
    mpfr_d_sub(term, got, exact, MPFR_RNDN);
    mpfr_abs(term, term, MPFR_RNDN);
    if (mpfr_cmp_d(term, kSmallest) <= 0) return 0;
    mpfr_div(term, term, exact, MPFR_RNDN);
    return mpfr_get_d(term, MPFR_RNDN);
  }
};

std::vector<double> samples() {
  std::vector<double> x{0,       -0.0,   1,       -1,         0x1p-1074, -0x1p-1074, 36.7368,
                        -36.7,   708.4,  709.8,   745.2,      746.5,     -708.39,    -708.4,
                        -709.79, -744.4, -745.13, -745.1332,  -745.2,    -746,       -747,
                        -1000,   -1e308, 1e308,   1.797e+308, 800,       1e17,       -1e17};
  std::mt19937_64 gen(7);
  const auto unit = [&] { return static_cast<double>(gen() >> 11) * 0x1p-53; };
  while (x.size() < kChannels) {
    x.push_back(unit() * 1500 - 750);
    x.push_back(unit() * 80 - 40);
    x.push_back(unit() * 2 - 1);
    x.push_back(std::ldexp(unit() - 0.5, static_cast<int>(gen() % 2098) - 1074));
  }
  x.resize(kChannels);
  return x;
}

class PopeAccuracy : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { reset_isa(); }
  static bool fused() {
    return GetParam() != Isa::scalar && GetParam() != Isa::ssse3 && GetParam() != Isa::sse4;
  }
};

// At position 0 the cosines are 1.
TEST_P(PopeAccuracy, LengthAndSlope) {
  std::vector<double> x = samples(), y(2 * kChannels), g(2 * kChannels), d(kChannels);
  std::fill_n(g.begin(), kChannels, 1.0);
  const PopePlan plan(Pope{.head_dim = kChannels}, DType::f64);
  const Index zero[] = {0};
  const Positions p = positions(zero);
  plan.apply(heads(x.data(), 1, 1, kChannels), heads(y.data(), 1, 1, 2 * kChannels), p);
  plan.gradient(heads(x.data(), 1, 1, kChannels), heads(g.data(), 1, 1, 2 * kChannels), p, {},
                heads(d.data(), 1, 1, kChannels));
  Exact exact;
  double length = 0, slope = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    exact.at(x[i]);
    const double e = exact.error(exact.length, y[i]), f = exact.error(exact.slope, d[i]);
    EXPECT_LE(e, fused() ? 2.6e-16 : 3.3e-16) << x[i] << " gives " << y[i];
    EXPECT_LE(f, 3.5e-16) << x[i] << " gives " << d[i];
    length = std::max(length, e), slope = std::max(slope, f);
  }
  RecordProperty("length", std::to_string(length * 1e16));
  RecordProperty("slope", std::to_string(slope * 1e16));
}

TEST_P(PopeAccuracy, InfinitiesAndNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  std::vector<double> x{inf, -inf, NAN, 1, -NAN}, y(10), g(10, 0.0), d(5);
  std::fill_n(g.begin(), 5, 1.0);
  const PopePlan plan(Pope{.head_dim = 5}, DType::f64);
  const Index zero[] = {0};
  plan.apply(heads(x.data(), 1, 1, 5), heads(y.data(), 1, 1, 10), positions(zero));
  plan.gradient(heads(x.data(), 1, 1, 5), heads(g.data(), 1, 1, 10), positions(zero), {},
                heads(d.data(), 1, 1, 5));
  EXPECT_EQ(y[0], inf);
  EXPECT_TRUE(std::isnan(y[5]));  // infinity x 0
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[6], 0);
  for (const std::size_t i : {2u, 4u, 7u, 9u}) EXPECT_TRUE(std::isnan(y[i])) << i;
  EXPECT_EQ(d[0], 1);
  EXPECT_EQ(d[1], 0);
  EXPECT_TRUE(std::isnan(d[2]) && std::isnan(d[4]));
  EXPECT_NEAR(y[3], std::log1p(std::exp(1.0)), 5e-16);

  std::vector<float> xf{3e38f, -3e38f, std::numeric_limits<float>::infinity(), 88, 100}, yf(10);
  PopePlan(Pope{.head_dim = 5}, DType::f32)
      .apply(heads(xf.data(), 1, 1, 5), heads(yf.data(), 1, 1, 10), positions(zero));
  EXPECT_EQ(yf[0], 3e38f);
  EXPECT_EQ(yf[1], 0);
  EXPECT_EQ(yf[2], std::numeric_limits<float>::infinity());
  EXPECT_EQ(yf[3], 88);
}

// Many channels at once: float rounds a length that is within 7e-11 of itself, and NaN stays.
TEST_P(PopeAccuracy, LengthInFloat) {
  std::vector<float> x, y(2 * kChannels);
  for (const double v : samples()) x.push_back(static_cast<float>(v));
  for (std::size_t i = 3; i < 160; i += 5) x[i] = NAN;
  const Index zero[] = {0};
  PopePlan(Pope{.head_dim = kChannels}, DType::f32)
      .apply(heads(x.data(), 1, 1, kChannels), heads(y.data(), 1, 1, 2 * kChannels),
             positions(zero));
  Exact exact;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(y[i])) << i;
      continue;
    }
    if (std::isinf(x[i])) continue;
    exact.at(x[i]);
    const double want = mpfr_get_d(exact.length, MPFR_RNDN), got = y[i];
    const double next = std::nextafter(y[i], got < want ? INFINITY : -INFINITY);
    EXPECT_LE(std::abs(got - want), std::abs(next - want) + 1.4e-10 * want) << x[i];
  }
}

// Where the length is exactly 2^60 (so large that e^-x is nothing) the angle is left.
template <class T, class P>
double angle_error(const Spectrum& s, const std::vector<P>& at, const std::vector<double>& bias) {
  const Index d = s.pairs(), tokens = static_cast<Index>(at.size());
  std::vector<T> x(static_cast<std::size_t>(tokens * d), T{0x1p60}), y(2 * x.size());
  std::vector<double> learned = bias;
  PopePlan(s, sizeof(T) == 8 ? DType::f64 : DType::f32)
      .apply(heads(x.data(), tokens, 1, d), heads(y.data(), tokens, 1, 2 * d),
             positions(std::span<const P>(at)),
             bias.empty() ? TensorView{} : tensor(learned.data(), {1, d}));
  mpfr_t a, b, sine, cosine;
  mpfr_inits2(300, a, b, sine, cosine, static_cast<mpfr_ptr>(nullptr));
  double most = 0;
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < d; ++i) {
      mpfr_set_d(a, static_cast<double>(at[static_cast<std::size_t>(t)]), MPFR_RNDN);
      mpfr_mul_d(a, a, s.frequency[static_cast<std::size_t>(i)], MPFR_RNDN);
      if (!bias.empty()) mpfr_add_d(a, a, bias[static_cast<std::size_t>(i)], MPFR_RNDN);
      mpfr_sin_cos(sine, cosine, a, MPFR_RNDN);
      const T* row = y.data() + t * 2 * d;
      mpfr_d_sub(a, double{row[i]} * 0x1p-60, cosine, MPFR_RNDN);
      mpfr_d_sub(b, double{row[d + i]} * 0x1p-60, sine, MPFR_RNDN);
      most = std::max(
          {most, std::fabs(mpfr_get_d(a, MPFR_RNDN)), std::fabs(mpfr_get_d(b, MPFR_RNDN))});
    }
  mpfr_clears(a, b, sine, cosine, static_cast<mpfr_ptr>(nullptr));
  return most;
}

TEST_P(PopeAccuracy, Angles) {
  const Spectrum s = Pope{.head_dim = 67}.spectrum();
  const std::vector<Index> whole{0,    1,      3,        4,          -1,          -5,
                                 4095, 131071, -1048575, 2147483647, -2147483648, Index{1} << 37};
  const std::vector<double> real{0.5,      -0.25,      3.75,     1e-9,
                                 4095.125, -131071.75, 999983.5, 0x1p37 + 0.5};
  std::vector<double> bias;
  for (int i = 0; i < 67; ++i) bias.push_back(-6.28 * i / 66);
  EXPECT_LE(angle_error<double>(s, whole, {}), 3e-16);
  EXPECT_LE(angle_error<double>(s, real, {}), 3e-16);
  EXPECT_LE(angle_error<double>(s, whole, bias), 6e-16);
  EXPECT_LE(angle_error<double>(s, real, bias), 6e-16);
  // Half a unit of float in the last place, and the phases' own error on both sides of 2^28.
  std::vector<Index> far = whole;
  for (const int bits : {28, 40, 52})
    for (const Index beside : {-1, 0, 1}) far.push_back((Index{1} << bits) + beside);
  EXPECT_LE(angle_error<float>(s, far, {}), 0x1p-25 + 1e-10);
  EXPECT_LE(angle_error<float>(s, far, bias), 0x1p-25 + 1e-10);
}

INSTANTIATE_TEST_SUITE_P(All, PopeAccuracy, ::testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

}  // namespace
}  // namespace posenc
