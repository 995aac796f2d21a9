// SPDX-License-Identifier: Apache-2.0
// Few queries with gates or stick-breaking, whose keys the fast engine reads as they lie: against the reference in double,
// around the blocks and slices of keys.
#include <gtest/gtest.h>

#include "attention/gated_call.h"
#include "attention/stick_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// fn(queries, heads of a key head, keys, number of the call) on every instruction set.
template <class F>
void each_few(const F& fn) {
  constexpr Index kLengths[] = {1, 8, 31, 32, 33, 70, 200};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 2, 3, 5, 8})
      for (const Index share : {1, 3, 8})
        for (const Index keys : kLengths) {
          if (queries * share > 8 || keys < queries) continue;
          ASSERT_EQ(fn(queries, share, keys, ++seed), "")
              << isa_name(isa) << " " << queries << " queries, " << share << " heads, " << keys
              << " keys, seed " << seed;
        }
  }
  reset_isa();
}

TEST(FastDecodeScans, GatesOfQueriesHeadsAndLengths) {
  constexpr Index kRows[] = {1, 3, 20, 64, 400};
  each_few([&](Index queries, Index share, Index keys, std::size_t seed) {
    GatedCall call(queries, keys, kRows[seed % std::size(kRows)], seed, 0.4, 2 * share, 2);
    call.term.gate_own = seed % 3 != 0;
    if (seed % 4 == 1) call.term.key = {.given = call.vectors(keys, 2 * share, call.D)};
    if (seed % 4 == 3) {
      call.term.query = {.given = call.vectors(queries, 1, 3)};
      call.term.key = {.given = call.vectors(seed % 8 == 3 ? 1 : keys, 1, 3)};
    }
    if (seed % 5 == 0) call.args.mask.window_left = 40, call.args.mask.sink_tokens = 3;
    return call.wrong_of();
  });
}

TEST(FastDecodeScans, GatesWithoutATable) {
  each_few([&](Index queries, Index share, Index keys, std::size_t seed) {
    GatedCall call(queries, keys, 1, seed, 0.4, 2 * share, 2);
    call.without_table(seed % 2 == 0 ? Gate::sigmoid : Gate::log_sigmoid);
    call.term.gate_own = seed % 3 != 0;
    if (seed % 4 == 1) call.term.key = {.given = call.vectors(keys, 2 * share, call.D)};
    return call.wrong_of();
  });
}

TEST(FastDecodeScans, SticksOfQueriesHeadsAndLengths) {
  constexpr double kNumbers[] = {-5, 0, -8, 3, -20, 40};
  each_few([&](Index queries, Index share, Index keys, std::size_t seed) {
    StickCall call(queries, keys, seed, kNumbers[seed % std::size(kNumbers)], 2 * share, 2);
    if (seed % 5 == 0) call.args.mask.window_left = 40, call.args.mask.sink_tokens = 3;
    if (seed % 7 == 0) call.args.mask.window_right = -1;
    return call.wrong();
  });
}

// Rows that count in several slices, or in the last one only; scores that lie far apart, so that references move.
TEST(FastDecodeScans, SlicesOfTheKeys) {
  for (const Index keys : {4096, 4097, 9000})
    for (const double scale : {0.4, -300.0}) {
      GatedCall call(2, keys, 900, 4, scale);
      const std::vector<double> slopes{-0.001, 0.001, 1.0, 1.0};
      // Products of one sign: gates are nearly shut.
      if (scale < 0)
        for (std::size_t n = 0; n < 2; ++n)
          for (std::size_t at = 0; at < call.narrow[n].size(); ++at)
            call.wide[n][at] = call.narrow[n][at] = std::fabs(call.narrow[n][at]);
      if (scale < 0) call.term.gate_scale = -0.5;
      EXPECT_EQ(call.wrong_of(), "") << keys << " " << scale;
      call.args.terms =
          call.terms = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}, call.term};
      EXPECT_EQ(call.wrong(), "") << keys << " " << scale;
      expect_same_bits(call.args);
    }
  for (const double number : {-12.0, -8.0, -5.0})
    for (const std::uint64_t seed : {2u, 3u}) {
      StickCall call(2, 9000, seed, number);
      EXPECT_EQ(call.wrong(), "") << number;
      expect_same_bits(call.args);
    }
}

// Without log-sum-exps, what follows a broken stick is not read; with them, its logarithm is right.
TEST(FastDecodeScans, BrokenSticks) {
  for (const double number : {1.0, 30.0}) {
    StickCall call(1, 5000, 4, number);
    const CallResult want = of_attend(call.args);
    std::vector<float> out(call.narrow[0].size() / static_cast<std::size_t>(call.D) *
                           static_cast<std::size_t>(call.V));
    const auto run = [&] {
      attend(call.args, {heads(tensor(out.data(), {1, 1, 2, call.V}), HeadsLayout::bthd), {}});
      return std::vector<double>(out.begin(), out.end());
    };
    EXPECT_LE(difference(run(), want.out), 1e-24) << number;
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_LE(difference(want.log_sum_exp, of_attend(exact).log_sum_exp), 1e-6) << number;
    const std::vector<double> clean = run();
    for (std::size_t n = 0; n < 3000 * static_cast<std::size_t>(call.D); ++n)
      call.narrow[1][n] = std::nanf("");
    EXPECT_EQ(run(), clean) << number;
  }
}

// A number that is not finite is met by the rows that see it; hidden keys may hold anything.
TEST(FastDecodeScans, NumbersThatAreNotFinite) {
  const auto check = [](FloatCall& call) {
    std::vector<std::uint8_t> visible(2 * 100, 1);
    for (std::size_t j = 10; j < 50; ++j) visible[j] = 0;  // from the first query
    call.args.mask.visible = tensor(std::as_const(visible).data(), {2, 100});
    call.narrow[1][static_cast<std::size_t>(70 * call.D)] = 0.5f;
    const CallResult clean = of_attend(call.args);
    AttentionArgs exact = call.args;
    exact.exact = true;
    for (const float bad : {HUGE_VALF, std::nanf("")}) {
      call.narrow[1][static_cast<std::size_t>(20 * call.D)] = bad;
      const CallResult got = of_attend(call.args), want = of_attend(exact);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad;
      call.narrow[1][static_cast<std::size_t>(70 * call.D)] = bad;  // that both see
      EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError) << bad;
      call.narrow[1][static_cast<std::size_t>(70 * call.D)] = 0.5f;
      for (std::size_t n = 0; n < clean.out.size() / 2; ++n)
        EXPECT_NEAR(got.out[n], clean.out[n], kFloatError) << bad;
    }
  };
  GatedCall gates(2, 100, 20, 4);
  gates.of_term();
  check(gates);
  StickCall sticks(2, 100, 4, -6);
  check(sticks);
}

}  // namespace
}  // namespace posenc
