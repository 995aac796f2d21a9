// SPDX-License-Identifier: Apache-2.0
// Functions of the distance (FIRE) in the fast engine: pieces of a line, and pair by pair where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "attention/long_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

struct CurveCall : FloatCall {
  CurveCall(Index queries, Index keys, std::uint64_t seed, double size = 1, std::size_t count = 9)
      : FloatCall(1, queries, keys, 2, 1, 8, 8, seed), random(seed + 1), units(count) {
    in = random.normals(units), in_bias = random.normals(units), out = random.normals(2 * units),
    out_bias = random.normals(2);
    in[3] = 0;  // a unit without a knot
    for (double& x : out) x *= size;
    term.table = tensor(std::as_const(table).data(), {1, 1, 1, 2});
    const auto n = static_cast<Index>(units);
    term.mlp = {tensor(std::as_const(in).data(), {n, 1, 1}),
                tensor(std::as_const(in_bias).data(), {n}),
                tensor(std::as_const(out).data(), {2, n, 1}),
                tensor(std::as_const(out_bias).data(), {2}), 0.1};
  }
  // After changes of `term`.
  std::string wrong_of() {
    terms = {term};
    args.terms = terms;
    return wrong();
  }
  std::string wrong_gradients_of() {
    terms = {term};
    args.terms = terms;
    return wrong_backward();
  }
  test::Random random;
  std::size_t units;
  std::vector<double> table{0.2, 40.0}, in, in_bias, out, out_bias;
  DistanceMlpTerm term;
  std::vector<Term> terms;
};

TEST(FastCurve, LengthsAndSides) {
  constexpr Index kLengths[] = {1, 13, 64, 65, 129, 200};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const int kind : {0, 1, 2, 3}) {
        const Index keys = kLengths[(seed * 5 + 1) % std::size(kLengths)];
        CurveCall call(queries, keys, seed);
        ++seed;
        call.args.mask.causal = kind % 2 == 0;
        call.term.keep_sign = kind >= 2;
        if (seed % 3 == 0) call.args.mask.window_left = 30, call.args.mask.sink_tokens = 3;
        if (seed % 4 == 1) call.query_at = arange(5, queries);
        call.args.query_positions = call.query_at;
        ASSERT_EQ(call.wrong_of(), "")
            << isa_name(isa) << " " << queries << " " << keys << " kind " << kind;
      }
  }
  reset_isa();
}

// Numbers far from 0, positions that do not count up, masks by pair and by key, c and L of all kinds, other terms.
TEST(FastCurve, OffTheFastWay) {
  CurveCall large(60, 90, 3, 200);
  large.args.mask.causal = true;
  EXPECT_EQ(large.wrong_of(), "");
  CurveCall far(60, 90, 3);
  far.out_bias = {3e5, -3e5};
  EXPECT_EQ(far.wrong_of(), "");
  CurveCall many(60, 90, 3, 1, 70);  // more units than there is memory for their distances
  EXPECT_EQ(many.wrong_of(), "");
  CurveCall apart(60, 90, 4);
  std::vector<std::int64_t> at;
  for (Index j = 0; j < 90; ++j) at.push_back(j * 37 % 90);
  apart.args.key_positions = Positions{at.data(), DType::i64, 1, 90};
  EXPECT_EQ(apart.wrong_of(), "");
  CurveCall hidden(60, 90, 5);
  std::vector<std::uint8_t> visible(90, 1), pairs(60 * 90, 1);
  for (std::size_t j = 0; j < 90; j += 7) visible[j] = 0;
  for (std::size_t j = 0; j < pairs.size(); j += 5) pairs[j] = 0;
  hidden.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 90});
  EXPECT_EQ(hidden.wrong_of(), "");
  hidden.args.mask.visible = tensor(std::as_const(pairs).data(), {60, 90});
  EXPECT_EQ(hidden.wrong_of(), "");
  for (const double c : {0.0, -0.3, 5.0})
    for (const double limit : {-3.0, 0.0, 1e6}) {
      CurveCall call(60, 90, 6);
      call.table = {c, limit};
      call.term.table = tensor(std::as_const(call.table).data(), {1, 1, 1, 2});
      call.term.epsilon = 0.5;
      call.term.keep_sign = limit == 0;
      EXPECT_EQ(call.wrong_of(), "") << c << " " << limit;
    }
  CurveCall two(60, 90, 7);
  const std::vector<double> slopes{-0.1, 0.2};
  two.terms = {LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}, two.term, two.term};
  two.args.terms = two.terms;
  EXPECT_EQ(two.wrong(), "");
}

