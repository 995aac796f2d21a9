// SPDX-License-Identifier: Apache-2.0
// Numbers by the classes of query and key (segments, modalities, paragraphs), which the fast engine writes once for the
// queries of a class.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

enum class Pattern : std::uint8_t { runs, shuffled };

struct ClassCall : RowsCall {
  using RowsCall::RowsCall;

  // Classes of the tokens of `rows` rows.
  ConstTensorView classes_of(Index tokens, Index count, Pattern pattern, Index rows = 1) {
    numbers.emplace_back();
    for (Index n = 0; n < rows * tokens; ++n)
      numbers.back().push_back(pattern == Pattern::runs
                                   ? (n / tokens + n % tokens * count / tokens) % count
                                   : random.integer(0, count - 1));
    return tensor(std::as_const(numbers.back()).data(), {rows, tokens});
  }
  // A number for each pair of classes; one pair of eight has none.
  ProductTerm by_classes(Index queries, Index keys, Pattern pattern, Index rows = 1,
                         Index batch = 1, Index groups = 1) {
    lines.emplace_back();
    for (Index n = 0; n < queries * keys; ++n)
      lines.back().push_back(static_cast<std::int32_t>(n % 8 == 5 ? -1 : n));
    ProductTerm t;
    t.scale = 0.7;
    t.pair = {lines.back().data(), queries, keys, classes_of(Tq, queries, pattern, rows),
              classes_of(Tk, keys, pattern, rows)};
    t.table = table(batch, groups, queries * keys, 1);
    return t;
  }
  ProductTerm by_distance(Rows kind) {
    ProductTerm t = rows(kind, false, 1, 1);
    t.query = {}, t.table = table(1, H, kind == Rows::buckets ? 30 : 2 * (Tq + Tk) + 1, 1);
    return t;
  }
};

TEST(FastClassNumbers, RunsAndShuffledClasses) {
  std::uint64_t seed = 0;
  for (const Pattern pattern : {Pattern::runs, Pattern::shuffled})
    for (const auto& [queries, keys] :
         {std::pair<Index, Index>{1, 1}, {1, 3}, {2, 2}, {4, 7}, {40, 5}, {128, 128}, {3, 129}}) {
      ++seed;
      ClassCall call(seed % 3 == 0 ? 2 : 1, 150, 170, 4, 8, seed);
      const Index batch = seed % 4 == 0 ? call.B : 1;
      call.add(call.by_classes(queries, keys, pattern, seed % 2 == 0 ? call.B : 1, batch,
                               seed % 3 == 1 ? 4 : 2));
      if (seed % 5 == 0) call.args.mask.causal = true;
      if (seed % 5 == 1) call.args.mask.window_left = 40;
      ASSERT_EQ(call.wrong_backward_of_all_isas(), "") << queries << " x " << keys << ' ' << seed;
      expect_same_gradient_bits(call.args);
    }
}

// Beside a line of distances, another term by classes, a bias and hidden keys.
TEST(FastClassNumbers, BesideOtherTerms) {
  for (const Rows kind : {Rows::buckets, Rows::each})
    for (const bool masked : {false, true}) {
      ClassCall call(2, 90, 130, 2, 8, 3);
      call.add(call.by_classes(3, 4, Pattern::shuffled, 2));
      call.add(call.by_distance(kind));
      call.add(call.by_classes(5, 2, Pattern::runs));
      call.args.mask.causal = masked;
      std::vector<std::uint8_t> visible(2 * 130, 1);
      for (std::size_t j = 0; j < visible.size(); j += 7) visible[j] = 0;
      if (masked) call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 130});
      EXPECT_EQ(call.wrong_backward_of_all_isas(), "") << masked;
      const std::vector<double> bias = call.random.normals(90 * 130);
      call.args.mask.bias = tensor(bias.data(), {90, 130});
      EXPECT_EQ(call.wrong_backward(), "") << masked;
      expect_same_gradient_bits(call.args);
    }
}

