// SPDX-License-Identifier: Apache-2.0
// The fused composition against the double path, which shares no code with its kernels: every
// instruction set, dtype, layout, way of composing, awkward width, stride, in and out of place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <set>
#include <tuple>

#include "absolute/token_memory.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/core/isa.h"
#include "posenc/positions/sequence.h"
#include "support/random.h"

namespace posenc {
namespace {

using test::Tokens;
using test::ulp;

constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
struct Shape {
  Index batch, tokens, width;
};

std::vector<double> reference(const LoweredInput& low, const Positions& p, Tokens& x,
                              Index out_width) {
  std::vector<double> in(static_cast<std::size_t>(x.batch * x.tokens * x.width));
  std::size_t i = 0;
  for (Index b = 0; b < x.batch; ++b)
    for (Index t = 0; t < x.tokens; ++t)
      for (Index c = 0; c < x.width; ++c) in[i++] = x.get(b, t, c);
  std::vector<double> out(static_cast<std::size_t>(x.batch * x.tokens * out_width));
  apply_input(tensor(in.data(), {x.batch, x.tokens, x.width}), p, low,
              tensor(out.data(), {x.batch, x.tokens, out_width}));
  return out;
}

// Compares one call; `size` bounds |gain row| and products for the tolerance.
void expect_apply(const LoweredInput& low, DType type, const Positions& p, Shape shape, Index step,
                  Index gap, bool in_place, double size, const std::string& what) {
  test::Random random(17);
  Tokens x(type, shape.batch, shape.tokens, shape.width, step, gap);
  x.fill(random);
  const InputPlan plan(low, type);
  const Index width = shape.width + plan.appended();
  const std::vector<double> want = reference(low, p, x, width);
  Tokens given = x;
  Tokens other(type, shape.batch, shape.tokens, width, in_place ? step : 1, in_place ? gap : 3);
  Tokens& y = in_place ? x : other;
  const std::vector<std::byte> holes = y.holes();
  plan.apply(x.view(), p, y.view());
  ASSERT_EQ(y.holes(), holes) << what << ": written outside";
  std::size_t i = 0;
  const bool real = p.type == DType::f64 || low.terms.size() > 1;
  const double phase = type == DType::f64   ? 4e-16
                       : real               ? 1.1e-7
                       : type == DType::f32 ? 6e-8
                                            : 6e-7,
               u = type == DType::f64 ? 0x1p-53 : 0x1p-24;
  for (Index b = 0; b < shape.batch; ++b)
    for (Index t = 0; t < shape.tokens; ++t)
      for (Index c = 0; c < width; ++c, ++i) {
        // Without FMA the product input_gain x is rounded too.
        const double product =
            c < shape.width ? u * std::abs(low.input_gain * given.get(b, t, c)) : 0;
        const double before =
            product + size * (phase + (real ? 6 * u : 0)) + 3 * u * std::abs(want[i]);
        const double tolerance =
            before + (std::abs(want[i]) + before) * ulp(type) + 0x1p-25 * (type == DType::f16);
        ASSERT_NEAR(y.get(b, t, c), want[i], tolerance)
            << what << " at " << b << ' ' << t << ' ' << c;
      }
}

std::string words(Isa isa, DType type, const std::string& rest) {
  return std::string(isa_name(isa)) + ' ' + std::string(dtype_name(type)) + ' ' + rest;
}

TEST(InputPlan, PhasesOnEveryInstructionSet) {
  const Index far[] = {0, -1, 4095, 131071, 1048575, 2147483647, -2147483648, Index{1} << 37};
  const SineLayout layouts[] = {SineLayout::interleaved, SineLayout::halves,
                                SineLayout::halves_cos_first};
  std::set<std::string> seen;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : kTypes)
      for (const SineLayout layout : layouts)
        for (const Index width : {1, 2, 7, 30, 64, 131, 518, 1030}) {
          LoweredInput low;
          Sinusoidal{.width = width,
                     .layout = layout,
                     .odd = width % 2 ? OddWidth::truncate : OddWidth::refuse,
                     .offset = 2,
                     .gain = 0.75,
                     .input_gain = 1.5}
              .lower({}, low);
          low.terms[0].first = 3;
          for (const bool in_place : {false, true})
            for (const Index step : {1, 2}) {
              const std::string what = words(
                  isa, type, std::string(enum_text(layout)) + " width " + std::to_string(width));
              expect_apply(low, type, positions(std::span(far)), {2, 8, width + 5}, step, 5,
                           in_place, 0.75, what);
              seen.insert(what);
            }
        }
  }
  reset_isa();
  EXPECT_EQ(seen.size(), supported_isas().size() * 4 * 3 * 8);
}