TEST(FastCurveBackward, LengthsAndSides) {
  constexpr Index kLengths[] = {1, 13, 97, 140, 200};
  std::size_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const int kind : {0, 1, 2, 3}) {
        CurveCall call(queries, kLengths[(seed * 3 + 1) % std::size(kLengths)], seed);
        ++seed;
        call.args.mask.causal = kind % 2 == 0;
        call.term.keep_sign = kind >= 2;
        if (seed % 3 == 0) call.query_at = arange(5, queries);
        call.args.query_positions = call.query_at;
        ASSERT_EQ(call.wrong_gradients_of(), "")
            << isa_name(isa) << " " << queries << " " << call.Tk << " kind " << kind;
      }
  }
  reset_isa();
}

// Distances that meet a knot exactly: 0 where units have no bias, and that of the first key where nothing is added to
// what psi is divided by. There the slope of a unit is 1.
TEST(FastCurveBackward, DistancesOnKnots) {
  for (const bool keep_sign : {false, true})
    for (const double knot : {0.0, 1.0}) {
      CurveCall call(100, 150, 4);
      call.query_at = arange(0, 100), call.args.query_positions = call.query_at;
      call.table = {0.3, 20.0}, call.term.epsilon = 0, call.term.keep_sign = keep_sign;
      call.term.table = tensor(std::as_const(call.table).data(), {1, 1, 1, 2});
      for (std::size_t u = 0; u < call.units; ++u) call.in_bias[u] = -knot * call.in[u];
      EXPECT_EQ(call.wrong_gradients_of(), "") << keep_sign << knot;
    }
}

// Slices of the keys of one head, two terms, batch entries and heads that share a network, c and L of all kinds.
TEST(FastCurveBackward, TablesAndSlices) {
  CurveCall slices(20, 1600, 5);
  EXPECT_EQ(slices.wrong_gradients_of(), "");
  expect_same_gradient_bits(slices.args);
  CurveCall two(60, 90, 7);
  const std::vector<double> slopes{-0.1, 0.2};
  two.terms = {two.term, LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})}, two.term};
  std::get<DistanceMlpTerm>(two.terms[0]).scale = 0.3;
  two.args.terms = two.terms, two.args.softcap = 2;
  EXPECT_EQ(two.wrong_backward(), "");
  for (const double c : {0.0, -0.3, 5.0})
    for (const double limit : {-3.0, 0.0, 30.0, 1e6}) {
      CurveCall call(60, 90, 6);
      call.table = {c, limit, 0.2, 59.0};
      call.term.table = tensor(std::as_const(call.table).data(), {1, 2, 1, 2});
      call.term.epsilon = 0.5, call.term.keep_sign = limit == 0;
      EXPECT_EQ(call.wrong_gradients_of(), "") << c << " " << limit;
    }
}

// Beside inputs, outputs, gradients and the numbers of the network: 64 MiB for 16,384 tokens, 8 heads of 64.
TEST(FastCurveBackward, MemoryGrowsWithTheTokensOnly) {
  constexpr Index H = 8, units = 32;
  const std::vector<double> number(H * units, 0.1);
  std::vector<double> d_number = number;
  DistanceMlpTerm fire;
  fire.table = tensor(number.data(), {1, 1, 1, 2});
  fire.mlp = {tensor(number.data(), {units, 1, 1}), tensor(number.data(), {units}),
              tensor(number.data(), {H, units, 1}), tensor(number.data(), {H})};
  const Term term = fire;
  TermGradient d_term;
  d_term.mlp.out = tensor(d_number.data(), {H, units, 1});
  test::expect_memory_of_tokens_only(term, d_term);
}

