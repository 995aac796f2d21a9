// SPDX-License-Identifier: Apache-2.0
// Positions of one row serve a batch: the same numbers as one call for each sequence, values and
// gradients, whatever the stride of their axis of one element.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "posenc/posenc.h"
#include "posenc/rotary/by_position.h"
#include "posenc/rotary/pope.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

constexpr Index kBatch = 3, kTokens = 4, kHeads = 2, kDim = 8, kAll = kBatch * kTokens;
constexpr Index kRow = kTokens * kHeads * kDim;  // elements of one sequence

using Values = std::vector<double>;

Values random_values(Index count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> next(-2, 2);
  Values v(static_cast<std::size_t>(count));
  for (double& x : v) x = next(random);
  return v;
}
template <class T>
Heads all(std::vector<T>& v, Index dim = kDim) {
  return heads(tensor(v.data(), {kBatch, kTokens, kHeads, dim}), HeadsLayout::bthd);
}
template <class T>
Heads one(std::vector<T>& v, Index batch, Index dim = kDim) {
  return heads(v.data() + batch * kTokens * kHeads * dim, kTokens, kHeads, dim);
}

RotarySpec a_spec() {
  return resolve(Rope{.head_dim = kDim, .base = 10000, .pairing = Pairing::half_split});
}
RotarySpec of_axes(Index axes) {
  RotarySpec spec = a_spec();
  Spectrum& s = spec.blocks[0].spectrum;
  const std::vector<double> row = s.frequency;
  s.axes = axes;
  for (Index a = 1; a < axes; ++a) s.frequency.insert(s.frequency.end(), row.begin(), row.end());
  return spec;
}

constexpr Index kNumbers[] = {5, 0, 3, 2, 1, 7, 4, 6};  // [axes, tokens]
constexpr double kReal[] = {5.5, 0, 3.25, 2, 1, 7, 4, 6};
constexpr std::int32_t kShort[] = {5, 0, 3, 2, 1, 7, 4, 6};

// As a dense tensor [axes, 1, tokens] stands, made by hand: positions(TensorView) clears the
// stride.
Positions dense_row(const void* data, DType type, std::int32_t axes = 1) {
  Positions p;
  p.data = data, p.type = type, p.axes = axes, p.count = kTokens;
  p.batch_stride = p.axis_stride = kTokens;
  return p;
}
Positions flat_row(const void* data, DType type, std::int32_t axes = 1) {
  Positions p = dense_row(data, type, axes);
  p.batch_stride = 0;
  return p;
}
const Positions kDense = dense_row(kNumbers, DType::i64);
const Positions kFlat = flat_row(kNumbers, DType::i64);

TEST(SharedRow, OfATensor) {
  const Index flat[] = {1, kTokens}, deep[] = {2, 1, kTokens};
  const void* data = kNumbers;
  EXPECT_EQ(positions(tensor(data, DType::i64, flat)).batch_stride, 0);
  EXPECT_EQ(positions(tensor(data, DType::i64, deep)).batch_stride, 0);
  EXPECT_EQ(positions(tensor(data, DType::i64, deep)).axis_stride, kTokens);
  const Index two[] = {2, kTokens};
  EXPECT_EQ(positions(tensor(data, DType::i64, two)).batch_stride, kTokens);
}

TEST(SharedRow, TurnsEverySequence) {
  for (const std::int32_t axes : {1, 2}) {
    const RotaryPlan plan(of_axes(axes), DType::f64);
    for (const auto& [data, type] : {std::pair<const void*, DType>{kNumbers, DType::i64},
                                     {kReal, DType::f64},
                                     {kShort, DType::i32}}) {
      const Values x = random_values(kBatch * kRow, 1);
      Values y = x, want = x;
      plan.apply({all(y), {}}, dense_row(data, type, axes));
      for (Index b = 0; b < kBatch; ++b) plan.apply({one(want, b), {}}, flat_row(data, type, axes));
      EXPECT_EQ(y, want) << dtype_name(type) << " " << axes;
    }
  }
}

TEST(SharedRow, PhaseGradients) {
  const RotaryPlan plan(a_spec(), DType::f64);
  Values x = random_values(kBatch * kRow, 1), g = random_values(kBatch * kRow, 2);
  Values position(kAll), want(kAll);
  std::vector<std::byte> work(plan.phase_gradients_workspace({all(x), {}}));
  PhaseGradients wanted;
  wanted.position = tensor(position.data(), {1, kBatch, kTokens});
  plan.phase_gradients({all(x), {}}, {all(g), {}}, kDense, wanted, work);
  for (Index b = 0; b < kBatch; ++b) {
    wanted.position = tensor(want.data() + b * kTokens, {1, 1, kTokens});
    plan.phase_gradients({one(x, b), {}}, {one(g, b), {}}, kFlat, wanted, work);
  }
  EXPECT_EQ(position, want);
}

