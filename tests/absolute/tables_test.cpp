// SPDX-License-Identifier: Apache-2.0
// Learned tables and what is made of them: starts, presets, boxes, hierarchies, offsets by
// distance. Gradients of all schemes stand in the laws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "posenc/absolute/boxes.h"
#include "posenc/absolute/distance_offset.h"
#include "posenc/absolute/hierarchy.h"
#include "posenc/absolute/learned_axes.h"
#include "posenc/absolute/learned_presets.h"
#include "posenc/absolute/paragraph_offset.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;

template <class S>
std::vector<double> rows_of(const S& s, std::vector<std::vector<double>> p, const Positions& at,
                            Index width) {
  std::vector<ConstTensorView> views;
  const std::vector<Parameter> needed = s.parameters();
  for (std::size_t i = 0; i < p.size(); ++i)
    views.push_back(tensor(static_cast<void*>(p[i].data()), DType::f64, needed[i].shape));
  LoweredInput low;
  s.lower(views, low);
  std::vector<double> y(static_cast<std::size_t>(at.batch * at.count * width));
  apply_input({}, at, low, tensor(y.data(), {at.batch, at.count, width}));
  return y;
}

TEST(Learned, StartsAreTheSameEverywhere) {
  Learned s = roberta_positions(4, 6);
  const std::vector<double> v = s.start(Draws(2019));
  ASSERT_EQ(v.size(), 32u);
  for (Index c = 0; c < 4; ++c) EXPECT_EQ(v[static_cast<std::size_t>(4 + c)], 0);  // padding row
  const Draws draws(2019);
  EXPECT_EQ(v[0], 0.02 * draws.normal(0));
  EXPECT_EQ(v[31], 0.02 * draws.normal(31));
  s.initializer = TableInitial::glorot_uniform;
  for (const double x : s.start(draws)) EXPECT_LE(std::fabs(x), std::sqrt(6.0 / 12));
  s.initializer = TableInitial::truncated_normal;
  for (const double x : s.start(draws)) EXPECT_LE(std::fabs(x), 0.04);
  s.initializer = TableInitial::uniform_positive;
  s.init = 0.5;
  double largest = 0;
  for (const double x : s.start(draws)) {
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 0.5);
    largest = std::max(largest, x);
  }
  EXPECT_GT(largest, 0.25);
  s.initializer = TableInitial::zeros;
  for (const double x : s.start(draws)) EXPECT_EQ(x, 0);
}

// Rows of a file and the positions that they serve.
TEST(Learned, PresetsHaveTheRowsOfCheckpoints) {
  EXPECT_EQ(bert_positions(768).rows, 512);
  EXPECT_EQ(roberta_positions(768).rows, 514);
  EXPECT_EQ(opt_positions(768).rows, 2050);
  EXPECT_EQ(bart_positions(1024).rows, 1026);
  EXPECT_EQ(gpt2_positions(768).rows, 1024);
  EXPECT_EQ(openai_gpt2_positions(768).init, 0.01);
  EXPECT_EQ(convs2s_positions(512).init, 0.1);
  EXPECT_EQ(fairseq_positions(16, 100).init, 0.25);
  EXPECT_EQ(fairseq2_positions(16, 100).rows, 101);
  EXPECT_EQ(x_transformers_positions(16, 100).gain, 0.25);
  EXPECT_EQ(marian_positions(16, 100).beyond, Beyond::clamp);
  EXPECT_EQ(tensor2tensor_positions(16, 100).beyond, Beyond::zero);
  EXPECT_EQ(opennmt_tf_positions(16, 100).offset, 1);
  EXPECT_EQ(keras_hub_positions(16, 100).initializer, TableInitial::glorot_uniform);
  EXPECT_EQ(bert4keras_positions(16, 100).beyond, Beyond::extend);
}

