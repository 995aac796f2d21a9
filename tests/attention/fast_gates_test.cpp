// SPDX-License-Identifier: Apache-2.0
// Gates between key and query (CoPE) in the fast engine: counts over blocks of keys, rows that have counted up to the
// last level, keys that do not count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/gated_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

TEST(FastGates, LengthsAndRowsOfTheTable) {
  constexpr Index kLengths[] = {1, 7, 13, 16, 64, 65, 129, 200, 300},
                  kRows[] = {1, 2, 5, 17, 40, 64, 90, 400};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const bool causal : {false, true}) {
        const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
        GatedCall call(queries, keys, kRows[seed % std::size(kRows)], seed);
        ++seed;
        call.args.mask.causal = causal;
        if (causal && seed % 3 == 0)
          call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong_of(), "") << isa_name(isa) << " " << queries << " queries, " << keys
                                       << " keys, " << call.term.table.shape[2] << " rows";
      }
  }
  reset_isa();
}

// Gates that are open, shut, or all of these: counts of whole numbers, 0, and any.
TEST(FastGates, OpenAndShut) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const double scale : {0.0, 1e-30, 300.0, -300.0, 1e5}) {
      GatedCall call(40, 150, 33, 6, scale);
      EXPECT_EQ(call.wrong_of(), "") << isa_name(isa) << scale;
      // Products of one sign.
      for (float& x : call.narrow[0]) x = std::fabs(x);
      for (float& x : call.narrow[1]) x = std::fabs(x);
      for (std::size_t n = 0; n < 2; ++n)
        call.wide[n].assign(call.narrow[n].begin(), call.narrow[n].end());
      EXPECT_EQ(call.wrong_of(), "") << isa_name(isa) << scale;
    }
  }
  reset_isa();
}

TEST(FastGates, KeysThatDoNotCount) {
  GatedCall call(150, 200, 20, 3);
  call.term.gate_own = false;
  EXPECT_EQ(call.wrong_of(), "");
  call.args.mask.query_offset = 10;  // the key of a query's own order lies before its last one
  call.args.mask.causal = false;
  EXPECT_EQ(call.wrong_of(), "");
  call.args.mask.query_offset = -100;  // and some have none
  EXPECT_EQ(call.wrong_of(), "");
  std::vector<std::uint8_t> visible(200, 1), pairs(150 * 200, 1);
  for (std::size_t j = 0; j < 200; j += 7) visible[j] = 0;
  for (std::size_t j = 0; j < pairs.size(); j += 5) pairs[j] = 0;
  call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 200});
  EXPECT_EQ(call.wrong_of(), "");
  call.args.mask.visible = tensor(std::as_const(pairs).data(), {150, 200});
  EXPECT_EQ(call.wrong_of(), "");
}

TEST(FastGates, KeysThatABiasHides) {
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {2, 40})
      for (const int way : {0, 1, 2}) {
        GatedCall call(queries, 150, 20, 5);
        if (way > 0) call.without_table(way == 1 ? Gate::sigmoid : Gate::log_sigmoid);
        call.args.mask.causal = way == 1;
        call.bias_hides_keys();
        EXPECT_EQ(call.wrong_of(), "") << isa_name(isa) << ' ' << queries << ' ' << way;
      }
  }
  reset_isa();
}

// Sums of gates: forgetting, with a gate for each pair.
TEST(FastGates, WithoutATable) {
  constexpr Index kLengths[] = {1, 9, 16, 64, 65, 129, 200, 300};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const Gate gate : {Gate::sigmoid, Gate::log_sigmoid}) {
        const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
        ++seed;
        GatedCall call(queries, keys, 1, seed, seed % 5 == 0 ? -30.0 : 0.4);
        call.without_table(gate);
        call.args.mask.causal = seed % 4 != 0;
        call.term.gate_own = seed % 3 != 0;
        if (seed % 7 == 0) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        if (seed % 2 == 0) {
          call.term.query = {.given = call.vectors(queries, 2, 3)};
          call.term.key = {.given = call.vectors(keys, 2, 3)};
        }
        ASSERT_EQ(call.wrong_of(), "") << isa_name(isa) << ' ' << queries << ' ' << keys;
      }
  }
  reset_isa();
}

