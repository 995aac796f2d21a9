// SPDX-License-Identifier: Apache-2.0
// Numbers of the distance that multiply q.k (KERPLE's weight) in the fast engine, forward, backward and for few queries,
// beside the reference in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

struct WeightsCall : RowsCall {
  WeightsCall(Index b, Index queries, Index keys, Index h, Index d, std::uint64_t seed)
      : RowsCall(b, queries, keys, h, d, seed) {
    args.mask.causal = seed % 3 != 0;
    if (seed % 4 == 1) args.mask.window_left = 70, args.mask.sink_tokens = 3;
  }
  ProductTerm weight(Rows kind, Index batch, Index groups) {
    const ProductTerm like = rows(kind, false, batch, groups);
    ProductTerm t;
    t.query = t.key = kContent;
    t.lines = like.lines;
    t.table = table(batch, groups, like.table.shape[2], 1);
    t.scale = 0.4 * *args.scale;
    return t;
  }
  // Beside it a number by distance, as KERPLE has one.
  void add_number(double slope) {
    tables.push_back({slope, -0.02, slope / 2, 0.01});
    add(LinearTerm{.table = tensor(std::as_const(tables.back()).data(), {1, 2, 1, 2})});
  }
};

// fn(call, ...) on every instruction set.
void expect_weighted_right(std::span<const Index> lengths,
                           std::string (FloatCall::*wrong)() const) {
  constexpr Index kDims[] = {2, 3, 8, 20, 33};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : lengths)
      for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each}) {
        ++seed;
        const Index keys = lengths[(seed * 7 + 3) % lengths.size()];
        WeightsCall call(seed % 5 == 0 ? 2 : 1, queries, keys, 2, kDims[seed % 5], seed);
        if (seed % 2 == 0) call.share_keys();
        call.add(call.weight(kind, seed % 3 == 0 ? call.B : 1, seed % 4 == 0 ? 1 : 2));
        if (seed % 3 < 2) call.add_number(seed % 7 == 0 ? -3.0 : -0.05);
        if (seed % 6 == 0) call.add(call.weight(Rows::buckets, 1, 1));
        if (seed % 5 == 1) call.add(call.rows(Rows::buckets, seed % 2 == 0, 1, 2));
        if (seed % 5 == 2) call.add(call.value_rows(Rows::clipped, 1, 2));
        ASSERT_EQ((call.*wrong)(), "")
            << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of "
            << call.D << ", rows " << static_cast<int>(kind) << " seed " << seed;
      }
  }
  reset_isa();
}

TEST(FastWeights, LengthsAroundItsBlocks) {
  constexpr Index kLengths[] = {1, 2, 13, 65, 140};
  expect_weighted_right(kLengths, &FloatCall::wrong);
}
TEST(FastWeights, GradientsAroundItsTiles) {
  constexpr Index kLengths[] = {1, 13, 47, 110};
  expect_weighted_right(kLengths, &FloatCall::wrong_backward);
}

// Pairs that a line leaves out, no table, factors of queries, masks by pair, positions of queries that do not count up.
TEST(FastWeights, OtherCalls) {
  for (const bool one : {false, true}) {
    WeightsCall call(2, 60, 150, 2, 8, 3);
    ProductTerm t = call.weight(Rows::buckets, 1, 2);
    call.lines.back()[60] = call.lines.back()[70] = -1;
    if (one) t.table = {};
    call.add(t);
    EXPECT_EQ(call.wrong_backward(), "") << one;
    std::vector<double> factor;
    for (int n = 0; n < 120; ++n) factor.push_back(0.5 + n % 7 * 0.1);
    call.args.query_factor = tensor(std::as_const(factor).data(), {2, 60});
    std::vector<std::uint8_t> visible(60 * 150, 1);
    for (std::size_t n = 0; n < visible.size(); n += 5) visible[n] = 0;
    call.args.mask.visible = tensor(std::as_const(visible).data(), {60, 150});
    EXPECT_EQ(call.wrong_backward(), "") << one;
    OwnedPositions back = arange(90, 60);
    std::get<0>(back.value)[3] = 50;
    call.args.query_positions = back;
    EXPECT_EQ(call.wrong_backward(), "") << one;
  }
}

