// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace posenc {
namespace {

// Known answers published with Random123 (kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswersOfRandom123) {
  constexpr std::uint32_t ones = 0xffffffffU;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The distribution function is the judge: P(N <= x) = erfc(-x / sqrt 2) / 2.
TEST(Philox, QuantileInvertsTheDistributionFunction) {
  for (const double p : {1e-300, 1e-100, 1e-16, 1e-9, 0.001, 0.02275, 0.0749, 0.0751, 0.3, 0.5, 0.7,
                         0.925, 0.926, 0.99, 0.999999}) {
    const double x = normal_quantile(p);
    const double q = std::erfc(-x / std::sqrt(2.0)) / 2;
    // An error of x moves p by x's density: relative |x| dx / 1 in the tails.
    EXPECT_NEAR(q, p, p * 4e-15 * (1 + x * x)) << p;
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-15);
  EXPECT_TRUE(std::isnan(normal_quantile(0)));
  EXPECT_TRUE(std::isnan(normal_quantile(1)));
  EXPECT_TRUE(std::isnan(normal_quantile(std::nan(""))));
}

TEST(Philox, DrawsDependOnEveryPartOfTheirKey) {
  const auto first = [](const Draws& d) { return d.bits(0); };
  const std::vector<Draws> others = {
      Draws(1),          Draws(2),          Draws(1, 1),          Draws(1, 0, 1),
      Draws(1, 0, 0, 1), Draws(1ULL << 32), Draws(1, 1ULL << 32), Draws(1, 0, 1ULL << 32)};
  for (std::size_t i = 0; i < others.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(first(others[i]), first(others[j])) << i << j;
  const Draws d(7, 3, 5);
  EXPECT_NE(d.bits(0), d.bits(1ULL << 32));
  EXPECT_EQ(d.bits(11), Draws(7, 3, 5).bits(11));
}

TEST(Philox, MomentsAreThoseOfTheLaw) {
  const Draws d(20170612, 1, 2);
  constexpr int n = 200000;
  double sum = 0, squares = 0, fourth = 0, cut = 0, cut_squares = 0, flat = 0, largest = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double x = d.normal(i), t = d.truncated_normal(i), u = d.uniform(i);
    sum += x, squares += x * x, fourth += x * x * x * x;
    cut += t, cut_squares += t * t, largest = std::max(largest, std::fabs(t));
    flat += u;
    ASSERT_TRUE(u >= 0 && u < 1);
  }
  const double unit = 1 / std::sqrt(double{n});  // five deviations of each mean
  EXPECT_NEAR(sum / n, 0, 5 * unit);
  EXPECT_NEAR(squares / n, 1, 5 * unit * std::sqrt(2.0));
  EXPECT_NEAR(fourth / n, 3, 5 * unit * std::sqrt(96.0));
  EXPECT_NEAR(flat / n, 0.5, 5 * unit * 0.289);
  EXPECT_NEAR(cut / n, 0, 5 * unit);
  EXPECT_NEAR(std::sqrt(cut_squares / n), 0.87962566103423978, 5 * unit);  // cut at two deviations
  EXPECT_LE(largest, 2);
}

TEST(Philox, IntegersAreFairAndInRange) {
  const Draws d(99);
  std::vector<int> count(6);
  constexpr int n = 60000;
  for (std::uint64_t i = 0; i < n; ++i) ++count[d.below(i, 6)];
  for (const int c : count) EXPECT_NEAR(c, n / 6, 5 * std::sqrt(n * 5 / 36.0));
  EXPECT_EQ(d.below(0, 0), 0U);
  EXPECT_EQ(d.below(3, 1), 0U);
  // A power of two takes the top bits.
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(d.below(i, std::uint64_t{1} << 63), d.bits(i) >> 1);
    EXPECT_EQ(d.below(i, std::uint64_t{1} << 33), d.bits(i) >> 31);
    EXPECT_LT(d.below(i, 0xfedcba9876543211U), 0xfedcba9876543211U);
  }
}

// Numbers that must never change: tables are made from them.
TEST(Philox, TheSameBitsOnEveryMachine) {
  const Draws d(42, 7, 3);
  EXPECT_EQ(d.bits(0), 0x529bc3dce3f91478ULL);
  EXPECT_EQ(d.normal(0), -0x1.d73c8354183f3p-2);
  EXPECT_EQ(d.normal(1000003), 0x1.813dea70486a7p-2);
  EXPECT_EQ(d.truncated_normal(5), -0x1.3d63343def51p-1);
  EXPECT_EQ(d.normal(7440), 0x1.081125ba743c4p+2);  // a tail: through the logarithm
}

}  // namespace
}  // namespace posenc
