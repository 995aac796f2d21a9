// SPDX-License-Identifier: Apache-2.0
// Outputs that lie over what a call still has to read, or over themselves: refused with nothing
// written. In place stays allowed where every element is read before it is written.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/absolute/aligned_rows.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/convolutional.h"
#include "posenc/absolute/distance_offset.h"
#include "posenc/absolute/embed.h"
#include "posenc/absolute/extend.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

// A tensor [tokens, 2] somewhere in one piece of memory.
struct Memory {
  std::vector<double> value = std::vector<double>(64, 1.0);
  TensorView at(Index first, Index tokens = 3, Index stride = 2) {
    TensorView v = tensor(value.data() + first, {tokens, 2});
    v.stride[0] = stride;
    return v;
  }
  // Refused as `says`, and nothing was written.
  template <class F>
  void refuses(const std::string& says, F&& call) {
    const std::vector<double> before = value;
    EXPECT_THAT(refusal(call), HasSubstr(says));
    EXPECT_EQ(value, before) << says;
  }
};

TEST(Overlap, ComplexMapsReadAllChannels) {
  Memory m;
  ComplexMap map;
  ComplexMapGradient d_map;
  std::vector<double> a{1, 2, 3, 4};
  map.weight.re = tensor(a.data(), {2, 2});
  const ComplexParts x{m.at(0), m.at(6)}, apart{m.at(16), m.at(22)};
  m.refuses("[complex_linear] y re must not overlap x re", [&] { complex_linear(map, x, x); });
  m.refuses("y im must not overlap x re", [&] { complex_linear(map, x, {m.at(16), m.at(5)}); });
  m.refuses("y im must not overlap y re", [&] { complex_linear(map, x, {m.at(16), m.at(18)}); });
  m.refuses("elements of y re must not share memory: strides are 0 and 1", [&] {
    complex_linear(map, x, {m.at(16, 3, 0), m.at(22)});
  });
  complex_linear(map, x, apart);
  EXPECT_EQ(m.value[17], 7);
  m.refuses("d_x re must not overlap d_y re",
            [&] { complex_linear_gradient(map, apart, x, x, {}); });
  m.refuses("x re and d_x re must be the same view", [&] {
    complex_linear_gradient(map, apart, x, {m.at(17), m.at(30)}, {});
  });
  d_map.weight.re = m.at(17, 2);
  m.refuses("a gradient of the map must not overlap x re",
            [&] { complex_linear_gradient(map, apart, x, {}, d_map); });
  // A token of x is read before its gradient is written.
  d_map.weight.re = m.at(40, 2);
  const std::vector<double> kept = m.value;
  complex_linear_gradient(map, apart, x, {m.at(48), m.at(54)}, d_map);
  const std::vector<double> want(m.value.begin() + 48, m.value.begin() + 60),
      d_weight(m.value.begin() + 40, m.value.begin() + 44);
  m.value = kept;
  complex_linear_gradient(map, apart, x, apart, d_map);
  EXPECT_EQ(want, std::vector<double>(m.value.begin() + 16, m.value.begin() + 28));
  EXPECT_EQ(d_weight, std::vector<double>(m.value.begin() + 40, m.value.begin() + 44));
}

TEST(Overlap, ComplexAttentionReadsAllValues) {
  std::vector<double> value(80);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = 0.01 * static_cast<double>(i % 7);
  const auto at = [&](Index first) {
    return ComplexHeads{heads(value.data() + first, 2, 1, 2),
                        heads(value.data() + first + 4, 2, 1, 2)};
  };
  const std::vector<double> before = value;
  const ComplexHeads q = at(0), k = at(8), v = at(16), up = at(24), d_q = at(32), d_k = at(40),
                     d_v = at(48);
  const auto call = [&](const ComplexHeads& out, const TensorView& p = {}) {
    value = before;
    const std::string says = refusal([&] { complex_attention({}, q, k, v, out, p); });
    if (says != "accepted") {
      EXPECT_EQ(value, before);
    }
    return says;
  };
  EXPECT_EQ(call(v), "[complex_attention] out re must not overlap v re");
  EXPECT_THAT(call(k), HasSubstr("must not overlap k re"));
  EXPECT_THAT(call(at(1)), HasSubstr("q re and out re must be the same view"));
  EXPECT_THAT(call({d_q.re, d_q.re}), HasSubstr("out im must not overlap out re"));
  EXPECT_THAT(call(d_q, tensor(value.data() + 16, {1, 1, 2, 2})),
              HasSubstr("probabilities must not overlap v re"));
  EXPECT_EQ(call(d_q), "accepted");
  const std::vector<double> want(value.begin() + 32, value.begin() + 40);
  EXPECT_EQ(call(q), "accepted") << "a row of q is read before its output is written";
  EXPECT_EQ(want, std::vector<double>(value.begin(), value.begin() + 8));
  const auto gradient = [&](const ComplexHeads& to_q, const ComplexHeads& to_k,
                            const ComplexHeads& to_v) {
    value = before;
    return refusal([&] { complex_attention_gradient({}, q, k, v, up, to_q, to_k, to_v); });
  };
  EXPECT_EQ(gradient(d_q, d_k, d_v), "accepted");
  const std::vector<double> all(value.begin() + 32, value.begin() + 56);
  EXPECT_EQ(gradient(q, k, v), "accepted");
  EXPECT_EQ(all, std::vector<double>(value.begin(), value.begin() + 24));
  EXPECT_THAT(gradient(k, d_k, d_v), HasSubstr("d_q re must not overlap k re"));
  EXPECT_THAT(gradient(d_q, d_q, d_v), HasSubstr("d_k re must not overlap d_q re"));
  EXPECT_THAT(gradient(d_q, d_k, d_k), HasSubstr("d_v re must not overlap d_k re"));
}