// Weights that are 0, negative and large, and scores that move references.
TEST(FastWeights, LargeScoresAndSlices) {
  for (const double scale : {-2.0, 30.0, 300.0}) {
    WeightsCall call(1, 40, 300, 2, 8, 4);
    ProductTerm t = call.weight(Rows::buckets, 1, 2);
    t.scale = scale * *call.args.scale;
    call.add(t);
    const CallResult got = of_attend(call.args);
    EXPECT_LE(difference(got.out, forward_of_reference(call.plain()).out),
              kFloatError * std::max(1.0, std::fabs(scale)));
  }
  WeightsCall few(1, 2, 9000, 2, 8, 3);
  few.add(few.weight(Rows::buckets, 1, 2));
  EXPECT_EQ(few.wrong(), "");
  expect_same_bits(few.args);
  // One head whose keys are cut into slices.
  WeightsCall cut(1, 30, 2500, 1, 4, 3);
  cut.add(cut.weight(Rows::buckets, 1, 1));
  EXPECT_EQ(cut.wrong_backward(), "");
}

// Rows that float does not hold go to the exact engine, and only they.
TEST(FastWeights, NumbersThatAreNotFinite) {
  for (const double bad : {HUGE_VAL, std::nan(""), 1e30})
    for (const Index queries : {2, 60}) {
      WeightsCall call(1, queries, 100, 2, 8, 3);
      call.add(call.weight(Rows::buckets, 1, 2));
      const CallResult clean = of_attend(call.args);
      call.tables.back()[30 + 5] = bad;  // of the second head
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args);
      EXPECT_LE(difference(got.out, of_attend(exact).out), kFloatError) << bad;
      for (std::size_t i = 0; i < static_cast<std::size_t>(queries); ++i)
        for (std::size_t c = 0; c < 8; ++c) ASSERT_EQ(got.out[i * 16 + c], clean.out[i * 16 + c]);
      EXPECT_LE(difference(gradients_of_fast(call.args).gradients[0],
                           gradients_of_fast(exact).gradients[0]),
                kFloatError);
    }
}

// Products beyond what may be multiplied, all of one sign: their rows are those of the exact engine.
TEST(FastWeights, ProductsThatAreTooLarge) {
  for (const Index queries : {2, 30}) {
    WeightsCall call(1, queries, 100, 2, 8, 3);
    call.add(call.weight(Rows::buckets, 1, 2));
    for (double& x : call.tables.back()) x = 1e8 * (1 + std::fabs(x));
    for (float& x : call.narrow[0]) x = 1e16f * (1 + std::fabs(x));
    for (float& x : call.narrow[1]) x = -1e16f * (1 + std::fabs(x));
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError);
  }
}

TEST(FastWeights, HiddenKeysMayHoldAnything) {
  HiddenKeysCall call(192, 128);
  std::vector<double> numbers{0.5, -0.3, 0.2};
  std::vector<std::int32_t> rows;
  for (std::int32_t delta = -300; delta <= 300; ++delta) rows.push_back(std::abs(delta) % 3);
  ProductTerm t;
  t.query = t.key = kContent, t.scale = 0.4;
  t.lines[0] = {rows.data(), 601, -300};
  t.table = tensor(std::as_const(numbers).data(), {1, 1, 3, 1});
  const std::vector<Term> terms{t};
  call.args.terms = terms;
  EXPECT_EQ(call.wrong(), "");
  const CallResult clean = gradients_of_fast(call.args);
  call.fill_hidden_with_nan();
  const CallResult got = gradients_of_fast(call.args);
  EXPECT_EQ(got.out, clean.out);
  for (std::size_t n = 0; n < got.gradients.size(); ++n)
    EXPECT_EQ(got.gradients[n], clean.gradients[n]) << got.names[n];
}

TEST(FastWeights, WhatTheFastEngineLeaves) {
  const auto why = [](const AttentionArgs& a) { return explain_plan(a).others[0].why_not; };
  WeightsCall call(1, 20, 30, 2, 8, 3);
  call.add(call.weight(Rows::buckets, 1, 2));
  const std::vector<double> scale{1, 2};
  AttentionArgs a = call.args;
  a.head_scale = tensor(scale.data(), {1, 2});
  EXPECT_THAT(why(a), testing::HasSubstr("multiplies q.k by a number, and the scale"));
  a = call.args, a.softcap = 3;
  EXPECT_THAT(why(a),
              testing::HasSubstr("multiplies q.k by a number, and the call has a soft cap"));
  a = call.args, a.normalisation = Normalisation::stick_breaking;
  EXPECT_THAT(why(a), testing::HasSubstr("gates or stick-breaking"));
  ProductTerm two = std::get<ProductTerm>(call.terms[0]);
  two.lines[1] = two.lines[0];
  const std::vector<Term> pairs{two};
  a = call.args, a.terms = pairs;
  EXPECT_THAT(why(a), testing::HasSubstr("not one of the distance"));
}

TEST(FastWeights, AnyNumberOfThreadsGivesTheSameBits) {
  WeightsCall call(2, 300, 400, 4, 16, 4);
  call.add(call.weight(Rows::each, 1, 1));
  expect_same_gradient_bits(call.args);
}

}  // namespace
}  // namespace posenc