// Rows of a table that meet the query, with numbers in their products or beside them.
TEST(FastClassNumbers, BesideRowsAndProducts) {
  for (const Rows kind : {Rows::clipped, Rows::each}) {
    ClassCall call(1, 70, 100, 2, 8, 4);
    call.add(call.rows(kind, false, 1, 2));
    if (kind == Rows::each) call.add(call.by_distance(kind));
    call.add(call.by_classes(3, 4, Pattern::shuffled));
    EXPECT_EQ(call.wrong_backward_of_all_isas(), "");
  }
}

// Positions on three axes, of which two have few values (Segatron-XL), or all have too many.
TEST(FastClassNumbers, AxesWithFewPositions) {
  for (const Index paragraph : {Index{40}, Index{1}}) {
    ClassCall call(1, 150, 150, 2, 8, 5);
    std::vector<Index> at;
    for (const Index each : {paragraph, Index{3}, Index{1}})
      for (Index j = 0; j < 150; ++j) at.push_back(each == 1 ? j * 7 % 150 : j / each);
    if (paragraph > 1)
      for (Index j = 0; j < 150; ++j) at[static_cast<std::size_t>(300 + j)] = j;
    Positions p{at.data(), DType::i64, 3, 150};
    p.axis_stride = 150;
    call.args.query_positions = call.args.key_positions = p;
    for (const std::int32_t axis : {0, 1, 2}) {
      ProductTerm t = call.by_distance(Rows::buckets);
      t.lines[0].axis = axis;
      call.add(t);
    }
    EXPECT_EQ(call.wrong_backward(), "") << paragraph;
    expect_same_gradient_bits(call.args);
  }
}

// Numbers far from 0, or not finite, are read pair by pair.
TEST(FastClassNumbers, NumbersThatAreFarOrNotFinite) {
  for (const double bad : {-1e4, -1e9, 500.0, -HUGE_VAL, HUGE_VAL, std::nan("")})
    for (const bool line : {false, true}) {
      ClassCall call(1, 80, 90, 2, 8, 6);
      call.add(call.by_classes(3, 3, Pattern::runs));
      if (line) call.add(call.by_distance(Rows::each));
      call.tables.front()[1] = bad;
      call.args.mask.causal = true;
      AttentionArgs exact = call.args;
      exact.exact = true;
      const CallResult got = of_attend(call.args), want = of_attend(exact);
      EXPECT_LE(difference(got.out, want.out), kFloatError) << bad;
      EXPECT_LE(difference(got.log_sum_exp, want.log_sum_exp), kFloatError) << bad;
      if (std::isfinite(bad)) {
        EXPECT_EQ(call.wrong_backward(), "") << bad;
      }
      std::vector<std::byte> memory(workspace_bytes(call.args));
      ResultArrays to(call.args, DType::f32);
      attend(call.args, to.r, default_executor(), memory);
    }
}

// Steep lines leave out keys that weigh nothing: not those that a class makes heavy.
TEST(FastClassNumbers, FarKeysOfAHeavyClass) {
  ClassCall call(1, 300, 700, 1, 8, 7);
  const std::vector<double> slopes{-0.2, -0.2};
  call.add(LinearTerm{.table = tensor(slopes.data(), {1, 1, 1, 2})});
  ProductTerm t = call.by_classes(1, 2, Pattern::runs);
  call.tables.back() = {-30, 30};  // of the first keys, and of the nearer ones
  std::swap(call.tables.back()[0], call.tables.back()[1]);
  call.add(t);
  EXPECT_EQ(call.wrong_backward(), "");
}

TEST(FastClassNumbers, FewQueries) {
  for (const Index queries : {1, 3})
    for (const Pattern pattern : {Pattern::runs, Pattern::shuffled}) {
      ClassCall call(2, queries, 300, 4, 16, 8);
      call.add(call.by_classes(3, 9, pattern, 2, 1, 4));
      EXPECT_EQ(call.wrong_backward_of_all_isas(), "") << queries;
      call.add(call.by_distance(Rows::buckets));
      call.args.mask.causal = true;
      EXPECT_EQ(call.wrong_backward(), "") << queries;
      call.share_keys();
      std::vector<std::uint8_t> visible(2 * 300, 1);
      for (std::size_t j = 0; j < visible.size(); j += 3) visible[j] = 0;
      call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 300});
      EXPECT_EQ(call.wrong(), "") << queries;
    }
}

