// SPDX-License-Identifier: Apache-2.0
// Soft caps of scores in the fast engine, before terms and after them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

struct CappedCall : FloatCall {
  CappedCall(Index queries, Index keys, std::uint64_t seed, double slope = -0.05)
      : FloatCall(1, queries, keys, 2, 1, seed % 2 == 0 ? 8 : 5, 8, seed),
        slopes(4, slope),
        term(LinearTerm{.table = tensor(std::as_const(slopes).data(), {1, 2, 1, 2})}) {
    args.softcap = 1.5;
  }
  void add_term() { args.terms = std::span(&term, 1); }
  std::vector<double> slopes;
  Term term;
};

TEST(FastSoftcap, BeforeAndAfterTerms) {
  constexpr Index kLengths[] = {1, 13, 64, 65, 129, 200};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const int kind : {0, 1, 2, 3}) {
        const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
        CappedCall call(queries, keys, seed, seed % 3 == 0 ? -5 : -0.05);
        ++seed;
        call.args.mask.causal = seed % 2 == 0;
        call.args.softcap_after_terms = kind % 2 == 1;
        if (kind >= 2) call.add_term();
        ASSERT_EQ(call.wrong_backward(), "")
            << isa_name(isa) << " " << queries << " " << keys << " kind " << kind;
      }
  }
  reset_isa();
}

// Hidden keys stay hidden under a cap, and a bias is above it.
TEST(FastSoftcap, MasksAndBiases) {
  test::Random r(3);
  const std::vector<double> bias = r.normals(60 * 90), sink{0.5, -1};
  for (const bool after : {false, true})
    for (const bool with_term : {false, true}) {
      CappedCall call(60, 90, 4);
      call.args.softcap_after_terms = after;
      if (with_term) call.add_term();
      std::vector<std::uint8_t> visible(90, 1);
      for (std::size_t j = 0; j < 90; j += 7) visible[j] = 0;
      call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 90});
      call.args.mask.causal = true;
      call.args.sink = tensor(sink.data(), {2});
      EXPECT_EQ(call.wrong_backward(), "") << after << with_term;
      call.args.mask.bias = tensor(bias.data(), {60, 90});
      if (after && with_term)
        EXPECT_FALSE(is_fast(call.args));
      else
        EXPECT_EQ(call.wrong_backward(), "") << after << with_term;
    }
}

// Scores far from 0: references of rows move, and a cap makes all weights alike.
TEST(FastSoftcap, LargeScoresAndCaps) {
  for (const double scale : {3.0, 300.0})
    for (const double cap : {1e-3, 20.0, 400.0})
      for (const bool after : {false, true}) {
        CappedCall call(40, 200, 6);
        call.args.scale = scale, call.args.softcap = cap;
        call.args.softcap_after_terms = after;
        call.add_term();
        const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
        EXPECT_LE(difference(got.out, want.out), scale * 3e-6) << scale << " " << cap << after;
        EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), scale * 3e-6) << scale << cap;
      }
}

TEST(FastSoftcap, ProductsOfTermsLieUnderTheCap) {
  test::Random r(3);
  const std::vector<double> x = r.normals(2 * 40 * 6), y = r.normals(2 * 70 * 6);
  CappedCall call(40, 70, 4);
  ProductTerm t;
  t.scale = 0.3;
  t.query.given = heads(tensor(x.data(), {1, 40, 2, 6}), HeadsLayout::bthd);
  t.key.given = heads(tensor(y.data(), {1, 70, 2, 6}), HeadsLayout::bthd);
  const Term terms[] = {t, call.term};
  call.args.terms = terms;
  EXPECT_FALSE(is_fast(call.args));
  call.args.softcap_after_terms = true;
  EXPECT_EQ(call.wrong_backward(), "");
}

TEST(FastSoftcap, CapsThatFloatDoesNotHold) {
  for (const double cap : {1e-30, 1e30}) {
    CappedCall call(10, 20, 4);
    call.args.softcap = cap;
    EXPECT_FALSE(is_fast(call.args)) << cap;
  }
}

TEST(FastSoftcap, NumbersThatAreNotFinite) {
  for (const float bad : {HUGE_VALF, std::nanf(""), 1e30f}) {
    CappedCall call(100, 100, 4);
    call.args.mask.causal = true;
    call.narrow[1][60 * 8 + 1] = bad;
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError) << bad;
  }
}

TEST(FastSoftcap, AnyNumberOfThreadsGivesTheSameBits) {
  CappedCall call(500, 400, 4);
  call.add_term();
  expect_same_bits(call.args);
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
