// SPDX-License-Identifier: Apache-2.0
// Calls of an input plan that cannot be served: refused by name, nothing read or written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

TEST(InputPlan, BadCallsAreRefusedByName) {
  const auto refusal = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  LoweredInput low;
  std::vector<double> values(4 * 8, 1.0);
  const Learned scheme{.width = 8, .rows = 4};
  const ConstTensorView table = tensor(values.data(), {4, 8});
  scheme.lower(std::span(&table, 1), low);
  EXPECT_THAT(refusal([&] { InputPlan(low, DType::i32); }),
              HasSubstr("[input_plan] dtype must be"));
  const auto changed = [&](auto change) {
    LoweredInput other;
    scheme.lower(std::span(&table, 1), other);
    change(other.terms[0]);
    return refusal([&] { InputPlan(other, DType::f32); });
  };
  EXPECT_THAT(changed([](InputTerm& t) { t.divide = 0; }),
              HasSubstr("divide must be positive, got 0"));
  EXPECT_THAT(changed([](InputTerm& t) { t.wrap = -1; }), HasSubstr("wrap must not be negative"));
  EXPECT_THAT(changed([](InputTerm& t) { t.minus = 16; }), HasSubstr("minus must be below 16"));
  EXPECT_THAT(changed([](InputTerm& t) {
                t.beyond = Beyond::extend;
                t.extension = std::numeric_limits<double>::infinity();
              }),
              HasSubstr("extension must be finite"));
  const InputPlan plan(low, DType::f32);
  std::vector<float> x(24, 3.f), before = x;
  const TensorView v = tensor(x.data(), {3, 8});
  const auto call = [&](std::vector<Index> at) {
    return refusal([&] { plan.apply(v, positions(std::span<const Index>(at)), v); });
  };
  EXPECT_THAT(call({0, 1, 4}), HasSubstr("position must have a row in the table of 4, got 4"));
  EXPECT_THAT(call({0, 1, -1}), HasSubstr("got -1"));
  EXPECT_THAT(call({0, 1}), HasSubstr("one for each of the 3 tokens, got 2"));
  EXPECT_EQ(x, before) << "nothing is written by a refused call";
  const double nan[] = {0, std::numeric_limits<double>::quiet_NaN(), 1}, real[] = {0, 1, 2};
  EXPECT_THAT(refusal([&] { plan.apply(v, positions(std::span(real)), v); }),
              HasSubstr("accepted"));
  const double half[] = {0, 0.5, 1};
  EXPECT_THAT(refusal([&] { plan.apply(v, positions(std::span(half)), v); }),
              HasSubstr("whole numbers, got 0.5"));
  LoweredInput sines;
  Sinusoidal{.width = 8}.lower({}, sines);
  const InputPlan phase(sines, DType::f32);
  EXPECT_THAT(refusal([&] { phase.apply(v, positions(std::span(nan)), v); }),
              HasSubstr("must be finite"));
  std::vector<double> wide(24);
  EXPECT_THAT(refusal([&] {
                phase.apply(tensor(wide.data(), {3, 8}), arange(0, 3), v);
              }),
              HasSubstr("x must be of the plan's dtype f32"));
  EXPECT_THAT(refusal([&] {
                phase.apply(tensor(x.data(), {4, 6}), arange(0, 4), tensor(x.data(), {4, 6}));
              }),
              HasSubstr("channels of a term must lie inside those of x, of which there are 6; its "
                        "width is 8, its first channel, got 0"));
  before = x;
  phase.apply(tensor(x.data(), {0, 8}), arange(0, 0), tensor(x.data(), {0, 8}));
  EXPECT_EQ(x, before) << "zero tokens: nothing happens";
  EXPECT_THAT(refusal([&] {
                InputGradient g;
                std::vector<double> d(32);
                g.table = tensor(d.data(), {4, 8});
                plan.gradient({}, arange(0, 3), v, {}, std::span(&g, 1), {});
              }),
              HasSubstr("workspace must have"));
}