TEST(Overlap, ConvolutionsAndOffsets) {
  Memory m;
  const Convolutional s{.width = 2, .kernel = 3, .groups = 1, .weight_norm = false};
  std::vector<double> weight(12, 0.5), bias(2, 0.1);
  const ConstTensorView p[] = {tensor(weight.data(), {2, 2, 3}), tensor(bias.data(), {2})};
  for (const Index first : {0, 1, 2, 4})
    m.refuses("[convolutional] y must not overlap x",
              [&] { convolutional_positions(s, p, m.at(0), m.at(first)); });
  m.refuses("elements of y must not share memory",
            [&] { convolutional_positions(s, p, m.at(0), m.at(10, 3, 1)); });
  convolutional_positions(s, p, m.at(0, 3, 4), m.at(2, 3, 4));

  const DistanceOffset d{.window = 1};
  const Index cu[] = {0, 3};
  std::vector<double> table{1, 2, 3, 4, 5, 6};
  const TensorView e = tensor(table.data(), {3, 2});
  m.refuses("[distance_offset] x and y must be the same view or not overlap at all",
            [&] { add_distance_offset(d, e, m.at(0), cu, m.at(2)); });
  m.refuses("y must not overlap the table",
            [&] { add_distance_offset(d, m.at(0), {}, cu, m.at(2)); });
  m.refuses("the table's gradient must not overlap d_y",
            [&] { distance_offset_gradient(d, m.at(0), cu, m.at(0)); });
  Memory other;
  other.value = m.value;
  add_distance_offset(d, e, m.at(0), cu, m.at(0));
  add_distance_offset(d, e, other.at(0), cu, other.at(10));
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(m.value[i], other.value[10 + i]);
}

TEST(Overlap, InputsAndTheirGradients) {
  Memory m;
  LoweredInput low, wider;
  Sinusoidal{.width = 2}.lower({}, low);
  Sinusoidal{.width = 2, .compose = Compose::concat}.lower({}, wider);
  m.refuses("[apply_input] x and y must be the same view or not overlap at all",
            [&] { apply_input(m.at(0), arange(0, 3), low, m.at(2)); });
  m.refuses("y must not be x where channels are appended", [&] {
    apply_input(m.at(0, 3, 4), arange(0, 3), wider, tensor(m.value.data(), {3, 4}));
  });
  m.refuses("d_y and d_x must be the same view",
            [&] { input_gradient({}, arange(0, 3), low, m.at(0), m.at(2), {}); });
  m.refuses("x and d_x must be the same view",
            [&] { input_gradient(m.at(20), arange(0, 3), low, m.at(0), m.at(22), {}); });
  EXPECT_EQ(refusal([&] { apply_input(m.at(0), arange(0, 3), low, m.at(0)); }), "accepted");
  EXPECT_EQ(refusal([&] { input_gradient(m.at(20), arange(0, 3), low, m.at(0), m.at(0), {}); }),
            "accepted");
}