TEST(InputPlan, EveryCompositionAndSourceTogether) {
  test::Random random(5);
  std::vector<double> table = random.normals(11 * 24), rows = random.normals(2 * 6 * 16);
  const Index at[] = {0, 3, 10, 2, 5, 9, 1, 1, 0, 10, 4, 6};
  Positions p = positions(std::span(at));
  p.count = 6, p.batch = 2, p.batch_stride = 6;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : kTypes)
      for (const Compose compose :
           {Compose::add, Compose::multiply, Compose::one_plus, Compose::concat}) {
        LoweredInput low;
        low.input_gain = 0.5;
        // A table of numbers that every dtype holds, so that the plan's copy is not rounded.
        for (double& v : table) v = std::round(v * 16) / 16;
        for (double& v : rows) v = std::round(v * 16) / 16;
        InputTerm t;
        t.table = low.table(table, 11, 24);
        t.width = 24, t.first = 2, t.compose = compose, t.gain = 0.5, t.zero_position = 3;
        low.terms.push_back(t);
        InputTerm r;
        r.rows = tensor(rows.data(), {2, 6, 16});
        r.width = 16, r.first = 20, r.compose = compose, r.gain = -1;
        low.terms.push_back(r);
        InputTerm s;
        s.phase = low.spectrum(geometric_spectrum(100, 20));
        s.width = 21, s.first = 30, s.compose = Compose::add, s.layout = SineLayout::halves;
        low.terms.push_back(s);
        expect_apply(low, type, p, {2, 6, 600}, 1, 0, compose != Compose::concat, 8,
                     words(isa, type, std::string(enum_text(compose))));
      }
  }
  reset_isa();
}

TEST(InputPlan, TablesByEveryRuleBeyondTheirEnd) {
  test::Random random(6);
  const Index at[] = {-3, 0, 4, 7, 8, 2, 2000000000};
  for (const Beyond beyond : {Beyond::clamp, Beyond::zero})
    for (const Index width : {1, 5, 16, 700}) {
      LoweredInput low;
      std::vector<double> values(static_cast<std::size_t>(10 * width));
      for (double& v : values) v = static_cast<double>(random.integer(-64, 64)) / 32;
      const Learned scheme{
          .width = width, .rows = 10, .offset = 2, .beyond = beyond, .zero_position = 4};
      const ConstTensorView p = tensor(values.data(), {10, width});
      scheme.lower(std::span(&p, 1), low);
      for (const DType type : kTypes)
        expect_apply(low, type, positions(std::span(at)), {3, 7, width}, 1, 0, true, 2, "table");
    }
}

// Boxes (differences of axes), flat grids (digits of one number), extended tables, every rule
// beyond the end, alone and beside another term.
TEST(InputPlan, RowsPickedByDifferencesDigitsAndBeyondTheTable) {
  test::Random random(12);
  const std::vector<Index> at{3, 17, -4, 8, 99, 5, 40, 12,  // axis 0
                              1, 20, 6,  8, 2,  7, 39, -3};
  Positions p = positions(std::span(at));
  p.count = 8, p.axes = 2, p.axis_stride = 8;
  const Index width = 37;
  std::vector<double> values(static_cast<std::size_t>(10 * width));
  for (double& v : values) v = static_cast<double>(random.integer(-64, 64)) / 32;
  for (const bool beside : {false, true})
    for (const Beyond beyond : {Beyond::clamp, Beyond::zero, Beyond::extend})
      for (const Index offset : {-6, 0, 3})
        for (const auto& [minus, divide, wrap] : {std::tuple{1, 1, 0}, std::tuple{-1, 4, 0},
                                                  std::tuple{-1, 3, 5}, std::tuple{1, 2, 7}}) {
          LoweredInput low;
          InputTerm t;
          t.table = low.table(values, 10, width);
          t.width = width, t.minus = minus, t.divide = divide, t.wrap = wrap, t.offset = offset;
          t.beyond = beyond, t.extension = 0.25;
          low.terms.push_back(t);
          if (beside) {
            t.minus = -1, t.divide = 1, t.wrap = 0, t.axis = 1, t.beyond = Beyond::clamp;
            low.terms.push_back(t);
          }
          std::vector<double> row(static_cast<std::size_t>(8 * width));
          const auto run = [&](const auto& f) -> std::string {
            try {
              f();
            } catch (const std::invalid_argument& e) {
              return std::string(e.what()).substr(std::string(e.what()).find(']'));
            }
            return "";
          };
          const std::string refused = run([&] {
            apply_input({}, p, low, tensor(row.data(), {8, width}));
          });
          const InputPlan plan(low, DType::f64);
          ASSERT_EQ(run([&] { plan.apply({}, p, tensor(row.data(), {8, width})); }), refused);
          if (!refused.empty()) continue;
          for (const DType type : kTypes)
            expect_apply(low, type, p, {2, 8, width + 3}, 1, 2, true, 8, "picked");
        }
}