TEST(SharedRow, NumbersRowsOfTheCaller) {
  const RotaryPlan plan(a_spec(), DType::f64);
  const Index pairs = kDim / 2;
  Values cos = random_values(8 * pairs, 3), sin = random_values(8 * pairs, 4);
  CallerRows rows{tensor(cos.data(), {8, pairs}), tensor(sin.data(), {8, pairs}), TableLayout::half,
                  kDense};
  const Values x = random_values(kBatch * kRow, 1);
  Values y = x, want = x, g = random_values(kBatch * kRow, 2), from = x;
  plan.apply_rows({all(y), {}}, {all(y), {}}, rows);
  Values d_cos(cos.size()), d_sin(cos.size()), want_cos(cos.size()), want_sin(cos.size());
  plan.row_gradients({all(from), {}}, {all(g), {}}, rows,
                     {tensor(d_cos.data(), {8, pairs}), tensor(d_sin.data(), {8, pairs})});
  rows.index = kFlat;
  for (Index b = 0; b < kBatch; ++b) {
    plan.apply_rows({one(want, b), {}}, {one(want, b), {}}, rows);
    plan.row_gradients({one(from, b), {}}, {one(g, b), {}}, rows,
                       {tensor(want_cos.data(), {8, pairs}), tensor(want_sin.data(), {8, pairs})});
  }
  EXPECT_EQ(y, want);
  for (std::size_t i = 0; i < cos.size(); ++i) {
    EXPECT_NEAR(d_cos[i], want_cos[i], 1e-14);  // added in another order
    EXPECT_NEAR(d_sin[i], want_sin[i], 1e-14);
  }
}

TEST(SharedRow, LooksUpInATable) {
  const RotarySpec spec = a_spec();
  const RotaryPlan plan(spec, DType::f32);
  const RotaryTable table(spec, 8, DType::f32);
  const Values x = random_values(kBatch * kRow, 1);
  std::vector<float> y(x.begin(), x.end()), want = y;
  apply(plan, {all(y), {}}, {all(y), {}}, table, kDense);
  for (Index b = 0; b < kBatch; ++b)
    apply(plan, {one(want, b), {}}, {one(want, b), {}}, table, kFlat);
  EXPECT_EQ(y, want);
}

TEST(SharedRow, OfTwoPlansByPosition) {
  RotarySpec other = a_spec();
  other.blocks[0].spectrum.frequency[1] = 0.5;
  const RotaryPlan below(a_spec(), DType::f64), from(other, DType::f64);
  const Values x = random_values(kBatch * kRow, 1);
  Values y = x, want = x;
  apply(below, from, 3, {all(y), {}}, {all(y), {}}, kDense);
  for (Index b = 0; b < kBatch; ++b)
    apply(below, from, 3, {one(want, b), {}}, {one(want, b), {}}, kFlat);
  EXPECT_EQ(y, want);
}

TEST(SharedRow, OfPope) {
  const PopePlan plan(Pope{.head_dim = kDim, .base = 10000}, DType::f64);
  Values x = random_values(kBatch * kRow, 1), g = random_values(2 * kBatch * kRow, 2);
  Values y(2 * x.size()), want(y.size()), d(x.size()), want_d(x.size());
  plan.apply(all(x), all(y, 2 * kDim), kDense);
  plan.gradient(all(x), all(g, 2 * kDim), kDense, {}, all(d));
  for (Index b = 0; b < kBatch; ++b) {
    plan.apply(one(x, b), one(want, b, 2 * kDim), kFlat);
    plan.gradient(one(x, b), one(g, b, 2 * kDim), kFlat, {}, one(want_d, b));
  }
  EXPECT_EQ(y, want);
  EXPECT_EQ(d, want_d);
}

TEST(SharedRow, MovesCachedKeys) {
  const RotarySpec spec = a_spec();
  const Values x = random_values(kBatch * kRow, 1);
  Values y = x, want = x;
  const Positions old_dense = dense_row(kReal, DType::f64), old_flat = flat_row(kReal, DType::f64);
  rerotate(all(y), spec, old_dense, spec, kDense);
  for (Index b = 0; b < kBatch; ++b) rerotate(one(want, b), spec, old_flat, spec, kFlat);
  EXPECT_EQ(y, want);
}

TEST(SharedRow, OtherCountsOfRowsAreRefused) {
  const RotarySpec spec = a_spec();
  const RotaryPlan plan(spec, DType::f64), f32(spec, DType::f32);
  const PopePlan pope(Pope{.head_dim = kDim, .base = 10000}, DType::f64);
  Values x(kBatch * kRow), y(2 * x.size()), rows_of(8 * kDim / 2);
  std::vector<float> x32(x.size());
  Positions two = kDense;
  two.batch = 2;
  const std::string rule = "one row, or one for each of the batch of 3, got 2";
  EXPECT_THAT(refusal([&] {
                plan.apply({all(x), {}}, two);
              }),
              HasSubstr("[rotary] positions must have " + rule));
  EXPECT_THAT(refusal([&] { pope.apply(all(x), all(y, 2 * kDim), two); }),
              HasSubstr("[pope] positions must have " + rule));
  EXPECT_THAT(refusal([&] { rerotate(all(x), spec, two, spec, kDense); }),
              HasSubstr("[rerotate] old positions must have " + rule));
  EXPECT_THAT(refusal([&] {
                apply(plan, plan, 3, {all(x), {}}, {all(x), {}}, two);
              }),
              HasSubstr("[by position] positions must have " + rule));
  const TensorView cos = tensor(rows_of.data(), {8, kDim / 2});
  EXPECT_THAT(
      refusal([&] {
        plan.apply_rows({all(x), {}}, {all(x), {}}, CallerRows{cos, cos, TableLayout::half, two});
      }),
      HasSubstr("[rotary] index must have " + rule));
}

}  // namespace
}  // namespace posenc