TEST(Learned, ExtendReachesTheSquareAndNoFarther) {
  Learned s = bert4keras_positions(1, 3);
  const std::vector<double> table{1, 10, 100};
  const std::vector<double> y = rows_of(s, {table}, arange(0, 9), 1);
  const double b = 0.4 / 0.6;
  for (std::size_t p = 0; p < 9; ++p)
    EXPECT_NEAR(y[p], table[p % 3] + b * (table[p / 3] - table[0]), 1e-13) << p;
  EXPECT_EQ(refusal([&] { rows_of(s, {table}, arange(9, 1), 1); }),
            "[apply_input] position must have a row in the table of 3, got 9");
  EXPECT_EQ(refusal([&] { rows_of(s, {table}, arange(-1, 1), 1); }),
            "[apply_input] position must have a row in the table of 3, got -1");
  s.alpha = 0.5;
  EXPECT_EQ(refusal([&] { s.parameters(); }),
            "[learned] alpha must lie between 0 and 1 and not be 1/2, got 0.5");
  s.alpha = 0.4, s.offset = 2;
  EXPECT_THAT(refusal([&] { s.parameters(); }), testing::HasSubstr("offset must be 0 with"));
}

TEST(Learned, FrozenRowsAreReadAndNotTrained) {
  Learned s = roberta_positions(1, 2);
  std::vector<double> table{5, 6, 7, 8}, d(4), g(4), up{1, 1, 1};
  EXPECT_EQ(rows_of(s, {table}, explicit_positions(std::vector<Index>{1, 2, 1}), 1),
            (std::vector<double>{6, 7, 6}));
  const ConstTensorView p = tensor(table.data(), {4, 1});
  const TensorView dp = tensor(d.data(), {4, 1});
  LoweredInput low;
  s.lower(std::span(&p, 1), low);
  InputGradient gradient;
  gradient.table = tensor(g.data(), {4, 1});
  input_gradient({}, explicit_positions(std::vector<Index>{1, 2, 1}), low,
                 tensor(up.data(), {3, 1}), {}, std::span(&gradient, 1));
  s.pull_back(std::span(&p, 1), std::span(&gradient, 1), std::span(&dp, 1));
  EXPECT_EQ(d, (std::vector<double>{0, 0, 1, 0}));
}

TEST(LearnedAxes, FlatPositionsCountTheGridRowByRow) {
  LearnedAxes s;
  s.width = 2, s.shape = {2, 3}, s.widths = {1, 1}, s.flat = true;
  EXPECT_EQ(rows_of(s, {{10, 20}, {1, 2, 3}}, arange(0, 6), 2),
            (std::vector<double>{10, 1, 10, 2, 10, 3, 20, 1, 20, 2, 20, 3}));
  EXPECT_NE(refusal([&] { rows_of(s, {{10, 20}, {1, 2, 3}}, arange(6, 1), 2); }), "accepted");
  EXPECT_NE(refusal([&] { rows_of(s, {{10, 20}, {1, 2, 3}}, arange(-1, 1), 2); }), "accepted");
  s.order = {1, 0};
  EXPECT_EQ(rows_of(s, {{10, 20}, {1, 2, 3}}, arange(4, 1), 2), (std::vector<double>{2, 20}));
  s.order = {0, 0};
  EXPECT_NE(refusal([&] { s.parameters(); }), "accepted");
  s.order = {}, s.widths = {1, 2};
  EXPECT_NE(refusal([&] { s.parameters(); }), "accepted");
  s.widths = {}, s.compose = Compose::multiply;
  EXPECT_NE(refusal([&] { s.parameters(); }), "accepted");
}

