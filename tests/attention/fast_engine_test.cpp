// SPDX-License-Identifier: Apache-2.0
// The fast engine against the plain reference in double: calls and schemes at random, lengths around its blocks,
// every instruction set; numbers that float does not hold go to the exact engine, row by row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "attention/float_call.h"
#include "attention/random_call.h"
#include "attention/scheme_run.h"
#include "posenc/attention/explain_plan.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"

namespace posenc {
namespace {

TEST(FastEngine, RandomCallsAreThoseOfTheReference) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const RandomCall call(seed);
    if (!is_fast(call.args)) continue;
    ASSERT_EQ(wrong_of_fast(of_attend(call.args), call.plain, call.args.q.dtype), "")
        << "seed " << seed;
    ++ran;
  }
  EXPECT_GT(ran, 400);
}

// Calls of few queries are computed otherwise (fast_decode_test.cpp).
TEST(FastEngine, RandomCallsOfManyQueries) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    constexpr Index kQueries[] = {9, 13, 16, 20, 40}, kKeys[] = {1, 4, 16, 18, 33, 64, 70};
    const RandomCall call(
        seed, {.queries = kQueries[seed % 5], .keys = kKeys[seed / 5 % 7], .in_float = true});
    if (!is_fast(call.args)) continue;
    ASSERT_EQ(wrong_of_fast(of_attend(call.args), call.plain, call.args.q.dtype), "")
        << "seed " << seed;
    ++ran;
  }
  EXPECT_GT(ran, 1500);
}

TEST(FastEngine, SchemesAreThoseOfTheReference) {
  std::set<std::string> ran;
  for (std::uint64_t seed = 0; seed < 40 * scheme_count(); ++seed) {
    const std::size_t which = seed % scheme_count();
    try {
      SchemeRun run(seed, which);
      run.exact = false;
      const CallResult got = run.of_plan(false);
      if (run.dtype() == DType::f64) continue;
      ASSERT_EQ(differences(got, run.of_reference(false), fast_tolerance(run.dtype()), kFloatError),
                "")
          << "seed " << seed << " " << scheme_name(which);
      ran.insert(std::string(scheme_name(which)));
    } catch (const std::invalid_argument&) {  // a call that the scheme has not
    }
  }
  EXPECT_GT(ran.size(), scheme_count() / 2);
}

TEST(FastEngine, LengthsAndHeadSizesAroundItsBlocks) {
  constexpr Index kLengths[] = {1,  2,  5,  6,   7,   8,   12,  13,  16,  17, 31,
                                63, 64, 65, 127, 128, 129, 257, 384, 385, 400};
  constexpr Index kDims[] = {1, 3, 8, 16, 20, 33, 64, 80};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const bool causal : {false, true}) {
        const Index keys = kLengths[(seed * 7 + 3) % std::size(kLengths)];
        FloatCall call(1, queries, keys, 2, seed % 3 == 0 ? 1 : 2, kDims[seed % std::size(kDims)],
                       kDims[seed * 5 % std::size(kDims)], seed);
        ++seed;
        call.args.mask.causal = causal;
        if (causal && seed % 2 == 0)
          call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong(), "")
            << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of "
            << call.D << ", " << call.V << " causal " << causal;
      }
  }
  reset_isa();
}

// A step of decoding with a learned bias for 4096 distances: rows that no pair reads are not read.
TEST(FastEngine, RowsThatNoDistanceReadsTakeNoMemory) {
  const auto bytes_of_table = [](Index rows) {
    FloatCall call(1, 1, 20, 2, 2, 8, 8, 3);
    std::vector<std::int32_t> each(static_cast<std::size_t>(rows));
    std::iota(each.begin(), each.end(), 0);
    const std::vector<double> numbers(static_cast<std::size_t>(2 * rows), 0.5);
    ProductTerm t;
    t.lines[0] = {each.data(), rows, 0};
    t.table = tensor(numbers.data(), {1, 2, rows, 1});
    const std::vector<Term> terms{t};
    call.args.terms = terms;
    EXPECT_EQ(call.wrong(), "");
    return workspace_bytes(call.args, inline_executor());
  };
  EXPECT_EQ(bytes_of_table(4096), bytes_of_table(30));
}

// By distance: from a line in float, and from one in double where biases lie far apart.
TEST(FastEngine, BiasesByDistance) {
  for (const double slope : {-0.1, -3.0, -200.0, 40.0}) {
    FloatCall call(1, 300, 500, 2, 2, 16, 16, 5);
    const std::vector<double> table{slope, -1.0, slope / 2, slope};
    const Term linear[] = {LinearTerm{.table = tensor(table.data(), {1, 2, 1, 2})}};
    call.args.terms = linear;
    EXPECT_EQ(call.wrong(), "") << slope;
    call.args.mask.causal = true;
    EXPECT_EQ(call.wrong(), "") << slope;
    // A query far from all keys sees only large distances, and their differences count.
    call.query_at = arange(Index{1} << 31, 300);
    call.args.query_positions = call.query_at;
    const std::vector<double> small{slope / 1e7, -1.0, slope / 1e7, slope};
    const Term far[] = {LinearTerm{.table = tensor(small.data(), {1, 2, 1, 2})}};
    call.args.terms = far;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_LE(difference(got.out, want.out), kFloatError) << slope;
    EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), 1e-6) << slope;
  }
}

