// SPDX-License-Identifier: Apache-2.0
// Numbers by distance: KERPLE, Sandwich, FIRE, DAPE, clipped tables. Values of the papers, the law
// of gradients, refusals; whole passes of their programs are in the suite relative_bias.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/alibi.h"
#include "posenc/relative/clipped.h"
#include "posenc/relative/dape.h"
#include "posenc/relative/fire.h"
#include "posenc/relative/kerple.h"
#include "posenc/relative/sandwich.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using test::check_scheme_laws;
using test::LawCall;
using test::refusal;
using ::testing::HasSubstr;

const ScoreShape kScalarShape{.heads = 2, .head_dim = 4, .distance = {{-5, 5}}};

// Positive numbers: the kernels clamp at 0.01, where they have no derivative.
LawCall positive_call() {
  LawCall call;
  call.number = [](const std::string&, Index i) {
    return 0.7 + 0.3 * std::sin(static_cast<double>(5 * i));
  };
  return call;
}

TEST(ScalarBias, LawsOfKerple) {
  for (const KerpleKernel kernel : {KerpleKernel::log, KerpleKernel::power, KerpleKernel::nemo})
    check_scheme_laws(Kerple{.kernel = kernel}, positive_call());
  check_scheme_laws(Kerple{.kernel = KerpleKernel::power, .weighted = true}, positive_call());
  check_scheme_laws(Kerple{.weighted = true}, positive_call());
  for (const KerpleLearned learned : {KerpleLearned::slope, KerpleLearned::fixed})
    check_scheme_laws(Kerple{.kernel = KerpleKernel::power, .learned = learned}, positive_call());
}

TEST(ScalarBias, LawsOfFireAndDape) {
  LawCall call = positive_call();
  call.number = [](const std::string& name, Index i) {
    if (name == "c") return 0.3;
    if (name == "L_multiplier") return 1.1;
    return 0.6 * std::sin(static_cast<double>(7 * i) + static_cast<double>(name.size()));
  };
  check_scheme_laws(Fire{.width = 3, .initial_length = 4.3}, call);
  check_scheme_laws(Fire{.width = 3, .initial_length = 4.3, .keep_sign = true, .slope = 0.1}, call);
  check_scheme_laws(Dape{.width = 3}, call);
  check_scheme_laws(Dape{.width = 3, .bias = false, .kernel = 3}, call);
}

TEST(ScalarBias, LawsOfTablesAndSandwich) {
  check_scheme_laws(Sandwich{.width = 8});
  check_scheme_laws(Clipped{.clip = 3});
  check_scheme_laws(Clipped{.clip = 2, .sign = DistanceSign::key_minus_query, .heads_first = true});
  check_scheme_laws(Clipped{.clip = 2, .masked_row = true});
}

TEST(ScalarBias, LawsOfAlibi) {
  check_scheme_laws(Alibi{.learned = AlibiLearned::slopes, .batch = 2});
  check_scheme_laws(Alibi{.future = AlibiFuture::half_heads, .learned = AlibiLearned::log_slopes});
}

// FlashT5's asymmetric mode: two halves with the same slopes, each sees one side.
TEST(ScalarBias, HalfOfTheHeadsSeesEachSide) {
  LoweredTerms low;
  Alibi{.future = AlibiFuture::half_heads}.lower({.heads = 4, .head_dim = 2}, {}, low);
  EXPECT_EQ((Alibi{.future = AlibiFuture::half_heads}.slope(4)),
            (std::vector<double>{0.0625, 0.00390625, 0.0625, 0.00390625}));
  ASSERT_EQ(low.requests.head_side.count(), 4);
  for (Index h = 0; h < 4; ++h)
    EXPECT_EQ(data_of<std::uint8_t>(low.requests.head_side)[h], h < 2 ? 1 : 2);
  EXPECT_THAT(refusal([] {
                (Alibi{.future = AlibiFuture::half_heads}.parameters({.heads = 3, .head_dim = 2}));
              }),
              HasSubstr("even number of heads"));
}

TEST(ScalarBias, ValuesOfTheReference) {
  // p = a = 1: -ln 2 at 1, -ln 11 at 10.
  const std::vector<double> one{1, 1};
  const ConstTensorView p[] = {tensor(one.data(), {2}), tensor(one.data(), {2})};
  LoweredTerms low;
  Kerple{}.lower({.heads = 2, .head_dim = 4, .distance = {{-100, 100}}}, p, low);
  const auto at = [&](Index d) {
    return data_of<double>(std::get<ProductTerm>(low.terms[0]).table)[row_of(
        std::get<ProductTerm>(low.terms[0]).lines[0], static_cast<double>(d))];
  };
  EXPECT_NEAR(at(1), -0.693147180559945, 1e-14);
  EXPECT_NEAR(at(-10), -2.39789527279837, 1e-13);
  EXPECT_NEAR(at(100), -4.61512051684126, 1e-13);
  const double sandwich[][2] = {
      {1, -1.447}, {2, -5.20}, {10, -19.34}, {100, -33.32}, {1000, -53.39}};
  for (const auto& [n, want] : sandwich)
    EXPECT_NEAR((Sandwich{}.bias(0, 8, static_cast<Index>(n))), want, 0.006) << n;
  const double gym[][2] = {{0, 64}, {1, 62.09}, {10, 42.82}, {100, 30.54}};
  for (const auto& [n, want] : gym)
    EXPECT_NEAR((Sandwich{.form = SandwichForm::attention_gym}.bias(0, 8, static_cast<Index>(n))),
                want, 0.006)
        << n;
}

TEST(ScalarBias, Refusals) {
  const ScoreShape s = kScalarShape;
  EXPECT_THAT(refusal([&] { (Kerple{.learned = KerpleLearned::slope}.parameters(s)); }),
              HasSubstr("learned must be both"));
  EXPECT_THAT(
      refusal([&] { (Kerple{.kernel = KerpleKernel::nemo, .weighted = true}.parameters(s)); }),
      HasSubstr("weighted needs"));
  EXPECT_THAT(refusal([&] { (Sandwich{.width = 7}.parameters(s)); }), HasSubstr("even"));
  EXPECT_THAT(refusal([&] { (Fire{.width = 0}.parameters(s)); }), HasSubstr("width"));
  EXPECT_THAT(refusal([&] { (Fire{.epsilon = -1}.parameters(s)); }), HasSubstr("epsilon"));
  EXPECT_THAT(refusal([&] { (Dape{.kernel = 2}.parameters(s)); }), HasSubstr("odd"));
  EXPECT_THAT(refusal([&] { (Clipped{.clip = -1}.parameters(s)); }), HasSubstr("clip"));
  LoweredTerms low;
  EXPECT_THAT(refusal([&] { (Clipped{.clip = 1}.lower(s, {}, low)); }), HasSubstr("[clipped]"));
}

}  // namespace
}  // namespace posenc
