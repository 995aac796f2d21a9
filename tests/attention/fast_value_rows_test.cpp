// SPDX-License-Identifier: Apache-2.0
// Rows of a table that are added to values, and their gradients, beside the plain reference in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/long_call.h"
#include "attention/random_call.h"
#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

TEST(FastValueRows, LengthsAroundItsBlocks) {
  constexpr Index kLengths[] = {1, 13, 65};
  constexpr Index kKeys[] = {1, 129, 300};
  constexpr Index kDims[] = {1, 8, 20};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kLengths)
      for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each}) {
        ++seed;
        const Index keys = std::max(queries, kKeys[seed % std::size(kKeys)]);
        RowsCall call(seed % 5 == 0 ? 2 : 1, queries, keys, 2, kDims[seed % std::size(kDims)],
                      seed);
        call.add(call.value_rows(kind, seed % 3 == 0 ? call.B : 1, seed % 4 == 0 ? 1 : 2));
        if (seed % 3 == 0) call.add(call.rows(kind, false, 1, 2));
        call.args.mask.causal = seed % 3 == 1;
        if (seed % 6 == 1) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        ASSERT_EQ(call.wrong(), "")
            << isa_name(isa) << " " << queries << " queries, " << keys << " keys, head of "
            << call.D << ", rows " << static_cast<int>(kind);
      }
  }
  reset_isa();
}

// Scores that outgrow the reference of a row after other blocks, and weights that all lie far below it.
TEST(FastValueRows, ReferencesThatMove) {
  for (const double scale : {100.0, -100.0}) {
    RowsCall call(1, 70, 400, 1, 8, 9);
    call.add(call.value_rows(Rows::clipped, 1, 1));
    for (std::size_t j = 0; j < 200; ++j)  // the first keys are nearly equal
      for (std::size_t c = 0; c < 8; ++c) call.narrow[1][j * 8 + c] *= 0.01f;
    call.wide[1].assign(call.narrow[1].begin(), call.narrow[1].end());
    call.args.scale = scale / 4;
    const CallResult got = of_attend(call.args), want = forward_of_reference(call.plain());
    EXPECT_LE(difference(got.out, want.out), 1e-3);  // rounding of scores of 1000
    const std::vector<double> number{-500.0};
    ProductTerm all;
    all.table = tensor(number.data(), {1, 1, 1, 1});
    call.add(all);
    call.args.scale = 0.25;
    EXPECT_EQ(call.wrong(), "");
  }
}

// Long calls of many heads take more rows at once: one block of a head, two of one size.
TEST(FastValueRows, BlocksOfManyRows) {
  for (const auto& [queries, heads] : {std::pair<Index, Index>{1100, 32}, {1160, 16}}) {
    RowsCall call(1, queries, 20, heads, 4, 7);
    call.add(call.value_rows(Rows::clipped, 1, 1));
    call.add(call.rows(Rows::each, false, 1, 1));
    EXPECT_EQ(call.wrong(), "") << queries;
  }
}

// Two terms, several slices of the keys and blocks of rows, tables for all heads and for each.
TEST(FastValueRowsBackward, LengthsAroundItsTiles) {
  constexpr Index kQueries[] = {1, 49, 100}, kKeys[] = {130, 1, 200, 97};
  constexpr Index kDims[] = {1, 8, 20};
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kQueries)
      for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each}) {
        ++seed;
        RowsCall call(seed % 5 == 0 ? 2 : 1, queries, kKeys[seed % std::size(kKeys)], 2,
                      kDims[seed * 5 % std::size(kDims)], seed);
        if (seed % 4 == 1) call.share_keys();
        call.add(call.value_rows(kind, seed % 3 == 0 ? call.B : 1, seed % 4 < 2 ? 1 : 2));
        if (seed % 3 == 0) call.add(call.rows(kind, false, 1, 2));
        if (seed % 6 == 2) call.add(call.value_rows(Rows::clipped, 1, 2));
        call.args.mask.causal = seed % 3 == 1;
        if (seed % 6 == 1) call.args.mask.window_left = 70, call.args.mask.sink_tokens = 3;
        if (seed % 7 == 0) call.args.softcap = 1.5;
        ASSERT_EQ(call.wrong_backward(), "")
            << isa_name(isa) << " " << queries << " queries, " << call.Tk << " keys, head of "
            << call.D << ", rows " << static_cast<int>(kind);
      }
  }
  reset_isa();
}