// Scores of +-1000, weights that all lie below the reference, and those that outgrow it.
TEST(FastEngine, ScoresFarFromZero) {
  for (const double scale : {100.0, -100.0}) {
    FloatCall call(1, 70, 600, 1, 1, 16, 16, 9);
    call.args.scale = scale / 4;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_LE(difference(got.out, want.out), 1e-3);  // rounding of scores of 1000
  }
  for (const double by : {-500.0, 500.0, 3e5, -3e5}) {
    FloatCall call(1, 70, 600, 1, 1, 16, 16, 9);
    const std::vector<double> number{by};
    ProductTerm all;
    all.table = tensor(number.data(), {1, 1, 1, 1});
    const Term terms[] = {all};
    call.args.terms = terms;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_LE(difference(got.out, want.out), kFloatError) << by;
    EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), 1e-6) << by;
  }
}

// Numbers that float cannot work with: rows that meet them are those of the exact engine, bit by bit, and the others
// do not notice.
TEST(FastEngine, LeavesRowsToTheExactEngine) {
  const float kBad[] = {HUGE_VALF, -HUGE_VALF, std::nanf(""), 1e30f};
  for (const float bad : kBad)
    for (const std::size_t array : {0u, 1u, 2u}) {
      FloatCall call(1, 200, 200, 1, 1, 8, 8, 3), whole(1, 200, 200, 1, 1, 8, 8, 3);
      call.args.mask.causal = whole.args.mask.causal = true;
      call.narrow[array][150 * 8 + 2] = bad;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args), want = of_attend(exact),
                       clean = of_attend(whole.args);
      const auto row = [](const CallResult& r, std::size_t i) {
        return std::vector<double>(r.out.begin() + static_cast<std::ptrdiff_t>(8 * i),
                                   r.out.begin() + static_cast<std::ptrdiff_t>(8 * i + 8));
      };
      EXPECT_EQ(difference(row(got, 150), row(want, 150)), 0) << bad << " array " << array;
      EXPECT_LE(difference(got.out, want.out), kFloatError);
      for (std::size_t i = 0; i < 120; ++i) ASSERT_EQ(row(got, i), row(clean, i)) << i;
    }
}

// A table or a sink that is not finite: the same rows are NaN, and the others have the same numbers.
TEST(FastEngine, TablesAndSinksThatAreNotFinite) {
  for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")})
    for (const bool wide : {false, true}) {
      FloatCall call(1, 100, 300, 2, 2, 8, 8, 3);
      std::vector<std::int32_t> rows;
      for (std::int32_t delta = 0; delta < 300; ++delta)
        rows.push_back(delta < 150 ? 0 : delta < 290 ? 1 : 2);
      const std::vector<double> numbers{0.5, wide ? -500.0 : 0.25, bad};
      ProductTerm line;
      line.lines[0] = {rows.data(), 300, 0};
      line.table = tensor(numbers.data(), {1, 1, 3, 1});
      const Term terms[] = {line};
      call.args.terms = terms;
      AttentionArgs exact = call.args;
      exact.exact = true;
      EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError)
          << bad << wide;
      const std::vector<double> sink{0.5, bad};
      call.args.terms = exact.terms = {};
      call.args.sink = exact.sink = tensor(sink.data(), {2});
      const CallResult got = of_attend(call.args), want = of_attend(exact);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad;
      EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), kFloatError) << bad;
    }
}

// What no query may see may hold anything.
TEST(FastEngine, HiddenKeysMayHoldAnything) {
  HiddenKeysCall call(200, 130);
  const CallResult clean = of_attend(call.args);
  call.fill_hidden_with_nan();
  const CallResult got = of_attend(call.args);
  EXPECT_EQ(got.out, clean.out);
  EXPECT_EQ(got.log_sum_exp, clean.log_sum_exp);
}

// The bound that docs/attention.md states: 2^-22 (8 + A), A the largest sum of |scale q_c k_c| + |terms| of a query.
TEST(FastEngine, ErrorsAreWithinTheStatedBound) {
  for (const double scale : {0.01, 0.3, 1.0, 3.0, 10.0})
    for (const Index dim : {4, 64, 256}) {
      FloatCall call(1, 40, 300, 1, 1, dim, 8, 11);
      call.args.scale = scale / std::sqrt(static_cast<double>(dim));
      const std::vector<double> slopes{-0.3, 0.2};
      const Term linear[] = {LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}};
      call.args.terms = linear;
      const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
      double largest_value = 0;
      for (const double v : call.wide[2]) largest_value = std::max(largest_value, std::fabs(v));
      for (Index i = 0; i < 40; ++i) {
        double a = 0;
        for (Index j = 0; j < 300; ++j) {
          double sum = 0.3 * std::fabs(static_cast<double>(260 + i - j));
          for (Index c = 0; c < dim; ++c)
            sum +=
                std::fabs(*call.args.scale * call.wide[0][static_cast<std::size_t>(i * dim + c)] *
                          call.wide[1][static_cast<std::size_t>(j * dim + c)]);
          a = std::max(a, sum);
        }
        const double bound = 0x1p-22 * (8 + a);
        for (std::size_t c = 0; c < 8; ++c) {
          const std::size_t at = static_cast<std::size_t>(i) * 8 + c;
          EXPECT_LE(std::fabs(got.out[at] - want.out[at]), bound * largest_value)
              << scale << " " << dim;
        }
        const auto row = static_cast<std::size_t>(i);
        EXPECT_LE(std::fabs(got.log_sum_exp[row] - want.log_sum_exp[row]), bound)
            << scale << " " << dim;
      }
    }
}

TEST(FastEngine, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Index queries : {1, 100, 1000}) {
    FloatCall call(2, queries, 700, 4, 2, 32, 32, 4);
    call.args.mask.causal = true;
    call.args.mask.query_offset = 0;
    expect_same_bits(call.args);
  }
}

}  // namespace
}  // namespace posenc
