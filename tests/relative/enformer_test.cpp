// SPDX-License-Identifier: Apache-2.0
// Enformer's basis against its formula in 40 digits and against the published table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/registry.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using test::check_scheme_laws;
using test::refusal;
using ::testing::HasSubstr;

TEST(Enformer, Laws) {
  check_scheme_laws(Enformer{.length = 9, .features = 12});
  check_scheme_laws(Enformer{.length = 9, .features = 6}, {.scale = {}});
}

// The formula in 40 digits (mpmath). Far out the logarithm of a gamma law is the difference of numbers
// near 3e4, which costs the last digits.
TEST(Enformer, Basis) {
  const Enformer e;
  const double want[][6] = {
      {0, 1, 1, 5.356140310691272e-07, 6.0173333296866892e-07, 0},
      {1, 0.9170040432046712, 1, 0.00039661706471445976, 6.0173333296866892e-07,
       -0.9170040432046712},
      {-5, 0.6484197773255048, 1, 0.035476130733048265, 6.0173333296866892e-07, 0.6484197773255048},
      {100, 0.00017263349150062197, 0, 0.10348020399352528, 6.0173333296866892e-07,
       -0.00017263349150062197},
      {-1535, 1.7372790479364127e-58, 0, 5.356140310691272e-07, 1, 1.7372790479364127e-58}};
  for (const auto& w : want) {
    const std::vector<double> f = e.basis(static_cast<Index>(w[0]));
    ASSERT_EQ(f.size(), 192u);
    const std::size_t at[] = {0, 34, 64, 95, 96};
    for (std::size_t n = 0; n < 5; ++n)
      EXPECT_NEAR(f[at[n]], w[n + 1], 3e-11 * std::abs(w[n + 1])) << w[0] << " " << at[n];
  }
}

// Numbers of the table that enformer-pytorch publishes for the trained weights
// (enformer_pytorch/precomputed/tf_gammas.pt, made by TensorFlow in float32): rows x of
// [3071, 32], row 1535 is distance 0.
TEST(Enformer, GammaFunctionsOfThePublishedTable) {
  const struct {
    Index delta;
    std::size_t function;
    double value;
  } published[] = {{-1535, 31, 1.0},         {0, 0, 5.3561405e-07}, {0, 1, 5.8572999e-07},
                   {0, 2, 5.9459535e-07},    {-100, 2, 0.16922656}, {-100, 0, 0.103480145},
                   {-1535, 2, 5.9459535e-07}};
  for (const auto& p : published)
    EXPECT_NEAR(Enformer{}.basis(p.delta)[64 + p.function], p.value, 1e-5 * p.value)
        << p.delta << " " << p.function;
}

// What divides the gamma functions in other programs, by their formulas in 40 digits.
TEST(Enformer, OtherMaximaByName) {
  const Enformer all{.gamma_maximum = EnformerMaximum::all};
  EXPECT_NEAR(all.basis(-1535)[95], 0.8901185985935992, 3e-11);
  EXPECT_NEAR(all.basis(100)[66], 0.15244005176324102, 2e-12);
  const Enformer distance{.gamma_maximum = EnformerMaximum::distance};
  EXPECT_EQ(distance.basis(0)[64], 1);
  EXPECT_NEAR(distance.basis(1)[95], 0.0013504563437146529, 1e-14);
  EXPECT_NEAR(distance.basis(100)[64], 0.12335763536829559, 1e-12);
  EXPECT_NEAR(distance.basis(100)[66], 0.18172214196746449, 1e-12);
}

TEST(Enformer, RefusesDistancesBeyondLength) {
  EXPECT_THAT(refusal([] {
                LoweredTerms low;
                const Enformer small{.length = 4, .features = 6};
                const ScoreShape s{.heads = 1, .head_dim = 2, .distance = {{-4, 3}}};
                const std::vector<double> w(12), u(2);
                const ConstTensorView p[] = {tensor(w.data(), {2, 6}), tensor(u.data(), {1, 2}),
                                             tensor(u.data(), {1, 2})};
                small.lower(s, p, low);
              }),
              HasSubstr("below length"));
}

// u and v are not scaled: they count as much whatever the scale of the content is.
TEST(Enformer, BiasesHaveNoScale) {
  const ScoreShape s{.heads = 1, .head_dim = 1, .scale = 0.25, .distance = {{-2, 2}}};
  const std::vector<double> w{1, 0, 0, 0, 0, 0}, u{3}, v{5};
  const ConstTensorView p[] = {tensor(w.data(), {1, 6}), tensor(u.data(), {1, 1}),
                               tensor(v.data(), {1, 1})};
  LoweredTerms low;
  const Enformer e{.length = 8, .features = 6};
  e.lower(s, p, low);
  ASSERT_EQ(low.terms.size(), 3u);
  EXPECT_NEAR(std::get<ProductTerm>(low.terms[0]).scale *
                  *static_cast<const double*>(std::get<ProductTerm>(low.terms[0]).query.given.data),
              3, 1e-14);
  EXPECT_NEAR(std::get<ProductTerm>(low.terms[2]).scale *
                  data_of<double>(std::get<ProductTerm>(low.terms[2]).table)[2],
              5 * e.basis(0)[0], 1e-14);
}

}  // namespace
}  // namespace posenc
