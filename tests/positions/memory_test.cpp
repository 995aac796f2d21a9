// SPDX-License-Identifier: Apache-2.0
// No call writes over the positions that it still reads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/posenc.h"
#include "posenc/rotary/by_position.h"
#include "posenc/rotary/pope.h"

namespace posenc {
namespace {

constexpr Index kTokens = 4, kWidth = 8;

// x, rows of kWidth doubles, and y of twice as many; positions lie before y, or at its `at`-th.
struct Memory {
  std::vector<double> numbers = std::vector<double>(200, 1.0);
  double* x() { return numbers.data(); }
  double* y() { return numbers.data() + 80; }
  TensorView rows(double* p, Index width = kWidth) { return tensor(p, {kTokens, width}); }
  Heads heads(double* p, Index width = kWidth) { return posenc::heads(p, kTokens, 1, width); }
  Positions positions(const double* p) {
    Positions q;
    q.data = p, q.type = DType::f64, q.count = kTokens;
    return q;
  }
};

RotarySpec rope() {
  return resolve(Rope{.head_dim = kWidth, .pairing = Pairing::half_split});
}

using CallWith = std::function<void(Memory&, const Positions&)>;

void expect_refused(const std::string& who, const CallWith& call) {
  Memory m;
  EXPECT_NO_THROW(call(m, m.positions(m.y() - kTokens))) << who;
  // From the left only the last of them lies in the output, from the right only the first.
  for (double* p : {m.y() - kTokens + 1, m.y(), m.y() + 3, m.y() + kTokens * kWidth - 1}) {
    const std::vector<double> before = m.numbers;
    try {
      call(m, m.positions(p));
      ADD_FAILURE() << who << " read positions from what it wrote";
    } catch (const std::invalid_argument& e) {
      EXPECT_THAT(e.what(), testing::AllOf(testing::StartsWith("[" + who + "]"),
                                           testing::HasSubstr("must not overlap positions")));
    }
    EXPECT_EQ(m.numbers, before) << who;
  }
}

TEST(PositionsMemory, Rotations) {
  const RotaryPlan plan(rope(), DType::f64);
  expect_refused("rotary", [&](Memory& m, const Positions& p) {
    plan.apply({m.heads(m.x()), {}}, {m.heads(m.y()), {}}, p);
  });
  expect_refused("rotary", [&](Memory& m, const Positions& p) {
    plan.apply({{}, m.heads(m.y())}, p);  // in place
  });
  expect_refused("rotary", [&](Memory& m, const Positions& p) {
    apply(plan, plan, 2, QK{m.heads(m.x()), {}}, QK{m.heads(m.y()), {}}, p);
  });
  expect_refused("rerotate", [&](Memory& m, const Positions& p) {
    rerotate(m.heads(m.y()), rope(), p, rope(), arange(0, kTokens));
  });
  expect_refused("pope", [&](Memory& m, const Positions& p) {
    PopePlan(Pope{.head_dim = kWidth}, DType::f64)
        .apply(m.heads(m.x()), m.heads(m.y(), 2 * kWidth), p, {});
  });
}

TEST(PositionsMemory, Tables) {
  std::vector<Index> numbers(100, 1);
  const RotaryPlan plan(rope(), DType::f32);
  const RotaryTable table(rope(), 10);
  QK q;
  q.q = heads(reinterpret_cast<float*>(numbers.data()), kTokens, 1, kWidth);
  EXPECT_NO_THROW(apply(plan, q, table, positions(std::span(numbers).last(kTokens))));
  std::fill(numbers.begin(), numbers.end(), 1);
  EXPECT_THROW(apply(plan, q, table, positions(std::span(numbers).first(kTokens))),
               std::invalid_argument);
  EXPECT_EQ(numbers, std::vector<Index>(100, 1));
}

TEST(PositionsMemory, RowsAndInputs) {
  const Spectrum s = geometric_spectrum(10000, kWidth);
  expect_refused("rows", [&](Memory& m, const Positions& p) {
    phase_rows(s, p, m.rows(m.y()), TableLayout::half);
  });
  expect_refused("rows", [&](Memory& m, const Positions& p) {
    phase_rows(s, p, {}, m.rows(m.y()), TableLayout::duplicated);
  });
  LoweredInput low;
  Sinusoidal{.width = kWidth}.lower({}, low);
  expect_refused("apply_input", [&](Memory& m, const Positions& p) {
    apply_input(m.rows(m.x()), p, low, m.rows(m.y()));
  });
  const InputPlan plan(low, DType::f64);
  expect_refused("input_plan", [&](Memory& m, const Positions& p) {
    plan.apply(m.rows(m.x()), p, m.rows(m.y()));
  });
  expect_refused("input_plan", [&](Memory& m, const Positions& p) {
    plan.gradient(m.rows(m.x()), p, m.rows(m.x()), m.rows(m.y()), {}, {});
  });
}

// One token's position is read before the token is written.
TEST(PositionsMemory, OfOneTokenMayLieAnywhere) {
  std::vector<double> x(kWidth, 1.0), y(kWidth, 1.0);
  const RotaryPlan plan(rope(), DType::f64);
  const auto turn = [&](std::vector<double>& q, const double* at) {
    Positions p;
    p.data = at, p.type = DType::f64, p.count = 1;
    plan.apply({heads(q.data(), 1, 1, kWidth), {}}, p);
  };
  const double one = 1;
  turn(x, &one);
  turn(y, y.data() + 2);
  EXPECT_EQ(x, y);
}

}  // namespace
}  // namespace posenc
