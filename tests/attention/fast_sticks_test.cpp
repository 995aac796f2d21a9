// SPDX-License-Identifier: Apache-2.0
// Stick-breaking in the fast engine: what is left is carried over blocks of keys, until nothing is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/stick_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

TEST(FastSticks, LengthsAndScores) {
  constexpr Index kLengths[] = {1, 7, 13, 16, 64, 65, 129, 200, 300};
  constexpr double kNumbers[] = {-5, -1, 0, -8, 3, -20, 40};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const bool causal : {false, true}) {
        const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
        StickCall call(queries, keys, seed, kNumbers[seed % std::size(kNumbers)]);
        ++seed;
        call.args.mask.causal = causal;
        if (causal && seed % 3 == 0)
          call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong(), "") << isa_name(isa) << " " << queries << " queries, " << keys
                                    << " keys, " << call.numbers[0];
      }
  }
  reset_isa();
}

// As published: a query's own key is hidden, and with `own` the rest goes to its value.
TEST(FastSticks, OwnKeys) {
  const std::vector<std::int64_t> cu{0, 60, 61, 200};
  for (const std::uint64_t seed : {4u, 5u})
    for (const double number : {-6.0, 0.0}) {
      StickCall call(150, 200, seed, number);
      call.args.mask.window_right = -1;
      EXPECT_EQ(call.wrong(), "");
      call.args.mask.query_offset = -20;
      EXPECT_EQ(call.wrong(), "");
      StickCall packed(200, 200, seed, number);
      packed.args.mask.window_right = -1, packed.args.mask.query_offset = 0;
      packed.args.mask.query_cu_seqlens = packed.args.mask.key_cu_seqlens = tensor(cu.data(), {4});
      EXPECT_EQ(packed.wrong(), "");
    }
}

TEST(FastSticks, MasksAndTerms) {
  test::Random r(3);
  std::vector<std::uint8_t> visible(200, 1), pairs(60 * 200, 1);
  for (std::size_t j = 0; j < 200; j += 7) visible[j] = 0;
  for (std::size_t j = 0; j < pairs.size(); j += 5) pairs[j] = 0;
  const std::vector<double> slopes{-0.05, 0.1, -300, 0.2},
      bias = r.normals(60 * 200), table = r.normals(2 * 129 * 8), x = r.normals(60 * 2 * 3),
      y = r.normals(200 * 2 * 3);
  for (const std::uint64_t seed : {2u, 6u}) {
    StickCall call(60, 200, seed);
    call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 200});
    EXPECT_EQ(call.wrong(), "");
    call.args.mask.visible = tensor(std::as_const(pairs).data(), {60, 200});
    EXPECT_EQ(call.wrong(), "");
    call.args.mask.bias = tensor(bias.data(), {60, 200});
    EXPECT_EQ(call.wrong(), "");
    StickCall by(60, 200, seed);
    by.terms.emplace_back(LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})});
    by.args.terms = by.terms;
    EXPECT_EQ(by.wrong(), "");
    // Rows of a table, and products of vectors.
    std::vector<std::int32_t> rows;
    for (std::int32_t d = -64; d <= 64; ++d) rows.push_back(d + 64);
    ProductTerm of_rows, of_vectors;
    of_rows.lines[0] = {rows.data(), 129, -64};
    of_rows.table = tensor(table.data(), {1, 2, 129, 8}), of_rows.query = kContent;
    of_rows.scale = 0.2;
    of_vectors.query.given = heads(tensor(x.data(), {1, 60, 2, 3}), HeadsLayout::bthd);
    of_vectors.key.given = heads(tensor(y.data(), {1, 200, 2, 3}), HeadsLayout::bthd);
    by.terms = {by.terms[0], of_rows, of_vectors};
    by.args.terms = by.terms;
    EXPECT_EQ(by.wrong(), "");
  }
}

// Nothing is left after a few keys: the logarithm of it is right nevertheless, and the output without it.
TEST(FastSticks, BrokenSticks) {
  for (const double number : {1.0, 30.0, 1000.0, -1000.0}) {
    StickCall call(100, 700, 4, number);
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_TRUE(is_fast(call.args));
    EXPECT_LE(difference(got.out, want.out), kFloatError * std::max(1.0, number / 20)) << number;
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_LE(difference(got.log_sum_exp, of_attend(exact).log_sum_exp), 1e-6) << number;
    std::vector<float> out(call.narrow[0].size() / static_cast<std::size_t>(call.D) *
                           static_cast<std::size_t>(call.V));
    attend(call.args, {heads(tensor(out.data(), {1, 100, 2, call.V}), HeadsLayout::bthd), {}});
    EXPECT_LE(difference(std::vector<double>(out.begin(), out.end()), got.out), 1e-24) << number;
  }
}