// Sums that rise with the distance, so that references move, and those that leave nothing after a few keys.
TEST(FastGates, SumsThatRiseOrFall) {
  for (const double scale : {-2.0, -0.2, 3.0, 60.0})
    for (const Index queries : {3, 90}) {
      GatedCall call(queries, 400, 1, 8);
      call.without_table(Gate::log_sigmoid);
      call.term.scale = scale;
      const CallResult got = of_attend((call.of_term(), call.args)),
                       want = forward_of_reference(call.plain());
      EXPECT_LE(difference(got.out, want.out), 20 * kFloatError) << scale;
      EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), kFloatError) << scale;
      expect_same_bits(call.args);
    }
}

// Sequences one behind the other, whose own keys lie behind the first key of their sequence.
TEST(FastGates, PackedSequences) {
  const std::vector<std::int64_t> cu{0, 60, 61, 200};
  for (const bool own : {false, true}) {
    GatedCall call(200, 200, 20, 3);
    call.term.gate_own = own;
    call.args.mask.query_offset = 0;
    call.args.mask.query_cu_seqlens = call.args.mask.key_cu_seqlens = tensor(cu.data(), {4});
    EXPECT_EQ(call.wrong_of(), "") << own;
  }
}

// Other keys, other queries, one vector for all of them, heads of their own; a scale of 0, and factors of heads.
TEST(FastGates, ProductsOfTheirOwn) {
  for (const Index count : {1, 2}) {
    GatedCall call(100, 150, 20, 4);
    call.term.key = {.given = call.vectors(150, count, call.D)};
    EXPECT_EQ(call.wrong_of(), "") << count;
    call.term.query = {.given = call.vectors(100, count, 3)};
    call.term.key = {.given = call.vectors(150, count, 3)};
    EXPECT_EQ(call.wrong_of(), "") << count;
    call.term.key = {.given = call.vectors(1, count, 3)};
    EXPECT_EQ(call.wrong_of(), "") << count;
    // Few queries: several heads are computed together.
    GatedCall few(5, 150, 20, 4);
    few.term.key = {.given = few.vectors(150, count, few.D)};
    EXPECT_EQ(few.wrong_of(), "") << count;
  }
  const std::vector<double> scales{0.7, 0.0}, factors(100, 0.8);
  GatedCall call(100, 150, 20, 4);
  call.args.query_factor = tensor(factors.data(), {1, 100});
  EXPECT_EQ(call.wrong_of(), "");
  call.args.scale = 0;
  EXPECT_EQ(call.wrong_of(), "");
  call.args.scale = 0.3;
  call.args.head_scale = tensor(scales.data(), {1, 2});
  EXPECT_EQ(call.wrong_of(), "");
}

// Numbers by distance, biases and sinks beside gates; a table for each head.
TEST(FastGates, BesideOtherTerms) {
  test::Random r(3);
  const std::vector<double> slopes{-0.05, 0.1, -3, 0.2}, bias = r.normals(60 * 90), sink{0.5, -1};
  GatedCall call(60, 90, 10, 4);
  const std::vector<double> table = r.normals(2 * 5 * 8);
  call.term.table = tensor(table.data(), {1, 2, 5, 8});
  call.args.terms =
      call.terms = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}, call.term};
  EXPECT_EQ(call.wrong(), "");
  call.args.sink = tensor(sink.data(), {2});
  call.args.mask.bias = tensor(bias.data(), {60, 90});
  EXPECT_EQ(call.wrong(), "");
}

// References of rows move where counts are taken, and where all is the last level.
TEST(FastGates, LargeScoresAndLevels) {
  for (const double level : {0.3, 30.0, -30.0, 1000.0})
    for (const double scale : {1.0, 30.0})
      for (const Isa isa : supported_isas()) {
        force_isa(isa);
        GatedCall call(40, 150, 20, 6);
        call.args.scale = scale, call.term.gate_scale = 0.3, call.term.scale = level;
        call.of_term();
        const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
        EXPECT_TRUE(is_fast(call.args));
        const double most = 4e-6 * (10 + scale + std::fabs(level));
        EXPECT_LE(difference(got.out, want.out), 10 * most) << level << " " << scale;
        EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), most) << level << " " << scale;
      }
  reset_isa();
}