TEST(InputPlan, GradientsOfPickedRowsAreThoseOfTheDoublePath) {
  test::Random random(13);
  const std::vector<Index> at{3, 17, 4, 8, 9, 5, 14, 12};
  std::vector<double> values = random.normals(10 * 6), d_y = random.normals(8 * 6);
  for (const Beyond beyond : {Beyond::zero, Beyond::extend})
    for (const Index divide : {1, 3}) {
      LoweredInput low;
      InputTerm t;
      t.table = low.table(values, 10, 6);
      t.width = 6, t.divide = divide, t.wrap = divide == 1 ? 0 : 4, t.offset = 1;
      t.beyond = beyond, t.extension = 0.5, t.frozen_row = 4, t.gain = 2;
      low.terms.push_back(t);
      const InputPlan plan(low, DType::f64);
      std::vector<double> got(60), want(60);
      InputGradient g, w;
      g.table = tensor(got.data(), {10, 6}), w.table = tensor(want.data(), {10, 6});
      const TensorView d = tensor(d_y.data(), {8, 6});
      std::vector<std::byte> scratch(plan.gradient_workspace(1, 8));
      plan.gradient({}, positions(std::span(at)), d, {}, std::span(&g, 1), scratch);
      input_gradient({}, positions(std::span(at)), low, d, {}, std::span(&w, 1));
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-14) << i;
    }
}

TEST(InputPlan, RealPositionsOfSeveralAxes) {
  const double at[] = {0.25, -3.5, 1e6 + 0.125, 7, 2.5, 0.75, -0.5, 11};
  Positions p = positions(std::span(at));
  p.axes = 2, p.count = 4, p.axis_stride = 4;
  LoweredInput low;
  InputTerm t;
  Spectrum s;
  s.axes = 2;
  for (int i = 0; i < 2 * 37; ++i) s.frequency.push_back(0.9 / (1 + i));
  t.phase = low.spectrum(s);
  t.width = 74, t.layout = SineLayout::halves_cos_first, t.offset = 3;
  low.terms.push_back(t);
  for (const DType type : kTypes) expect_apply(low, type, p, {2, 4, 74}, 1, 0, false, 1, "axes");
}

TEST(InputPlan, SinesAloneAndAffineRows) {
  const double at[] = {0.25, -3.5, 4, 7};
  const Positions p = positions(std::span(at));
  test::Random random(3);
  for (const SineLayout layout : {SineLayout::sines, SineLayout::cosines})
    for (const Index width : {40, 39, 43}) {
      LoweredInput low;
      InputTerm t;
      t.phase = low.spectrum(geometric_spectrum(50, 80));
      t.layout = layout, t.width = width, t.first = 1, t.zero_position = 4;
      low.terms.push_back(t);
      for (const DType type : kTypes) expect_apply(low, type, p, {2, 4, 60}, 1, 0, true, 1, "half");
      InputTerm line;
      line.affine = low.table(random.normals(static_cast<std::size_t>(2 * width)), 2, width);
      line.width = width, line.first = 2, line.gain = 0.5, line.zero_position = 7;
      low.terms.push_back(line);
      for (const DType type : kTypes)
        expect_apply(low, type, p, {2, 4, 60}, 1, 0, true, 20, "affine");
    }
}

TEST(InputPlan, RowsAloneAreTheEncoding) {
  LoweredInput low;
  Sinusoidal{.width = 100}.lower({}, low);
  const InputPlan plan(low, DType::f32);
  const OwnedPositions p = arange(5, 9);
  std::vector<float> y(900, 7.f);
  std::vector<double> want(900);
  plan.apply({}, p, tensor(y.data(), {9, 100}));
  apply_input({}, p, low, tensor(want.data(), {9, 100}));
  for (std::size_t i = 0; i < y.size(); ++i)
    ASSERT_NEAR(static_cast<double>(y[i]), want[i], 1.1e-7);
}

// On threads: tasks in the opposite order, on this thread.
void backwards(void*, Index n, void (*task)(void*, Index), void* arg) {
  for (Index i = n; i-- > 0;) task(arg, i);
}

