// SPDX-License-Identifier: Apache-2.0
// Forgetting gates x_i - y_j, of both sides: lines of numbers by key, and a number of each query.
#include <gtest/gtest.h>

#include "attention/float_call.h"

namespace posenc {
namespace {

// Sums of what each token keeps, which fall by `by` a token.
struct ForgettingCall : FloatCall {
  ForgettingCall(Index queries, Index keys, double by, Index heads_of_gates, Index batch = 2)
      : FloatCall(batch, queries, keys, 2, 1, 8, 5, 7) {
    test::Random r(3);
    const auto sums = [&](Index tokens, Index first) {
      given.emplace_back();
      for (Index n = 0; n < B * tokens * heads_of_gates; ++n)
        given.back().push_back(-by * static_cast<double>(first + n / heads_of_gates % tokens) +
                               0.3 * r.normal());
      return heads(tensor(std::as_const(given.back()).data(), {B, tokens, heads_of_gates, 1}),
                   HeadsLayout::bthd);
    };
    term.query.given = sums(queries, keys - queries), term.key.given = sums(keys, 0);
    term.scale = 0.7;
    terms = {term};
    args.terms = terms;
    args.mask.causal = true;
  }
  ForgettingCall(const ForgettingCall&) = delete;
  std::deque<std::vector<double>> given;
  DecayTerm term;
  std::vector<Term> terms;
};

// Of sums that rise, the last keys count least.
TEST(FastKeyLines, RowsAndGradientsAreThoseOfTheReference) {
  for (const double by : {0.0, 0.02, 0.9, -0.4})
    for (const Index queries : {1, 6, 150})
      for (const Index gates : {1, 2}) {
        ForgettingCall call(queries, 260, by, gates);
        ASSERT_EQ(call.wrong_backward_of_all_isas(), "") << by << ' ' << queries << ' ' << gates;
        expect_same_bits(call.args);
        expect_same_gradient_bits(call.args);
      }
}

TEST(FastKeyLines, MasksAndBiases) {
  ForgettingCall call(150, 260, 0.1, 2);
  std::vector<std::uint8_t> visible(520, 1);
  for (std::size_t j = 0; j < 520; j += 9) visible[j] = 0;
  call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 260});
  EXPECT_EQ(call.wrong(), "");
  call.args.mask.window_left = 40;
  EXPECT_EQ(call.wrong_backward(), "");
  test::Random r(5);
  std::vector<float> bias;
  for (const double x : r.normals(150 * 260)) bias.push_back(static_cast<float>(x));
  call.args.mask.bias = tensor(std::as_const(bias).data(), {150, 260});
  EXPECT_LE(difference(of_attend(call.args).out, forward_of_reference(call.plain()).out),
            kFloatError);
}

// Numbers that are not finite reach the rows that see them, and no others.
TEST(FastKeyLines, NumbersThatAreNotFinite) {
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    for (const std::size_t array : {0u, 1u})
      for (const Index queries : {4, 150}) {
        ForgettingCall call(queries, 260, 0.1, 1, 1);
        call.given[array][array == 0 ? 2 : 200] = bad;
        AttentionArgs exact = call.args;
        exact.exact = true;
        const CallResult got = of_attend(call.args), want = of_attend(exact);
        EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << array;
        EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), kFloatError) << bad << array;
      }
}

}  // namespace
}  // namespace posenc