// Rows that are added to values: of sticks that last and of broken ones, forward, backward and for few queries.
TEST(FastSticks, RowsOfValues) {
  test::Random r(3);
  std::vector<std::int32_t> rows;
  for (std::int32_t d = -64; d <= 64; ++d) rows.push_back(d < 0 ? 0 : std::min(d, 40));
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const std::uint64_t seed : {2u, 3u})
      for (const double number : {-5.0, 1.0})
        for (const Index queries : {2, 20}) {
          StickCall call(queries, 270, seed, number);
          const std::vector<double> table = r.normals(static_cast<std::size_t>(2 * 41 * call.V));
          ValueRowsTerm t;
          t.lines[0] = {rows.data(), 129, -64};
          t.table = tensor(table.data(), {1, 2, 41, call.V}), t.scale = 0.3;
          call.terms.emplace_back(t);
          call.args.terms = call.terms;
          EXPECT_EQ(call.wrong(), "") << isa_name(isa) << number << " " << queries;
          if (queries > 2) {
            EXPECT_EQ(call.wrong_backward(), "") << isa_name(isa) << number;
          }
        }
  }
  reset_isa();
  StickCall call(2, 9000, 2, -9);
  ValueRowsTerm t;
  const std::vector<double> table = r.normals(static_cast<std::size_t>(41 * call.V));
  t.lines[0] = {rows.data(), 129, -64}, t.table = tensor(table.data(), {1, 1, 41, call.V});
  call.terms.emplace_back(t);
  call.args.terms = call.terms;
  EXPECT_EQ(call.wrong(), "");
}

TEST(FastSticks, WhatTheFastEngineLeaves) {
  const auto why = [](const StickCall& call) { return explain_plan(call.args).others[0].why_not; };
  StickCall capped(20, 30, 4);
  capped.args.softcap = 3;
  EXPECT_THAT(why(capped), testing::HasSubstr("soft cap"));
  StickCall ordered(20, 30, 4);
  std::vector<std::int64_t> queries(20), keys(30);
  for (std::size_t n = 0; n < 30; ++n) keys[n] = static_cast<Index>(n * 7 % 30);
  ordered.args.mask.query_offset = 0;
  ordered.args.mask.query_order = tensor(std::as_const(queries).data(), {1, 20});
  ordered.args.mask.key_order = tensor(std::as_const(keys).data(), {1, 30});
  EXPECT_THAT(why(ordered), testing::HasSubstr("order"));
}

// The bound that docs/attention.md states.
TEST(FastSticks, ErrorsAreWithinTheStatedBound) {
  for (const double number : {-9.0, -5.0, 0.0, 4.0})
    for (const double scale : {0.1, 1.0, 5.0}) {
      StickCall call(40, 600, 12, number);
      call.args.scale = scale;
      const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
      double largest_value = 0;
      for (const double v : call.wide[2]) largest_value = std::max(largest_value, std::fabs(v));
      const auto dim = static_cast<std::size_t>(call.D), values = static_cast<std::size_t>(call.V);
      for (std::size_t row = 0; row < 80; ++row) {
        const std::size_t h = row / 40, i = row % 40;
        double a = 0;
        for (std::size_t j = 0; j < 600; ++j) {
          double sum = std::fabs(number);
          for (std::size_t c = 0; c < dim; ++c)
            sum +=
                std::fabs(scale * call.wide[0][(i * 2 + h) * dim + c] * call.wide[1][j * dim + c]);
          a = std::max(a, sum);
        }
        const double bound = 0x1p-22 * (8 + a);
        // The logarithm in the reference ends where what is left does.
        const double left = want.log_sum_exp[row];
        if (left > -600) {
          EXPECT_LE(std::fabs(got.log_sum_exp[row] - left), bound + 0x1p-22 * std::fabs(left))
              << number << " " << scale;
        }
        for (std::size_t c = 0; c < values; ++c) {
          const std::size_t at = (i * 2 + h) * values + c;
          EXPECT_LE(std::fabs(got.out[at] - want.out[at]), bound * largest_value)
              << number << scale;
        }
      }
    }
}

// Rows that see a number that is not finite are those of the exact engine; others do not notice.
TEST(FastSticks, NumbersThatAreNotFinite) {
  for (const float bad : {HUGE_VALF, -HUGE_VALF, std::nanf(""), 1e30f, 1e9f})
    for (const std::size_t array : {0u, 1u, 2u})
      for (const std::uint64_t seed : {6u, 9u}) {
        StickCall call(200, 200, seed), whole(200, 200, seed);
        call.args.mask.window_right = whole.args.mask.window_right = -1;
        call.narrow[array][static_cast<std::size_t>(150 * (array == 0   ? 2 * call.D
                                                           : array == 1 ? call.D
                                                                        : call.V) +
                                                    2)] = bad;
        AttentionArgs exact = call.args;
        exact.exact = true;
        const CallResult got = of_attend(call.args), want = of_attend(exact),
                         clean = of_attend(whole.args);
        EXPECT_LE(difference(got.out, want.out), kFloatError) << bad << array;
        for (std::size_t n = 0; n < static_cast<std::size_t>(120 * 2 * call.V); ++n)
          ASSERT_EQ(got.out[n], clean.out[n]) << n;
      }
}

TEST(FastSticks, HiddenKeysMayHoldAnything) {
  for (const Normalisation how :
       {Normalisation::stick_breaking, Normalisation::stick_breaking_own}) {
    HiddenKeysCall call(200, 130);
    call.args.normalisation = how;
    EXPECT_EQ(call.wrong(), "");
    const CallResult clean = of_attend(call.args);
    call.fill_hidden_with_nan();
    EXPECT_EQ(of_attend(call.args).out, clean.out);
  }
}

TEST(FastSticks, AnyNumberOfThreadsGivesTheSameBits) {
  StickCall call(900, 900, 4);
  expect_same_bits(call.args);
}

}  // namespace
}  // namespace posenc