// Their numbers are written before those of one row are read.
TEST(FastClassNumbers, FewQueriesOfHeadsThatShareKeys) {
  for (const Index queries : {1, 2, 4})
    for (const Pattern pattern : {Pattern::runs, Pattern::shuffled}) {
      ClassCall call(2, queries, 300, 4, 16, 12);
      call.share_keys();
      call.add(call.by_classes(3, 9, pattern, 2, 1, 4));
      EXPECT_EQ(call.wrong_backward_of_all_isas(), "") << queries;
    }
}

// Terms by distance that classes turn off or move to other rows, beside terms by classes alone (TUPE, CPM-Ant, LongT5).
void add_mixed(ClassCall& call, const std::vector<std::int32_t>& rows, Index classes,
               Pattern pattern, std::int32_t axis = 0) {
  ProductTerm t = call.by_distance(Rows::buckets);
  call.lines.push_back(rows);
  t.lines[0].axis = axis;
  t.pair = {call.lines.back().data(), classes, classes,
            call.classes_of(call.Tq, classes, pattern, call.B),
            call.classes_of(call.Tk, classes, pattern)};
  t.table = call.table(1, call.H, 40, 1);
  call.add(t);
}

TEST(FastClassNumbers, TermsByDistanceThatClassesTurnOff) {
  std::uint64_t seed = 20;
  for (const Index queries : {1, 3, 90})
    for (const Pattern pattern : {Pattern::runs, Pattern::shuffled})
      for (const bool others : {false, true}) {
        ClassCall call(2, queries, 130, 2, 8, ++seed);
        add_mixed(call, {0, -1, 5, -1}, 2, pattern);
        if (others) {
          call.add(call.by_classes(2, 3, pattern, 2));
          const std::vector<double> slopes{-0.02, -0.05};
          call.tables.push_back(slopes);
          call.add(LinearTerm{.table = tensor(call.tables.back().data(), {1, 1, 1, 2})});
          call.args.mask.causal = true;
        }
        ASSERT_EQ(call.wrong_backward_of_all_isas(), "") << queries << others;
        if (!others) continue;
        expect_same_gradient_bits(call.args);
        const std::vector<double> bias =
            call.random.normals(static_cast<std::size_t>(queries * 130));
        call.args.mask.bias = tensor(bias.data(), {queries, 130});
        ASSERT_EQ(call.wrong_backward(), "") << queries;
      }
}

// More variants than are kept, and numbers far from 0.
TEST(FastClassNumbers, ManyVariantsAndFarNumbers) {
  std::vector<std::int32_t> rows;
  for (std::int32_t n = 0; n < 25; ++n) rows.push_back(n % 11 == 3 ? -1 : n % 10);
  ClassCall many(1, 80, 100, 2, 8, 30);
  add_mixed(many, rows, 5, Pattern::runs);
  add_mixed(many, rows, 5, Pattern::shuffled);
  EXPECT_EQ(many.wrong_backward(), "");
  ClassCall far(1, 80, 100, 2, 8, 31);
  add_mixed(far, {0, -1, 5, -1}, 2, Pattern::runs);
  far.tables.back()[4] = 700;
  EXPECT_EQ(far.wrong_backward(), "");
  std::vector<std::byte> memory(workspace_bytes(far.args));
  ResultArrays to(far.args, DType::f32);
  attend(far.args, to.r, default_executor(), memory);
}