TEST(InputPlan, MemoryThatIsMetTwiceIsRefused) {
  LoweredInput low, wider;
  Sinusoidal{.width = 8}.lower({}, low);
  Sinusoidal{.width = 8, .compose = Compose::concat}.lower({}, wider);
  const InputPlan plan(low, DType::f32), appending(wider, DType::f32);
  std::vector<float> memory(64, 1.f);
  const auto view = [&](Index at, Index token_stride, Index channel_stride) {
    TensorView v = tensor(memory.data() + at, {3, 8});
    v.stride[0] = token_stride, v.stride[1] = channel_stride;
    return v;
  };
  const auto call = [&](const TensorView& x, const TensorView& y) {
    return test::refusal([&] { plan.apply(x, arange(0, 3), y); });
  };
  for (const auto& [token, channel] : {std::pair{4, 1}, {0, 1}, {8, 0}, {1, 1}, {-7, 1}, {2, 4}})
    EXPECT_THAT(call({}, view(32, token, channel)), HasSubstr("y must not share memory")) << token;
  EXPECT_THAT(test::refusal([&] { apply_input({}, arange(0, 3), low, view(0, 4, 1)); }),
              HasSubstr("y must not share memory"));
  EXPECT_EQ(call({}, view(0, 1, 3)), "accepted") << "tokens between channels";
  EXPECT_EQ(call({}, view(40, -8, -1)), "accepted");
  EXPECT_EQ(call(view(0, 8, 1), view(0, 8, 1)), "accepted") << "in place";
  EXPECT_EQ(call(view(0, 16, 1), view(8, 16, 1)), "accepted") << "two halves of one tensor";
  EXPECT_EQ(call(view(0, 0, 1), view(32, 8, 1)), "accepted") << "an input may";
  EXPECT_THAT(call(view(0, 8, 1), view(1, 8, 1)), HasSubstr("the same view or not overlap"));
  EXPECT_THAT(call(view(0, 8, 1), view(0, 9, 1)), HasSubstr("the same view or not overlap"));
  EXPECT_THAT(call(view(0, 16, 1), view(7, 16, 1)), HasSubstr("the same view or not overlap"));
  TensorView y = tensor(memory.data(), {3, 16});
  EXPECT_THAT(test::refusal([&] { appending.apply(view(0, 16, 1), arange(0, 3), y); }),
              HasSubstr("y must not be x"));
  EXPECT_EQ(test::refusal([&] { appending.apply(view(48, 0, 1), arange(0, 3), y); }), "accepted");
  std::vector<std::byte> scratch(plan.gradient_workspace(1, 3));
  EXPECT_THAT(test::refusal([&] {
                plan.gradient({}, arange(0, 3), view(0, 8, 1), view(32, 4, 1), {}, scratch);
              }),
              HasSubstr("d_x must not share memory"));
}

TEST(InputPlan, HowManyAxesAreWantedIsSaid) {
  LoweredInput both, second;
  Spectrum plane;
  plane.axes = 2, plane.frequency = {1, 0, 0, 1};
  InputTerm term;
  term.phase = both.spectrum(plane), term.width = 4;
  both.terms.push_back(term);
  Sinusoidal{.width = 8}.lower({}, second);
  second.terms[0].axis = 1;
  std::vector<double> out(3 * 16);
  for (const LoweredInput* low : {&both, &second}) {
    const TensorView y = tensor(out.data(), {3, low->terms[0].width});
    const std::string says =
        test::refusal([&] { InputPlan(*low, DType::f64).apply({}, arange(0, 3), y); });
    EXPECT_THAT(says, testing::AllOf(HasSubstr("2"), HasSubstr("axes"), HasSubstr("got 1")));
    EXPECT_THAT(test::refusal([&] { apply_input({}, arange(0, 3), *low, y); }),
                testing::AllOf(HasSubstr("2"), HasSubstr("axes"), HasSubstr("got 1")));
  }
}