TEST(InputPlan, AnySplitGivesTheSameBits) {
  test::Random random(8);
  constexpr Index b = 3, t = 100, w = 520;
  const std::vector<float> x = random.normals<float>(b * t * w);
  LoweredInput low;
  Sinusoidal{.width = w, .layout = SineLayout::halves}.lower({}, low);
  const InputPlan plan(low, DType::f32);
  const OwnedPositions p = arange(0, t);
  std::vector<float> one = x;
  plan.apply(tensor(one.data(), {b, t, w}), p, tensor(one.data(), {b, t, w}), inline_executor());
  for (const Index tasks : {2, 3, 7}) {
    std::vector<float> y = x;
    plan.apply(tensor(y.data(), {b, t, w}), p, tensor(y.data(), {b, t, w}),
               Executor{nullptr, tasks, backwards});
    ASSERT_EQ(y, one) << tasks;
  }
  std::vector<float> parts = x;  // batch by batch, and in two halves of the tokens
  for (Index i = 0; i < b; ++i)
    for (Index half = 0; half < 2; ++half) {
      const OwnedPositions q = arange(half * 50, 50);
      const TensorView v = tensor(parts.data() + (i * t + half * 50) * w, {50, w});
      plan.apply(v, q, v, inline_executor());
    }
  EXPECT_EQ(parts, one);
}

TEST(InputPlan, GradientsAreThoseOfTheDoublePathForAnyNumberOfThreads) {
  test::Random random(9);
  constexpr Index b = 3, t = 100, w = 600, rows = 17;  // split by rows and by channels
  std::vector<Index> at;
  for (Index i = 0; i < b * t; ++i) at.push_back(i < 40 ? 5 : random.integer(-1, rows + 1));
  Positions p = positions(std::span<const Index>(at));
  p.count = t, p.batch = b, p.batch_stride = t;
  for (const DType type : kTypes)
    for (const Compose compose : {Compose::add, Compose::concat, Compose::one_plus}) {
      LoweredInput low;
      low.input_gain = 2;
      InputTerm term;
      std::vector<double> table(rows * w);
      for (double& v : table) v = static_cast<double>(random.integer(-8, 8)) / 8;
      term.table = low.table(table, rows, w);
      term.width = w, term.gain = 0.5, term.beyond = Beyond::zero, term.compose = compose;
      term.first = compose == Compose::concat ? 0 : 4;
      low.terms.push_back(term);
      const Index in = w + 9, out = in + (compose == Compose::concat ? w : 0);
      Tokens x(type, b, t, in), d_y(type, b, t, out), d_x(type, b, t, in), want_x(type, b, t, in);
      x.fill(random), d_y.fill(random);
      std::vector<double> want(rows * w, 0.25), want_gain(1, 0.5);
      InputGradient g;
      g.table = tensor(want.data(), {rows, w}), g.gain = tensor(want_gain.data(), {1});
      input_gradient(x.view(), p, low, d_y.view(), want_x.view(), std::span(&g, 1));
      const InputPlan plan(low, type);
      std::vector<std::byte> workspace(plan.gradient_workspace(b, t));
      std::vector<double> first;
      for (const Index tasks : {1, 2, 5}) {
        std::vector<double> got(rows * w, 0.25), gain(1, 0.5);
        g.table = tensor(got.data(), {rows, w}), g.gain = tensor(gain.data(), {1});
        plan.gradient(x.view(), p, d_y.view(), d_x.view(), std::span(&g, 1), workspace,
                      Executor{nullptr, tasks, tasks == 1 ? nullptr : backwards});
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 1e-12 * (1 + std::abs(want[i])));
        EXPECT_NEAR(gain[0], want_gain[0], 1e-9 * std::abs(want_gain[0]));
        EXPECT_EQ(d_x.memory, want_x.memory);
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << tasks << " tasks";
      }
    }
}

TEST(InputPlan, GradientsOfFewNumbersWakeNoThread) {
  constexpr Index w = 64, rows = 16;
  LoweredInput low;
  InputTerm term;
  term.table = low.table(std::vector<double>(rows * w, 0.5), rows, w), term.width = w;
  low.terms.push_back(term);
  const InputPlan plan(low, DType::f32);
  for (const auto& [tokens, wakes] : {std::pair<Index, bool>{16, false}, {2048, true}}) {
    std::vector<Index> at;
    for (Index i = 0; i < tokens; ++i) at.push_back(i % rows);
    const std::vector<float> d_y(static_cast<std::size_t>(tokens * w), 1.f);
    std::vector<double> table(rows * w);
    InputGradient g;
    g.table = tensor(table.data(), {rows, w});
    std::vector<std::byte> workspace(plan.gradient_workspace(1, tokens));
    bool woken = false;
    const Executor counts{&woken, 8, [](void* c, Index n, void (*task)(void*, Index), void* arg) {
                            *static_cast<bool*>(c) = true;
                            backwards(nullptr, n, task, arg);
                          }};
    plan.gradient({}, positions(std::span<const Index>(at)), tensor(d_y.data(), {tokens, w}), {},
                  std::span(&g, 1), workspace, counts);
    EXPECT_EQ(woken, wakes) << tokens;
    for (const double v : table) ASSERT_EQ(v, static_cast<double>(tokens / rows));
  }
}

}  // namespace
}  // namespace posenc
