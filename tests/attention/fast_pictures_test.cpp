// SPDX-License-Identifier: Apache-2.0
// Terms by several distances, classes or an index, of keys in no order: pictures and tables that are read by index.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/rows_call.h"

namespace posenc {
namespace {

// Boxes on a page, as LayoutLM and UDOP have them: order, x and y, the last two in no order. Rows of keys differ.
struct PageCall : RowsCall {
  PageCall(Index batch, Index queries, Index keys, std::uint64_t seed, bool ordered = true)
      : RowsCall(batch, queries, keys, 4, 8, seed) {
    for (const Index tokens : {queries, keys}) {
      std::vector<std::int64_t>& at =
          tokens == queries && places[0].empty() ? places[0] : places[1];
      for (Index axis = 0; axis < 3; ++axis)
        for (Index b = 0; b < batch; ++b)
          for (Index i = 0; i < tokens; ++i)
            at.push_back(axis == 0 && ordered ? keys - tokens + i : random.integer(0, 90));
    }
    args.query_positions = view_of(places[0], queries);
    args.key_positions = view_of(places[1], keys);
  }
  Positions view_of(const std::vector<std::int64_t>& at, Index tokens) const {
    return {at.data(), DType::i64, 3, tokens, B, 1, tokens, B * tokens};
  }
  ProductTerm by_axis(std::int32_t axis, Index batch = 1, Index groups = 2) {
    ProductTerm t;
    t.lines[0] = line(Rows::buckets, 60), t.lines[0].axis = axis;
    t.table = table(batch, groups, 30, 1);
    t.scale = 0.4;
    return t;
  }
  ConstTensorView classes(Index tokens, Index count, Index rows) {
    numbers.emplace_back();
    for (Index n = 0; n < rows * tokens; ++n)
      numbers.back().push_back(random.integer(0, count - 1));
    return tensor(std::as_const(numbers.back()).data(), {rows, tokens});
  }
  std::string wrong_of_all(bool backward = true) {
    if (const std::string wrong = wrong_backward_of_all_isas(); !wrong.empty() || !backward)
      return wrong;
    expect_same_gradient_bits(args);
    return "";
  }
  std::vector<std::int64_t> places[2];
};

TEST(FastPictures, OneForEachAxis) {
  std::uint64_t seed = 0;
  for (const auto& [queries, keys] :
       {std::pair<Index, Index>{1, 40}, {3, 200}, {70, 64}, {130, 150}})
    for (const bool ordered : {false, true}) {
      ++seed;
      PageCall call(seed % 2 == 0 ? 2 : 1, queries, keys, seed, ordered);
      for (const std::int32_t axis : {0, 1, 2}) call.add(call.by_axis(axis));
      call.add(call.by_axis(1, seed % 2 == 0 ? 2 : 1, 4));
      call.args.mask.causal = seed % 3 == 0;
      if (seed % 4 == 1) call.args.mask.window_left = 30;
      ASSERT_EQ(call.wrong_of_all(), "") << queries << " x " << keys << ' ' << ordered;
    }
}

// A slope by an axis, one number for all pairs, hidden keys, a bias.
TEST(FastPictures, BesideOtherTermsAndMasks) {
  for (const bool biased : {false, true}) {
    PageCall call(2, 60, 90, 9);
    const std::vector<double> slopes{-0.05, -0.02, 0.03, -0.01};
    call.add(call.by_axis(1));
    call.add(LinearTerm{.scale = 0.5, .table = tensor(slopes.data(), {1, 2, 1, 2}), .axis = 2});
    ProductTerm constant;
    constant.table = call.table(1, 4, 1, 1);
    call.add(constant);
    std::vector<std::uint8_t> visible(2 * 90, 1);
    for (std::size_t j = 0; j < visible.size(); j += 7) visible[j] = 0;
    call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 90});
    const std::vector<double> bias = call.random.normals(60 * 90);
    if (biased) call.args.mask.bias = tensor(bias.data(), {60, 90});
    EXPECT_EQ(call.wrong_of_all(), "") << biased;
  }
}