// One head whose keys are cut into slices, beside a sink; queries in the middle read both ends of the table.
TEST(FastValueRowsBackward, SlicesOfTheKeysAddUp) {
  for (const Rows kind : {Rows::clipped, Rows::each}) {
    RowsCall call(1, 13, 1600, 2, 4, 12);
    call.share_keys();
    call.query_at = arange(800, 13), call.args.query_positions = call.query_at;
    call.add(call.value_rows(kind, 1, 1));
    const std::vector<double> sink = call.random.normals(2);
    call.args.sink = tensor(sink.data(), {2});
    AttentionArgs exact = call.args;
    exact.exact = true;
    EXPECT_EQ(explain_plan(call.args).backward_engine, "fast");
    EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args), gradients_of_fast(exact), DType::f32,
                              gradient_tolerance(DType::f32)),
              "")
        << static_cast<int>(kind);
    expect_same_gradient_bits(call.args);
  }
}

// Sums of value rows allow fewer parts than there are heads, so a part has the lines of several.
TEST(FastValueRowsBackward, LinesBesideRowsThatAllowFewParts) {
  RowsCall call(1, 13, 1300, 64, 64, 12);
  call.add(call.value_rows(Rows::each, 1, 1));
  const std::vector<double> slopes(128, -0.01);
  call.add(LinearTerm{.table = tensor(slopes.data(), {1, 64, 1, 2})});
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_EQ(explain_plan(call.args).backward_engine, "fast");
  EXPECT_EQ(wrong_gradients(gradients_of_fast(call.args), gradients_of_fast(exact), DType::f32,
                            gradient_tolerance(DType::f32)),
            "");
}

TEST(FastValueRows, RowsPickedByPairs) {
  for (int way = 0; way < 5; ++way) {
    PairsCall call(false, way);
    const auto product = std::get<ProductTerm>(call.terms[0]);
    call.terms = {ValueRowsTerm{{product}, 0.7}};
    call.args.terms = call.terms;
    EXPECT_EQ(call.wrong(), "") << way;
    EXPECT_EQ(call.wrong_backward(), "") << way;
  }
}

TEST(FastValueRowsBackward, RandomCallsRunInTheFastEngine) {
  int ran = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const RandomCall call(seed);
    const auto is_value_rows = [](const Term& t) {
      return std::holds_alternative<ValueRowsTerm>(t);
    };
    if (std::none_of(call.args.terms.begin(), call.args.terms.end(), is_value_rows)) continue;
    const PlanExplanation e = explain_plan(call.args);
    EXPECT_TRUE(e.engine != "fast" || e.backward_engine == "fast" ||
                !call.args.block_table.empty() || call.args.terms.size() > 1)
        << seed << e.backward_others.at(0).why_not;
    if (e.backward_engine == "fast") ++ran;
  }
  EXPECT_GT(ran, 100);
}

TEST(FastValueRows, LeavesTablesToTheExactEngine) {
  RowsCall call(1, 100, 200, 2, 8, 3);
  call.add(call.value_rows(Rows::each, 1, 2));
  AttentionArgs exact = call.args;
  exact.exact = true;
  for (const double bad : {std::nan(""), 1e16}) {  // the second is one that float holds elsewhere
    call.tables.back()[(601 + 330) * 8 + 3] = bad;
    EXPECT_LE(difference(of_attend(call.args).out, of_attend(exact).out), kFloatError);
    const PlanExplanation e = explain_plan(call.args);
    EXPECT_EQ(e.engine + ", " + e.backward_engine, "fast, fast");
    const CallResult got = gradients_of_fast(call.args), want = gradients_of_fast(exact);
    for (std::size_t n = 0; n < want.gradients.size(); ++n)
      EXPECT_LE(difference(got.gradients[n], want.gradients[n]), 0) << got.names[n];
  }
}

TEST(FastValueRowsBackward, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Index groups : {1, 4}) {
    RowsCall call(3, 200, 300, 4, 16, 4);
    call.add(call.value_rows(Rows::clipped, 1, groups));
    call.add(call.value_rows(Rows::each, 1, groups));
    expect_same_gradient_bits(call.args);
  }
}

// Beside inputs, outputs, tables and their gradients: 64 MiB for 16,384 tokens, 8 heads of 64.
TEST(FastValueRowsBackward, MemoryGrowsWithTheTokensOnly) {
  constexpr Index D = 64, rows = 129;
  const std::vector<double> table(rows * D);
  std::vector<double> d_table = table;
  std::vector<std::int32_t> line(static_cast<std::size_t>(rows));
  for (std::int32_t n = 0; n < rows; ++n) line[static_cast<std::size_t>(n)] = n;
  ValueRowsTerm shaw;
  shaw.lines[0] = {line.data(), rows, -64};
  shaw.table = tensor(table.data(), {1, 1, rows, D});
  const Term term = shaw;
  TermGradient d_term;
  d_term.table = tensor(d_table.data(), {1, 1, rows, D});
  test::expect_memory_of_tokens_only(term, d_term);
}

}  // namespace
}  // namespace posenc