TEST(Boxes, SumAndConcatenationReadTheSameRows) {
  Boxes s;
  s.width = 1, s.rows = 8;
  const std::vector<std::vector<double>> p{{1, 2, 3, 4, 5, 6, 7, 8},
                                           {10, 20, 30, 40, 50, 60, 70, 80},
                                           {100, 200, 300, 400, 500, 600, 700, 800},
                                           {1e3, 2e3, 3e3, 4e3, 5e3, 6e3, 7e3, 8e3}};
  // x0 1, y0 2, x1 4, y1 3: x 2 + 5, y 30 + 40, h 1 -> 200, w 3 -> 4000.
  const OwnedPositions box = explicit_positions(std::vector<Index>{1, 2, 4, 3}, 1, 4);
  EXPECT_EQ(rows_of(s, p, box, 1), std::vector<double>{4277});
  s.width = 6, s.coordinate = s.shape = 1;
  EXPECT_EQ(rows_of(s, p, box, 6), (std::vector<double>{2, 30, 5, 40, 200, 4000}));
  const OwnedPositions odd = explicit_positions(std::vector<Index>{4, 2, 1, 3}, 1, 4);
  EXPECT_NE(refusal([&] { rows_of(s, p, odd, 6); }), "accepted");  // width -3
  s.clip = true;
  EXPECT_EQ(rows_of(s, p, odd, 6)[5], 1000);
}

TEST(Hierarchy, TablesAndSinusoidsByLevel) {
  Hierarchy s;
  s.width = 2, s.rows = {0, 3};
  const OwnedPositions at = explicit_positions(std::vector<Index>{5, 2}, 1, 2);
  const std::vector<double> y = rows_of(s, {{1, 2, 3, 4, 5, 6}}, at, 2);
  EXPECT_NEAR(y[0], std::sin(5.0) + 5, 1e-15);
  EXPECT_NEAR(y[1], std::cos(5.0) + 6, 1e-15);
  s.widths = {2, 1};
  EXPECT_NE(refusal([&] { s.parameters(); }), "accepted");
  s.width = 3;
  EXPECT_EQ(rows_of(s, {{7, 8, 9}}, at, 3)[2], 9);
}

// PE(p + omega s) is the row of the shifted position.
TEST(ParagraphOffset, ShiftMovesThePosition) {
  ParagraphOffset s;
  s.width = 8, s.mode = ParagraphMode::shift, s.omega = 2.5;
  const OwnedPositions at = explicit_positions(std::vector<Index>{7, 3}, 1, 2);
  ParagraphOffset plain = s;
  plain.omega = 0;
  const OwnedPositions moved = explicit_positions(std::vector<double>{14.5, 0}, 1, 2);
  const std::vector<double> y = rows_of(s, {}, at, 8), want = rows_of(plain, {}, moved, 8);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], want[i], 2e-15);
  s.paragraphs = 4;
  EXPECT_NE(refusal([&] { s.parameters(); }), "accepted");
}

// The mean, token by token and key by key.
TEST(DistanceOffset, AgainstTheMeanOverAllKeys) {
  constexpr Index width = 3;
  const std::vector<Index> cu{0, 1, 1, 8, 14};
  for (const bool causal : {false, true})
    for (const Index window : {0, 2, 30}) {
      const DistanceOffset d{.width = width, .window = window, .causal = causal};
      const Draws draws(7);
      std::vector<double> e(static_cast<std::size_t>((2 * window + 1) * width)), x(14 * width),
          y(x.size()), up(x.size()), de(e.size());
      for (std::size_t i = 0; i < e.size(); ++i) e[i] = draws.normal(i);
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = draws.normal(1000 + i), up[i] = draws.normal(2000 + i);
      const TensorView table = tensor(e.data(), {2 * window + 1, width});
      add_distance_offset(d, table, tensor(x.data(), {14, width}), cu,
                          tensor(y.data(), {14, width}));
      double loss = 0, by_gradient = 0;
      for (std::size_t k = 1; k < cu.size(); ++k)
        for (Index i = cu[k - 1]; i < cu[k]; ++i)
          for (Index c = 0; c < width; ++c) {
            double sum = 0, count = 0;
            for (Index j = cu[k - 1]; j < (causal ? i + 1 : cu[k]); ++j, ++count)
              sum += e[static_cast<std::size_t>(
                  (std::clamp<Index>(i - j, -window, window) + window) * width + c)];
            const auto at = static_cast<std::size_t>(i * width + c);
            EXPECT_NEAR(y[at], x[at] + sum / count, 2e-15) << causal << window << " " << i;
            loss += up[at] * (y[at] - x[at]);
          }
      distance_offset_gradient(d, tensor(up.data(), {14, width}), cu,
                               tensor(de.data(), {2 * window + 1, width}));
      // Linear in E: <dE, E> is the loss, for this E and with one row changed.
      for (std::size_t i = 0; i < e.size(); ++i) by_gradient += de[i] * e[i];
      EXPECT_NEAR(by_gradient, loss, 1e-13);
      e[0] += 1;
      std::vector<double> moved(x.size());
      add_distance_offset(d, table, {}, cu, tensor(moved.data(), {14, width}));
      double change = -loss;
      for (std::size_t i = 0; i < moved.size(); ++i) change += up[i] * moved[i];
      EXPECT_NEAR(de[0], change, 1e-13);
    }
  EXPECT_NE(refusal([] { add_distance_offset({.window = -1}, {}, {}, {}, {}); }), "accepted");
}