TEST(Overlap, RowsOfTheCallersOwn) {
  Memory m;
  const auto lowered = [](const TensorView& rows, Index first, Compose compose) {
    LoweredInput low;
    InputTerm t;
    t.rows = rows, t.width = 2, t.first = first, t.compose = compose;
    low.terms.push_back(t);
    return low;
  };
  const auto both = [&](const LoweredInput& low, const TensorView& x, const TensorView& y) {
    for (const std::string who : {"[apply_input]", "[input_plan]"})
      m.refuses(who + " y must not overlap the caller's rows but channel by channel", [&] {
        if (who == "[apply_input]") return apply_input(x, {}, low, y);
        InputPlan(low, DType::f64).apply(x, {}, y);
      });
  };
  both(lowered(m.at(2), 0, Compose::add), m.at(20), m.at(0));
  both(lowered(m.at(0), 0, Compose::multiply), {}, tensor(m.value.data(), {2, 3, 2}));
  both(lowered(m.at(1, 3, 4), 0, Compose::add), tensor(m.value.data() + 20, {3, 4}),
       tensor(m.value.data(), {3, 4}));
  m.refuses("d_x must not overlap the caller's rows", [&] {
    const LoweredInput low = lowered(m.at(2), 0, Compose::multiply);
    input_gradient(m.at(20), {}, low, m.at(30), m.at(0), {});
  });
  // Each row over the channels that it is added to.
  for (const bool planned : {false, true}) {
    Memory one;
    const LoweredInput low = lowered(one.at(2, 3, 4), 2, Compose::add);
    const TensorView x = tensor(one.value.data() + 20, {3, 4}),
                     y = tensor(one.value.data(), {3, 4});
    if (planned)
      InputPlan(low, DType::f64).apply(x, {}, y);
    else
      apply_input(x, {}, low, y);
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(one.value[i], i % 4 < 2 ? 1 : 2) << i;
  }
}

// Added to while tokens are still read: wrong numbers, and with the workspace a crash.
TEST(Overlap, GradientsOfTerms) {
  Memory m;
  const std::vector<double> table(6, 0.5);
  LoweredInput low;
  const ConstTensorView values = tensor(table.data(), {3, 2});
  Learned{.width = 2, .rows = 3}.lower({&values, 1}, low);
  const InputPlan plan(low, DType::f64);
  const OwnedPositions p = arange(0, 3);
  std::vector<std::byte> workspace(plan.gradient_workspace(1, 3));
  const auto call = [&](bool planned, const TensorView& g, const TensorView& d_x,
                        const Positions& at) {
    InputGradient of;
    of.table = g;
    if (!planned) return input_gradient(m.at(40), at, low, m.at(20), d_x, {&of, 1});
    plan.gradient(m.at(40), at, m.at(20), d_x, {&of, 1}, workspace);
  };
  Positions in_memory = p;
  in_memory.data = m.value.data() + 50;
  for (const bool planned : {false, true}) {
    const std::string who = planned ? "[input_plan] " : "[apply_input] ";
    m.refuses(who + "a gradient must not overlap x", [&] { call(planned, m.at(41), {}, p); });
    m.refuses(who + "a gradient must not overlap d_y", [&] { call(planned, m.at(24), {}, p); });
    m.refuses(who + "a gradient must not overlap d_x", [&] { call(planned, m.at(0), m.at(2), p); });
    m.refuses(who + "elements of a gradient must not share memory",
              [&] { call(planned, m.at(0, 3, 0), {}, p); });
    std::fill_n(m.value.begin() + 50, 3, 0.0);  // three positions of 0
    m.refuses(who + "a gradient must not overlap positions",
              [&] { call(planned, m.at(52), {}, in_memory); });
    EXPECT_EQ(refusal([&] { call(planned, m.at(0), m.at(20), p); }), "accepted");
  }
  InputGradient of;
  const Workspace used(reinterpret_cast<std::byte*>(m.value.data()), workspace.size());
  of.table = m.at(2);
  m.refuses("a gradient must not overlap the workspace", [&] {
    plan.gradient({}, p, m.at(20), {}, {&of, 1}, used);
  });
  of.table = m.at(30);
  m.refuses("the workspace must not overlap d_x", [&] {
    plan.gradient({}, p, m.at(20), m.at(0), {&of, 1}, used);
  });
  m.refuses("the workspace must not overlap d_y", [&] {
    plan.gradient({}, p, m.at(0), {}, {&of, 1}, used);
  });
}