TEST(InputPlan, APositionPlusItsOffsetStaysInside64Bits) {
  LoweredInput low, plane;
  Sinusoidal{.width = 2, .offset = 1}.lower({}, low);
  Spectrum two;
  two.axes = 2, two.frequency = {1, 2};
  InputTerm term;
  term.phase = plane.spectrum(two), term.width = 2, term.offset = -2;
  plane.terms.push_back(term);
  constexpr Index most = std::numeric_limits<Index>::max();
  for (const DType dtype : {DType::f64, DType::f32}) {
    std::vector<double> memory(4, 5.0);
    const Index shape[] = {2, 2};
    const TensorView y = tensor(static_cast<void*>(memory.data()), dtype, shape);
    const Index far[] = {0, most}, near[] = {0, most - 1};
    const OwnedPositions under = explicit_positions(std::vector<Index>{0, 0, 0, -most}, 1, 2);
    EXPECT_EQ(test::refusal([&] { InputPlan(low, dtype).apply({}, positions(std::span(far)), y); }),
              "[input_plan] position plus the offset of 1 must stay inside 64 bits, got "
              "9223372036854775807");
    EXPECT_THAT(test::refusal([&] { InputPlan(plane, dtype).apply({}, under, y); }),
                HasSubstr("position plus the offset of -2 must stay inside 64 bits"));
    EXPECT_EQ(memory, std::vector<double>(4, 5.0)) << "nothing is written";
    EXPECT_EQ(
        test::refusal([&] { InputPlan(low, dtype).apply({}, positions(std::span(near)), y); }),
        "accepted");
    if (dtype == DType::f64) {
      EXPECT_NEAR(memory[2], 0.5303352662202238, 1e-15) << "sin(2^63 - 1)";
    }
  }
}

// A frozen row is read and gets no gradient, as in input_gradient.
TEST(InputPlan, FrozenRowsAreNotTrained) {
  const std::vector<double> table{1, 2, 3, 4};
  const ConstTensorView p = tensor(table.data(), {4, 1});
  Learned scheme{.width = 1, .rows = 4};
  scheme.frozen_row = 1;
  LoweredInput low;
  scheme.lower(std::span(&p, 1), low);
  const InputPlan plan(low, DType::f64);
  const std::vector<Index> at{0, 1, 1, 3, 0};
  std::vector<double> d_y{1, 2, 3, 4, 5}, d_table(4), y(5);
  plan.apply({}, positions(std::span(at)), tensor(y.data(), {5, 1}));
  EXPECT_EQ(y, (std::vector<double>{1, 2, 2, 4, 1}));
  InputGradient g;
  g.table = tensor(d_table.data(), {4, 1});
  std::vector<std::byte> scratch(plan.gradient_workspace(1, 5));
  plan.gradient({}, positions(std::span(at)), tensor(d_y.data(), {5, 1}), {}, std::span(&g, 1),
                scratch);
  EXPECT_EQ(d_table, (std::vector<double>{6, 0, 0, 4}));
}

TEST(InputPlan, ARefusedGradientReadsAndWritesNothing) {
  LoweredInput low;
  std::vector<double> values(4 * 8, 1.0);
  const Learned scheme{.width = 8, .rows = 4};
  const ConstTensorView table = tensor(values.data(), {4, 8});
  scheme.lower(std::span(&table, 1), low);
  const InputPlan plan(low, DType::f32);
  std::vector<float> d_y(24, 1.f), d_x(24, 3.f);
  std::vector<double> d_table(32, 0.5);
  InputGradient g;
  g.table = tensor(d_table.data(), {4, 8});
  std::vector<std::byte> workspace(plan.gradient_workspace(1, 3));
  const auto refusal = [&](const TensorView& dy, const TensorView& dx) -> std::string {
    try {
      plan.gradient({}, arange(0, 3), dy, dx, std::span(&g, 1), workspace);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  // A table wider than d_y would be summed from beyond its rows.
  EXPECT_THAT(refusal(tensor(d_y.data(), {3, 6}), {}), HasSubstr("lie inside those of x"));
  EXPECT_THAT(refusal(tensor(d_y.data(), {3, 8}), tensor(d_x.data(), {2, 8})),
              HasSubstr("d_x must have the shape of x"));
  EXPECT_EQ(d_table, std::vector<double>(32, 0.5));
  EXPECT_EQ(d_x, std::vector<float>(24, 3.f));
}

}  // namespace
}  // namespace posenc
