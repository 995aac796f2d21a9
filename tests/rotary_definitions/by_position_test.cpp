// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "posenc/registry.h"
#include "posenc/rotary/by_position.h"
#include "support/suite.h"

namespace posenc {
namespace {

LongRope start_token_scaling() {
  LongRope l;
  l.long_factor = {1.0, 1.1, 1.35, 2.0, 4.5, 11.0, 30.25, 64.0};
  l.original_context = 256;
  l.switch_rule = LongRopeSwitch::always_long;
  l.factor = 8;
  return l;
}

// paper_longrope_start_tokens: rows 0, 3, 4, 77 of the authors' table; the first four stay plain.
TEST(ByPosition, LongRopeStartTokens) {
  Rope rope;
  rope.head_dim = 16;
  rope.pairing = Pairing::half_split;
  const ByPosition split = start_tokens(rope, std::vector{start_token_scaling()}, 4);
  const support::Suite suite("rotary_engines");
  const std::vector<double> cos = suite("paper_longrope_start_tokens", "cos_rows_f64").value;
  const std::vector<double> sin = suite("paper_longrope_start_tokens", "sin_rows_f64").value;
  const RotaryPlan below(split.below, DType::f64), from(split.from, DType::f64);
  // (1, 0) turned by phi is (cos phi, sin phi). Two rows of a batch, the second backwards.
  const std::vector<Index> p = {0, 3, 4, 77, 77, 4, 3, 0};
  std::vector<double> x(8 * 16, 0.0);
  for (std::size_t t = 0; t < 8; ++t)
    for (std::size_t i = 0; i < 8; ++i) x[t * 16 + i] = 1;
  const Heads q = heads(tensor(x.data(), {2, 4, 1, 16}), HeadsLayout::bthd);
  apply(below, from, split.bound, {q, {}}, {q, {}}, positions(tensor(p.data(), {2, 4})));
  for (std::size_t t = 0; t < 8; ++t)
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t row = t < 4 ? t : 7 - t;
      EXPECT_NEAR(x[t * 16 + i], cos[row * 8 + i], 1e-12) << t << " " << i;
      EXPECT_NEAR(x[t * 16 + 8 + i], sin[row * 8 + i], 1e-12) << t << " " << i;
    }
}

TEST(ByPosition, Refuses) {
  Rope rope;
  rope.head_dim = 16;
  rope.pairing = Pairing::half_split;
  EXPECT_THROW(start_tokens(rope, std::vector{start_token_scaling()}, -1), std::invalid_argument);
  const ByPosition split = start_tokens(rope, std::vector{start_token_scaling()}, 4);
  const RotaryPlan wide(split.below, DType::f64), narrow(split.from, DType::f32);
  std::vector<double> x(16);
  const Index three[] = {0, 1, 2};
  const QK q{heads(x.data(), 1, 1, 16), {}};
  EXPECT_THROW(apply(wide, narrow, 4, q, q, positions(std::span(three, 1))), std::invalid_argument);
  EXPECT_THROW(apply(wide, wide, 4, q, q, positions(std::span(three))), std::invalid_argument);
}

// A position that is not finite, or a second plan that does not fit, stands behind the first run.
TEST(ByPosition, RefusedCallsWriteNothing) {
  const Rope rope{.head_dim = 2, .base = 10000, .pairing = Pairing::half_split};
  const RotaryPlan plan(resolve(rope), DType::f64);
  RotarySpec per_head = resolve(rope);
  per_head.blocks[0].spectrum.heads = 2;
  per_head.blocks[0].spectrum.frequency = {1, 2};
  const RotaryPlan two_heads(per_head, DType::f64);
  std::vector<double> x(6, 1.0);
  const QK q{heads(x.data(), 3, 1, 2), {}};
  const double nan[] = {1, 2, std::numeric_limits<double>::quiet_NaN()}, good[] = {1, 2, 9};
  EXPECT_THROW(apply(plan, plan, 4, q, q, positions(std::span(nan))), std::invalid_argument);
  EXPECT_EQ(x, std::vector<double>(6, 1.0));
  EXPECT_THROW(apply(plan, two_heads, 4, q, q, positions(std::span(good))), std::invalid_argument);
  EXPECT_EQ(x, std::vector<double>(6, 1.0));
  apply(plan, plan, 4, q, q, positions(std::span(good)));
  EXPECT_NE(x, std::vector<double>(6, 1.0));
}

}  // namespace
}  // namespace posenc