// Without x a product's rows have the gradient of no call: zeros were added.
TEST(Plan, GradientsOfAProductNeedItsX) {
  const std::vector<double> table(6, 0.5), d_y(6, 1.0);
  std::vector<double> d_table(6), d_x(6);
  const ConstTensorView values = tensor(table.data(), {3, 2}), up = tensor(d_y.data(), {3, 2});
  for (const Compose compose : {Compose::multiply, Compose::one_plus}) {
    LoweredInput low;
    Learned{.width = 2, .rows = 3, .compose = compose}.lower({&values, 1}, low);
    const InputPlan plan(low, DType::f64);
    std::vector<std::byte> workspace(plan.gradient_workspace(1, 3));
    InputGradient of;
    const auto call = [&] {
      plan.gradient({}, arange(0, 3), up, tensor(d_x.data(), {3, 2}), {&of, 1}, workspace);
    };
    EXPECT_EQ(refusal(call), "accepted");  // d_x needs the rows alone
    EXPECT_EQ(d_x[5], compose == Compose::multiply ? 0.5 : 1.5);
    of.table = tensor(d_table.data(), {3, 2});
    EXPECT_THAT(refusal(call), HasSubstr("x must be given: gradients of a product need it"));
  }
}

TEST(Overlap, RowsOfTables) {
  Memory m;
  const std::int64_t ids[] = {2, 1, 0};
  const ConstTensorView at = tensor(ids, {3});
  EmbedPart looked, given;
  looked.table = m.at(0), looked.ids = at, given.rows = m.at(0);
  const auto one = [&](const EmbedPart& p, const TensorView& y) {
    embed(std::span(&p, 1), std::nullopt, y);
  };
  m.refuses("[embed] y must not overlap a table", [&] { one(looked, m.at(0)); });
  m.refuses("rows and y must be the same view", [&] { one(given, m.at(2)); });
  m.refuses("elements of y must not share memory", [&] { one(looked, m.at(20, 3, 0)); });
  EXPECT_EQ(refusal([&] { one(given, m.at(0)); }), "accepted");
  const TensorView gradients[] = {m.at(32)};
  m.refuses("a gradient must not overlap d_y", [&] {
    embed_gradient(std::span(&looked, 1), std::nullopt, m.at(30), {gradients, {}, {}});
  });
  m.refuses("[aligned_rows] y must not overlap the table", [&] {
    const std::int64_t alignment[] = {0, 1, 2};
    aligned_rows(m.at(0), tensor(alignment, {3, 1}), m.at(4));
  });
  m.refuses("d_table must not overlap d_y", [&] {
    const std::int64_t alignment[] = {0, 1, 2};
    aligned_rows_gradient(m.at(0), tensor(alignment, {3, 1}), m.at(4));
  });
  m.refuses("[extend] the result must not overlap the table",
            [&] { extend_table(m.at(0), {3}, m.at(4, 5), {5}, {}); });
  m.refuses("elements of the result must not share memory",
            [&] { extend_table(m.at(0), {3}, m.at(10, 5, 0), {5}, {}); });
  m.refuses("the result must not overlap the gradient that comes in",
            [&] { extend_gradient(m.at(4, 5), {5}, m.at(0), {3}, {}); });
  const VisionGrid images[] = {{1, 2, 2}};
  const Extension grid{.how = ExtendHow::bilinear};
  m.refuses("the result must not overlap the table", [&] {
    extend_packed(m.at(0, 4), {2, 2}, images, 1, m.at(6, 4), grid);
  });
  m.refuses("elements of the result must not share memory", [&] {
    extend_packed_gradient(m.at(0, 4), images, 1, m.at(20, 4, 1), {2, 2}, grid);
  });
}

TEST(Overlap, RowsOfAPhase) {
  Memory m;
  const RotarySpec spec =
      resolve(Rope{.head_dim = 2, .base = 10000, .pairing = Pairing::interleaved});
  const RotaryPlan plan(spec, DType::f64);
  m.refuses("[rotary] elements of rows must not share memory: strides are 0 and 1",
            [&] { plan.rows(arange(0, 3), m.at(0, 3, 0)); });
  Spectrum two;
  two.frequency = {1, 0.5};
  m.refuses("[rows] elements of cos must not share memory",
            [&] { phase_rows(two, arange(0, 3), m.at(0, 3, 1), m.at(20)); });
  m.refuses("[rows] sin must not overlap cos",
            [&] { phase_rows(two, arange(0, 3), m.at(0), m.at(1)); });
  m.refuses("[rows] elements of the output must not share memory", [&] {
    phase_rows(spec.blocks[0].spectrum, arange(0, 3), m.at(0, 3, 0), TableLayout::half);
  });
  phase_rows(two, arange(0, 3), m.at(0, 3, 4), m.at(2, 3, 4));
  EXPECT_EQ(m.value[8], std::cos(2.0));
  EXPECT_EQ(m.value[10], std::sin(2.0));
}

}  // namespace
}  // namespace posenc
