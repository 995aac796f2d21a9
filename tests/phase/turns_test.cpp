// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <limits>
#include <random>

#include "posenc/phase.h"
#include "posenc/scaling/policy.h"

namespace posenc {
namespace {

// round(2^128 (f / 2 pi mod 1)) with 3000 bits.
struct Reference {
  std::uint64_t hi = 0, lo = 0;
};
Reference turns_by_mpfr(double f) {
  mpfr_t x, pi;
  mpfr_inits2(3000, x, pi, static_cast<mpfr_ptr>(nullptr));
  mpfr_const_pi(pi, MPFR_RNDN);
  mpfr_set_d(x, f, MPFR_RNDN);
  mpfr_div(x, x, pi, MPFR_RNDN);
  mpfr_div_2ui(x, x, 1, MPFR_RNDN);
  mpz_t n;
  mpz_init(n);
  mpfr_mul_2ui(x, x, 128, MPFR_RNDN);
  mpfr_get_z(n, x, MPFR_RNDN);
  mpz_fdiv_r_2exp(n, n, 128);
  Reference r;
  mpz_t part;
  mpz_init(part);
  mpz_fdiv_q_2exp(part, n, 64);
  r.hi = mpz_get_ui(part);
  mpz_fdiv_r_2exp(part, n, 64);
  r.lo = mpz_get_ui(part);
  mpz_clears(n, part, static_cast<mpz_ptr>(nullptr));
  mpfr_clears(x, pi, static_cast<mpfr_ptr>(nullptr));
  return r;
}

Spectrum of(std::vector<double> f) {
  Spectrum s;
  s.frequency = std::move(f);
  return s;
}

TEST(Turns, EqualTheDefinitionInManyBits) {
  std::vector<double> f{0.0,
                        1.0,
                        -1.0,
                        0.5,
                        2 * M_PI,
                        -2 * M_PI,
                        std::nextafter(2 * M_PI, 7.0),
                        1e-30,
                        1e-38,
                        3e-39,
                        1e-45,
                        -1e-36,
                        std::numeric_limits<double>::denorm_min(),
                        std::numeric_limits<double>::min(),
                        std::numeric_limits<double>::max(),
                        -std::numeric_limits<double>::max(),
                        1e300,
                        1e22,
                        6381956970095103.0 * std::ldexp(1.0, 797)};
  std::mt19937_64 random(7);
  for (int e = -1074; e < 1024; ++e)
    f.push_back(std::ldexp(1.0 + 1e-16 * static_cast<double>(random() >> 11), e) *
                (random() % 2 == 0 ? 1 : -1));
  for (const double base : {1e4, 5e5, 1e6})
    for (const double x : geometric_spectrum(base, 128).frequency) f.push_back(x);
  std::erase_if(f, [](double x) { return !std::isfinite(x); });
  const auto turns = exact_turns(of(f));
  ASSERT_EQ(turns.size(), f.size());
  for (std::size_t i = 0; i < f.size(); ++i) {
    const Reference want = turns_by_mpfr(f[i]);
    ASSERT_EQ(turns[i].hi, want.hi) << f[i];
    ASSERT_EQ(turns[i].lo, want.lo) << f[i];
    const long double per_unit = static_cast<long double>(f[i]) / (2 * 3.14159265358979323846L);
    ASSERT_NEAR(turns[i].per_unit, static_cast<double>(per_unit),
                1.2e-16 * std::fabs(static_cast<double>(per_unit)) + 5e-324)
        << f[i];
  }
}

TEST(Turns, RefuseFrequenciesThatAreNoNumber) {
  EXPECT_THROW(exact_turns(of({1.0, NAN})), std::invalid_argument);
  EXPECT_THROW(exact_turns(of({-INFINITY})), std::invalid_argument);
}

TEST(GeometricSpectrum, IsTheLaw) {
  const Spectrum s = geometric_spectrum(10000, 128);
  ASSERT_EQ(s.pairs(), 64);
  EXPECT_EQ(s.frequency[0], 1.0);
  EXPECT_NEAR(s.frequency[32], 0.01, 1e-17);
  EXPECT_NEAR(s.frequency[63], 1.1547819846894582e-4, 1e-18);
  EXPECT_EQ(s.geometric, (Geometric{10000, 128}));
  ASSERT_TRUE(s.ggml);
  EXPECT_EQ(s.ggml->n_dims, 128);
  EXPECT_EQ(s.ggml->base, 10000);
  EXPECT_EQ(geometric_spectrum(10000, 128, 16).pairs(), 16);
  EXPECT_EQ(geometric_spectrum(10000, 2, 0).pairs(), 0);
}

TEST(GeometricSpectrum, RefusesByName) {
  for (const double base : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
    EXPECT_THROW(geometric_spectrum(base, 128), std::invalid_argument) << base;
  for (const Index width : {Index{0}, Index{-2}, Index{7}, kUnbounded})
    EXPECT_THROW(geometric_spectrum(1e4, width), std::invalid_argument) << width;
  EXPECT_THROW(geometric_spectrum(1e4, 8, -2), std::invalid_argument);
  EXPECT_THROW(geometric_spectrum(1e4, 8, Index{1} << 60), std::invalid_argument);
  EXPECT_THROW(geometric_spectrum(1e-300, 2, 64), std::invalid_argument);  // overflows
  try {
    geometric_spectrum(1e4, 7);
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "[phase] width must be positive and even, got 7");
  }
}

TEST(SpectrumCheck, FindsWhatDisagrees) {
  Spectrum s = geometric_spectrum(1e4, 8);
  EXPECT_NO_THROW(check_spectrum(s));
  EXPECT_NO_THROW(check_spectrum(of({})));
  Spectrum bad = s;
  bad.axes = 3;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
  bad = s, bad.heads = 0;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
  bad = s, bad.axes = kUnbounded, bad.heads = 2;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
  bad = s, bad.gain = NAN;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
  bad = s, bad.logit_factor = INFINITY;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
  bad = s, bad.frequency[1] = NAN;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
  bad = s, bad.valid_to = -1;
  EXPECT_THROW(check_spectrum(bad), std::invalid_argument);
}

TEST(NeedsGeometric, RefusesInTheNameOfTheScaling) {
  Spectrum s = geometric_spectrum(1e4, 8);
  EXPECT_EQ(needs_geometric(s, "yarn").base, 1e4);
  s.geometric.reset();
  try {
    needs_geometric(s, "yarn");
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_EQ(std::string_view(e.what()).substr(0, 7), "[yarn] ");
  }
}

}  // namespace
}  // namespace posenc