TEST(FastCurveBackward, WhatTheExactEngineComputes) {
  CurveCall many(20, 30, 3, 1, 129);
  many.terms = {many.term}, many.args.terms = many.terms;
  EXPECT_THAT(explain_plan(many.args).backward_others.at(0).why_not,
              testing::HasSubstr("more than 128 units"));
  CurveCall apart(20, 30, 4);
  const std::vector<double> at = apart.random.normals(30);
  apart.args.key_positions = Positions{at.data(), DType::f64, 1, 30};
  apart.terms = {apart.term}, apart.args.terms = apart.terms;
  EXPECT_THAT(explain_plan(apart.args).backward_others.at(0).why_not,
              testing::HasSubstr("count up by one"));
  CurveCall bad(20, 30, 3);  // what the positions are divided by is negative
  bad.table = {0.2, -30.0}, bad.term.keep_sign = true;
  bad.query_at = arange(-25, 20), bad.args.query_positions = bad.query_at;
  bad.terms = {bad.term}, bad.args.terms = bad.terms;
  AttentionArgs exact = bad.args;
  exact.exact = true;
  const CallResult got = gradients_of_fast(bad.args), want = gradients_of_fast(exact);
  for (std::size_t n = 0; n < want.gradients.size(); ++n)
    EXPECT_LE(difference(got.gradients[n], want.gradients[n]), 1e-4) << got.names[n];
}

// A knot may lie at a distance that no 32 bits hold, and so may all distances.
TEST(FastCurve, FarQueries) {
  for (const double knot : {0.5, 0.97, 1.2}) {
    CurveCall call(60, 90, 3);
    call.in[0] = 4, call.in_bias[0] = -4 * knot;
    std::vector<std::int64_t> at(60);
    for (std::size_t i = 0; i < at.size(); ++i)
      at[i] = (std::int64_t{1} << 33) + static_cast<std::int64_t>(i);
    call.args.query_positions = Positions{at.data(), DType::i64, 1, 60};
    EXPECT_EQ(call.wrong_of(), "") << knot;
  }
}

// The knot of a unit whose weight is next to nothing lies far away, where neighbouring numbers are more than 1 apart.
TEST(FastCurve, UnitsThatHardlyReadTheDistance) {
  for (const double weight : {1e-20, -1e-20, 1e-300})
    for (const double bias : {1.0, -1.0}) {
      CurveCall call(60, 90, 3);
      call.in[0] = weight, call.in_bias[0] = bias;
      EXPECT_EQ(call.wrong_of(), "") << weight << " " << bias;
      call.in.assign(call.units, 0), call.in[0] = weight;
      EXPECT_EQ(call.wrong_of(), "") << weight << " " << bias << " alone";
    }
}

// The bound that docs/attention.md states, with the magnitudes of the units.
TEST(FastCurve, ErrorsAreWithinTheStatedBound) {
  for (const double size : {0.1, 1.0, 5.0}) {
    CurveCall call(40, 300, 11, size);
    call.terms = {call.term};
    call.args.terms = call.terms;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    double largest_value = 0;
    for (const double v : call.wide[2]) largest_value = std::max(largest_value, std::fabs(v));
    for (std::size_t row = 0; row < 80; ++row) {
      const std::size_t h = row / 40, i = row % 40;
      double a = 0;
      for (std::size_t j = 0; j < 300; ++j) {
        const double delta = 260 + static_cast<double>(i) - static_cast<double>(j);
        const double below = std::log(0.2 * std::max(260 + static_cast<double>(i), 40.0) + 1);
        const double x = std::log(0.2 * std::fabs(delta) + 1) / below;
        double sum = std::fabs(call.out_bias[h]);
        for (std::size_t u = 0; u < call.units; ++u)
          sum += std::fabs(call.out[h * call.units + u]) *
                 (std::fabs(call.in[u] * x) + std::fabs(call.in_bias[u]));
        for (std::size_t c = 0; c < 8; ++c)
          sum += std::fabs(*call.args.scale * call.wide[0][(i * 2 + h) * 8 + c] *
                           call.wide[1][j * 8 + c]);
        a = std::max(a, sum);
      }
      const double bound = 0x1p-22 * (8 + a);
      EXPECT_LE(std::fabs(got.log_sum_exp[row] - want.log_sum_exp[row]), bound) << size;
      for (std::size_t c = 0; c < 8; ++c) {
        const std::size_t at = (i * 2 + h) * 8 + c;
        EXPECT_LE(std::fabs(got.out[at] - want.out[at]), bound * largest_value) << size;
      }
    }
  }
}