TEST(FastGates, WhatTheFastEngineLeaves) {
  const auto why = [](const GatedCall& call) { return explain_plan(call.args).others[0].why_not; };
  using testing::HasSubstr;
  GatedCall call(20, 30, 10, 4);
  call.term.spread = 0.5;
  call.of_term();
  EXPECT_THAT(why(call), HasSubstr("spread"));
  GatedCall capped(20, 30, 10, 4);
  capped.of_term(), capped.args.softcap = 3;
  EXPECT_THAT(why(capped), HasSubstr("soft cap"));
  GatedCall two(20, 30, 10, 4);
  two.args.terms = two.terms = {two.term, two.term};
  EXPECT_THAT(why(two), HasSubstr("several terms"));
  GatedCall ordered(20, 30, 10, 4);
  ordered.of_term();
  std::vector<std::int64_t> queries(20), keys(30);
  for (std::size_t n = 0; n < 30; ++n) keys[n] = static_cast<Index>(n * 7 % 30);
  ordered.args.mask.query_offset = 0;
  ordered.args.mask.query_order = tensor(std::as_const(queries).data(), {1, 20});
  ordered.args.mask.key_order = tensor(std::as_const(keys).data(), {1, 30});
  EXPECT_THAT(why(ordered), HasSubstr("order"));
  // As many rows as there are keys are read, however many the table has.
  GatedCall long_table(20, 30, 5000, 4);
  EXPECT_EQ(long_table.wrong_of(), "");
  GatedCall many(20, 1100, 1300, 4);
  many.of_term();
  EXPECT_THAT(why(many), HasSubstr("more than 1024 rows"));
}

// The bound that docs/attention.md states: levels count with the number of rows that gates pass.
TEST(FastGates, ErrorsAreWithinTheStatedBound) {
  for (const double level : {0.1, 1.0, 5.0})
    for (const Index rows : {4, 64, 300}) {
      GatedCall call(40, 600, rows, 12);
      call.term.scale = level;
      call.of_term();
      const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
      double largest_value = 0;
      for (const double v : call.wide[2]) largest_value = std::max(largest_value, std::fabs(v));
      const auto dim = static_cast<std::size_t>(call.D);
      for (std::size_t row = 0; row < 80; ++row) {
        const std::size_t h = row / 40, i = row % 40;
        const double* q = &call.wide[0][(i * 2 + h) * dim];
        const auto magnitude = [&](const double* y, double scale) {
          double sum = 0;
          for (std::size_t c = 0; c < dim; ++c) sum += std::fabs(scale * q[c] * y[c]);
          return sum;
        };
        double a = 0, of_levels = 0;
        for (std::size_t j = 0; j < 600; ++j)
          a = std::max(a, magnitude(&call.wide[1][j * dim], *call.args.scale));
        for (std::size_t m = 0; m < static_cast<std::size_t>(rows); ++m)
          of_levels = std::max(of_levels, magnitude(&call.table[m * dim], level));
        const double bound = 0x1p-22 * (8 + a + static_cast<double>(1 + rows) * of_levels);
        EXPECT_LE(std::fabs(got.log_sum_exp[row] - want.log_sum_exp[row]), bound)
            << level << " " << rows;
        for (std::size_t c = 0; c < 8; ++c) {
          const std::size_t at = (i * 2 + h) * 8 + c;
          EXPECT_LE(std::fabs(got.out[at] - want.out[at]), bound * largest_value) << level << rows;
        }
      }
    }
}

// Rows that see a number that is not finite are those of the exact engine; others do not notice.
TEST(FastGates, NumbersThatAreNotFinite) {
  for (const float bad : {HUGE_VALF, std::nanf(""), 1e30f})
    for (const std::size_t array : {0u, 1u, 2u}) {
      GatedCall call(200, 200, 10, 4), whole(200, 200, 10, 4);
      call.of_term(), whole.of_term();
      call.narrow[array][150 * 8 * (array == 0 ? 2 : 1) + 2] = bad;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args), want = of_attend(exact),
                       clean = of_attend(whole.args);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << array;
      for (std::size_t n = 0; n < 120 * 2 * 8; ++n) ASSERT_EQ(got.out[n], clean.out[n]) << n;
    }
  GatedCall call(30, 60, 10, 4);
  call.table[20] = std::nan("");
  call.of_term();
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError);
}

TEST(FastGates, HiddenKeysMayHoldAnything) {
  HiddenKeysCall call(200, 130);
  test::Random r(3);
  const std::vector<double> table = r.normals(12 * 8);
  GatesTerm gates;
  gates.table = tensor(table.data(), {1, 1, 12, 8}), gates.query = gates.key = kContent;
  const Term terms[] = {gates};
  call.args.terms = terms;
  EXPECT_EQ(call.wrong(), "");
  const CallResult clean = of_attend(call.args);
  call.fill_hidden_with_nan();
  EXPECT_EQ(of_attend(call.args).out, clean.out);
}

TEST(FastGates, AnyNumberOfThreadsGivesTheSameBits) {
  GatedCall call(900, 900, 64, 4);
  call.of_term();
  expect_same_bits(call.args);
}

}  // namespace
}  // namespace posenc