TEST(DistanceOffset, NamesItsTable) {
  const DistanceOffset d{.width = 3, .window = 2, .causal = true, .init = 0.1};
  const std::vector<Parameter> p = d.parameters();
  ASSERT_EQ(p.size(), 1u);
  EXPECT_EQ(p[0].name, "table");
  EXPECT_EQ(p[0].shape, (std::vector<Index>{5, 3}));
  EXPECT_EQ(p[0].initial.b, 0.1);
  const Encoding e = parse_encoding("distance_offset width=3 window=2 causal=true init=0.1");
  EXPECT_EQ(std::get<DistanceOffset>(e.scheme), d);
  EXPECT_EQ(parse_encoding(to_text(e)), e);
  EXPECT_EQ(refusal([] { (void)DistanceOffset{}.parameters(); }),
            "[distance_offset] width must lie between 1 and 10^6, got 0");
  EXPECT_EQ(refusal([] { (void)DistanceOffset{.width = 2, .init = -1}.parameters(); }),
            "[distance_offset] init must be finite and not negative, got -1");
  // A table of another width than the scheme's.
  std::vector<double> table(20), y(4);
  const Index cu[] = {0, 1};
  EXPECT_EQ(
      refusal([&] {
        add_distance_offset(d, tensor(table.data(), {5, 4}), {}, cu, tensor(y.data(), {1, 4}));
      }),
      "[distance_offset] the table must have channels: 3, got 4");
  EXPECT_EQ(
      refusal([&] {
        distance_offset_gradient(d, tensor(y.data(), {1, 4}), cu, tensor(table.data(), {5, 4}));
      }),
      "[distance_offset] the table's gradient must have channels: 3, got 4");
}

TEST(Positions, StartsCellsAndDistances) {
  const Index starts[] = {0, 2};
  EXPECT_EQ(std::get<0>(from_starts(starts, 4).value),
            (std::vector<Index>{0, 1, 2, 3, 0, 0, 0, 1}));
  const std::vector<Index> column{0, 0, 1, 1, 0, 1, 1}, row{0, 0, 1, 1, 0, 2, 1};
  EXPECT_EQ(
      std::get<0>(cell_positions(tensor(column.data(), {7}), tensor(row.data(), {7}), 3).value),
      (std::vector<Index>{0, 1, 0, 1, 3, 0, 3}));
  EXPECT_EQ(
      std::get<0>(
          distance_to_largest(explicit_positions(std::vector<Index>{3, 9, 4, 1, 1, 0}, 2)).value),
      (std::vector<Index>{6, 0, 5, 0, 0, 1}));
}

}  // namespace
}  // namespace posenc