// The same of the gradients of the network: 2^-20 (8 + A) of the sum of the magnitudes of its units.
TEST(FastCurveBackward, ErrorsAreWithinTheStatedBound) {
  constexpr std::size_t kQueries = 40, kKeys = 300;
  for (const double size : {0.1, 1.0, 5.0}) {
    CurveCall call(kQueries, kKeys, 11, size);
    call.terms = {call.term};
    call.args.terms = call.terms;
    const CallResult got = gradients_of_fast(call.args), want = of_reference(call.plain());
    const EngineUpstream up(call.args);
    const std::size_t units = call.units;
    std::vector<double> in(units), in_bias(units), out(2 * units), out_bias(2);
    double a = 0;
    for (std::size_t row = 0; row < 2 * kQueries; ++row) {
      const std::size_t h = row / kQueries, i = row % kQueries;
      std::vector<double> x(kKeys), p(kKeys), dp(kKeys);
      double less = std::fabs(up.lse[row]);
      for (std::size_t j = 0; j < kKeys; ++j) {
        const double query = 260 + static_cast<double>(i);
        x[j] = std::log(0.2 * std::fabs(query - static_cast<double>(j)) + 1) /
               (std::log(0.2 * std::max(query, 40.0) + 1) + call.term.epsilon);
        double score = call.out_bias[h], magnitude = std::fabs(score);
        for (std::size_t u = 0; u < units; ++u) {
          const double y = call.in[u] * x[j] + call.in_bias[u], w = call.out[h * units + u];
          score += w * (y < 0 ? 0.1 * y : y);
          magnitude += std::fabs(w) * (std::fabs(call.in[u] * x[j]) + std::fabs(call.in_bias[u]));
        }
        for (std::size_t c = 0; c < 8; ++c) {
          const double q = call.wide[0][(i * 2 + h) * 8 + c], k = call.wide[1][j * 8 + c];
          score += *call.args.scale * q * k, magnitude += std::fabs(*call.args.scale * q * k);
          dp[j] += std::fabs(up.out[(i * 2 + h) * 8 + c] * call.wide[2][j * 8 + c]);
        }
        a = std::max(a, magnitude);
        p[j] = std::exp(score - want.log_sum_exp[row]);
        less += p[j] * dp[j];
      }
      for (std::size_t j = 0; j < kKeys; ++j) {
        const double s = p[j] * (dp[j] + less);
        out_bias[h] += s;
        for (std::size_t u = 0; u < units; ++u) {
          const double w = std::fabs(call.out[h * units + u]);
          out[h * units + u] += s * (std::fabs(call.in[u] * x[j]) + std::fabs(call.in_bias[u]));
          in[u] += s * w * x[j], in_bias[u] += s * w;
        }
      }
    }
    const std::pair<const char*, std::vector<double>*> magnitudes[] = {
        {"in", &in}, {"in_bias", &in_bias}, {"out", &out}, {"out_bias", &out_bias}};
    for (const auto& [name, magnitude] : magnitudes) {
      const auto at = std::find(got.names.begin(), got.names.end(), name) - got.names.begin();
      const auto n = static_cast<std::size_t>(at);
      for (std::size_t k = 0; k < magnitude->size(); ++k)
        EXPECT_LE(std::fabs(got.gradients[n][k] - want.gradients[n][k]),
                  0x1p-20 * (8 + a) * (*magnitude)[k])
            << name << k << " " << size;
    }
  }
}

TEST(FastCurve, NumbersThatAreNotFinite) {
  for (const double bad : {HUGE_VAL, std::nan("")})
    for (const int which : {0, 1, 2}) {
      CurveCall call(60, 90, 3);
      (which == 0 ? call.out[2] : which == 1 ? call.in_bias[1] : call.table[0]) = bad;
      call.terms = {call.term};
      call.args.terms = call.terms;
      AttentionArgs exact = call.args;
      exact.exact = true;
      EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError)
          << bad << which;
    }
}

}  // namespace
}  // namespace posenc