// A picture behind a class token, whose place is far away (BEiT); padding, and classes of each entry of the batch.
TEST(FastClassNumbers, PictureWithAClassToken) {
  for (const Index queries : {2, 64}) {
    ClassCall call(2, queries, 64, 2, 8, 32);
    std::vector<Index> at{5}, columns{-3};
    for (Index j = 0; j < 63; ++j) at.push_back(j / 9), columns.push_back(j % 9);
    at.insert(at.end(), columns.begin(), columns.end());
    Positions p{at.data(), DType::i64, 2, 64};
    p.axis_stride = 64;
    call.args.key_positions = p;
    p.count = queries;
    call.args.query_positions = p;
    call.args.mask.query_offset = 0;
    add_mixed(call, {0, -1, -1, -1}, 2, Pattern::runs);
    ProductTerm& t = std::get<ProductTerm>(call.terms.back());
    t.lines[1] = call.line(Rows::clipped, 3), t.lines[1].axis = 1;
    t.table = call.table(1, 2, 47, 1);
    std::vector<std::int64_t> marks(128, 0);
    marks[0] = marks[64] = marks[70] = 1;
    t.pair.key_class = tensor(std::as_const(marks).data(), {2, 64});
    t.pair.query_class = tensor(std::as_const(marks).data(), {1, queries});
    ProductTerm others = t;
    const std::vector<std::int32_t> rows{-1, 3, 4, 5};
    others.lines = {}, others.pair.row = rows.data();
    call.add(others);
    EXPECT_EQ(call.wrong_backward_of_all_isas(), "") << queries;
    const std::vector<std::int64_t> lengths{64, 40};
    call.args.mask.key_length = tensor(lengths.data(), {2});
    EXPECT_EQ(call.wrong_backward(), "") << queries;
  }
}

// Two axes of many positions in no order (boxes), pair by pair: by distances, by an index for each pair, by positions that are
// no integers, and with more distances than are kept.
TEST(FastClassNumbers, PairByPair) {
  for (const int kind : {0, 1, 2, 3})
    for (const Index queries : {1, 150}) {
      ClassCall call(1, queries, 150, 2, 8, 40);
      std::vector<Index> at;
      for (Index j = 0; j < 300; ++j)
        at.push_back(call.random.integer(0, 900) * (kind == 3 ? 1000 : 1));
      std::vector<double> real(at.begin(), at.end());
      for (double& x : real) x += 0.25 * static_cast<double>(call.random.integer(0, 3));
      Positions p{at.data(), DType::i64, 2, 150};
      if (kind == 2) p.data = real.data(), p.type = DType::f64;
      p.axis_stride = 150;
      call.args.key_positions = p;
      p.count = queries;
      call.args.query_positions = p;
      call.args.mask.query_offset = 0;
      for (const std::int32_t axis : {0, 1}) {
        ProductTerm t = call.by_distance(Rows::buckets);
        t.lines[0].axis = axis;
        if (kind == 1) t = call.by_classes(150, 150, Pattern::shuffled);
        call.add(t);
      }
      EXPECT_EQ(call.wrong_backward(), "") << kind << ' ' << queries;
    }
}

// Heads that share keys, a soft cap after the terms, sticks.
TEST(FastClassNumbers, OtherKindsOfCalls) {
  ClassCall shared(1, 70, 100, 8, 8, 9);
  shared.share_keys();
  shared.add(shared.by_classes(3, 4, Pattern::shuffled, 1, 1, 8));
  EXPECT_EQ(shared.wrong_backward(), "");
  expect_same_gradient_bits(shared.args);
  ClassCall capped(1, 70, 100, 2, 8, 10);
  capped.add(capped.by_classes(3, 4, Pattern::shuffled));
  capped.args.softcap = 2;
  for (const bool after : {false, true}) {
    capped.args.softcap_after_terms = after;
    EXPECT_EQ(capped.wrong_backward(), "") << after;
  }
  ClassCall sticks(1, 100, 100, 2, 8, 11);
  sticks.add(sticks.by_classes(3, 4, Pattern::shuffled));
  sticks.args.normalisation = Normalisation::stick_breaking;
  sticks.args.mask.causal = true;
  EXPECT_EQ(sticks.wrong_backward(), "");
}

}  // namespace
}  // namespace posenc