// Tables whose rows are found pair by pair: real distances, two axes of many distances, an index for each pair.
TEST(FastPictures, TablesOfRows) {
  for (const int way : {0, 1, 2}) {
    PageCall call(2, 70, 80, 20 + static_cast<std::uint64_t>(way), false);
    ProductTerm t = call.by_axis(1);
    std::vector<double> real[2];
    const std::vector<double> edges{-40.5, -10, -2.25, -0.5, 0, 0.5, 3, 20.75};
    const std::vector<std::int32_t> rows{4, 0, 1, -1, 2, 3, 5, 6, 1};
    if (way == 0) {
      for (const std::size_t n : {0, 1})
        for (const std::int64_t x : call.places[n])
          real[n].push_back(static_cast<double>(x) + call.random.uniform(0, 1));
      call.args.query_positions = {real[0].data(), DType::f64, 3, 70, 2, 1, 70, 140};
      call.args.key_positions = {real[1].data(), DType::f64, 3, 80, 2, 1, 80, 160};
      t.lines[0] = {rows.data(), 9, 0, edges.data(), 1};
    }
    if (way == 1) {
      for (const std::size_t n : {0, 1})
        for (std::int64_t& x : call.places[n]) x *= 5;
      t.lines[1] = call.line(Rows::buckets, 300), t.lines[1].axis = 2;
      t.table = call.table(1, 2, 60, 1);
    }
    if (way == 2) {
      call.lines.emplace_back();
      for (Index n = 0; n < 70 * 80; ++n)
        call.lines.back().push_back(static_cast<std::int32_t>(n * 31 % 37 - 7));
      call.numbers.emplace_back();
      for (Index n = 0; n < 80; ++n) call.numbers.back().push_back(n);
      const ConstTensorView all = tensor(std::as_const(call.numbers.back()).data(), {1, 80});
      ConstTensorView first = all;
      first.shape[1] = 70;
      t.lines[0] = {}, t.pair = {call.lines.back().data(), 70, 80, first, all};
    }
    call.add(t);
    if (way != 0) call.add(call.by_axis(2, 2));
    ASSERT_EQ(call.wrong_of_all(), "") << way;
  }
}

// Classes that change at every token turn distances off, or move them to other rows (BEiT, CPM-Ant).
TEST(FastPictures, ClassesAtEveryToken) {
  for (const Index rows : {1, 2}) {
    PageCall call(2, 80, 100, 30 + static_cast<std::uint64_t>(rows));
    for (const int n : {0, 1}) {
      ProductTerm t = call.by_axis(0);
      call.lines.push_back(n == 0 ? std::vector<std::int32_t>{0, -1, 30, -1, 0, 0}
                                  : std::vector<std::int32_t>{-1, 0, 0, 30, -1, -1});
      t.pair = {call.lines.back().data(), 2, 3, call.classes(80, 2, rows),
                call.classes(100, 3, rows)};
      t.table = call.table(1, 2, 60, 1);
      call.add(t);
    }
    call.args.mask.window_right = 50;
    ASSERT_EQ(call.wrong_of_all(), "") << rows;
  }
}

// Slopes so large that runs of keys are taken relative to their largest number; keys in no order, pair by pair.
TEST(FastPictures, LargeNumbers) {
  for (const bool runs : {true, false})
    for (const bool masked : {true, false}) {
      FloatCall call(1, 90, 200, 2, 2, 8, 8, 5);
      std::vector<std::int64_t> at;
      for (Index j = 0; j < 200; ++j)
        at.push_back(runs ? (j < 20 ? j : j < 110 ? 300 + j : 100 + j) : j * 37 % 200);
      call.args.key_positions = Positions{at.data(), DType::i64, 1, 200};
      const std::vector<double> slopes{-3, -2, -0.5, 1};
      const Term terms[] = {LinearTerm{.table = tensor(slopes.data(), {1, 2, 1, 2})}};
      call.args.terms = terms;
      if (masked) call.args.mask.window_left = 90, call.args.mask.window_right = 13;
      std::vector<std::uint8_t> visible(200, 1);
      for (std::size_t j = 0; j < 200; j += 9) visible[j] = 0;
      if (masked) call.args.mask.key_visible = tensor(std::as_const(visible).data(), {1, 200});
      EXPECT_EQ(call.wrong_backward_of_all_isas(), "") << runs << masked;
    }
}

}  // namespace
}  // namespace posenc
