// SPDX-License-Identifier: Apache-2.0
// PoPE against x-transformers' numbers, forward and backward.
#include "posenc/rotary/pope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "support/suite.h"

namespace posenc {
namespace {

using support::Suite;
using support::SuiteArray;

Heads bhtd(std::vector<double>& v, Index b, Index h, Index t, Index d) {
  return heads(tensor(v.data(), {b, h, t, d}), HeadsLayout::bhtd);
}

void check_case(const std::string& name) {
  const Suite suite("rotary_engines");
  SuiteArray q = suite(name, "q"), k = suite(name, "k"), bias = suite(name, "bias");
  const SuiteArray frequencies = suite(name, "inv_freq");
  const Index b = q.dim(0), h = q.dim(1), t = q.dim(2), d = q.dim(3);
  const std::vector<Index> at = suite(name, "positions").integers();
  const double tolerance = 2.1e-6;  // the peer's float32 frequencies and softplus
  const PopePlan plan(Pope{.head_dim = d, .base = 10000}, DType::f64);
  const Spectrum s = Pope{.head_dim = d, .base = 10000}.spectrum();
  for (std::size_t i = 0; i < s.frequency.size(); ++i)
    EXPECT_NEAR(s.frequency[i], frequencies.value[i], 1e-6);
  const TensorView learned = tensor(bias.value.data(), {h, d});
  std::vector<double> yq(static_cast<std::size_t>(b * h * t * 2 * d)), yk = yq;
  const Positions p = positions(std::span<const Index>(at));
  plan.apply(bhtd(q.value, b, h, t, d), bhtd(yq, b, h, t, 2 * d), p);
  plan.apply(bhtd(k.value, b, h, t, d), bhtd(yk, b, h, t, 2 * d), p, learned);
  const SuiteArray wq = suite(name, "q_out"), wk = suite(name, "k_out");
  for (std::size_t i = 0; i < yq.size(); ++i) {
    EXPECT_NEAR(yq[i], wq.value[i], tolerance) << name << " q " << i;
    EXPECT_NEAR(yk[i], wk.value[i], tolerance) << name << " k " << i;
  }
  // scores = q_out . k_out, given their gradient
  const SuiteArray g = suite(name, "grad_scores");
  std::vector<double> gq(yq.size()), gk(yq.size());
  for (Index n = 0; n < b * h; ++n)
    for (Index i = 0; i < t; ++i)
      for (Index j = 0; j < t; ++j)
        for (Index c = 0; c < 2 * d; ++c) {
          const double w = g.value[static_cast<std::size_t>((n * t + i) * t + j)];
          const auto qi = static_cast<std::size_t>((n * t + i) * 2 * d + c);
          const auto kj = static_cast<std::size_t>((n * t + j) * 2 * d + c);
          gq[qi] += w * yk[kj], gk[kj] += w * yq[qi];
        }
  std::vector<double> dq(q.value.size()), dk(k.value.size()), db(bias.value.size());
  plan.gradient(bhtd(q.value, b, h, t, d), bhtd(gq, b, h, t, 2 * d), p, {}, bhtd(dq, b, h, t, d));
  plan.gradient(bhtd(k.value, b, h, t, d), bhtd(gk, b, h, t, 2 * d), p, learned,
                bhtd(dk, b, h, t, d), tensor(db.data(), {h, d}));
  const SuiteArray vq = suite(name, "grad_q"), vk = suite(name, "grad_k");
  const SuiteArray vb = suite(name, "grad_bias");
  for (std::size_t i = 0; i < dq.size(); ++i) {
    EXPECT_NEAR(dq[i], vq.value[i], tolerance) << name << " dq " << i;
    EXPECT_NEAR(dk[i], vk.value[i], tolerance) << name << " dk " << i;
  }
  for (std::size_t i = 0; i < db.size(); ++i)
    EXPECT_NEAR(db[i], vb.value[i], tolerance) << name << " db " << i;
}

TEST(Pope, XTransformersZeroBias) {
  check_case("xt_polar_zero_bias");
}
TEST(Pope, XTransformersLearnedBias) {
  check_case("xt_polar_bias");
}

TEST(Pope, Refusals) {
  EXPECT_THROW(PopePlan(Pope{.head_dim = 0}, DType::f32), std::invalid_argument);
  EXPECT_THROW(PopePlan(Pope{.head_dim = 4, .base = NAN}, DType::f32), std::invalid_argument);
  EXPECT_THROW(PopePlan(Pope{.head_dim = 4}, DType::i32), std::invalid_argument);
  const PopePlan plan(Pope{.head_dim = 4}, DType::f32);
  std::vector<float> x(24);
  const Index p[] = {0, 1};
  EXPECT_THROW(plan.apply(heads(x.data(), 2, 1, 4), heads(x.data() + 8, 2, 1, 4), positions(p)),
               std::invalid_argument);
  EXPECT_THROW(plan.apply(heads(x.data(), 2, 1, 4), heads(x.data() + 4, 2, 1, 8), positions(p)),
               std::invalid_argument);
  Heads twice = heads(x.data() + 8, 2, 1, 8);
  twice.token_stride = 4;
  EXPECT_THROW(plan.apply(heads(x.data(), 2, 1, 4), twice, positions(p)), std::invalid_argument);
  std::vector<double> bias(8, -1), sums(8);
  std::vector<float> d(16);
  TensorView shared = tensor(sums.data(), {2, 4});
  shared.stride[0] = 0;  // two heads add to one sum
  EXPECT_THROW(
      plan.gradient(heads(d.data(), 1, 2, 4), heads(x.data(), 1, 2, 8), positions(std::span(p, 1)),
                    tensor(bias.data(), {2, 4}), heads(d.data() + 8, 1, 2, 4), shared),
      std::invalid_argument);
  plan.apply(heads(x.data(), 2, 1, 4), heads(x.data() + 8, 2, 1, 8), positions(p));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(x[8 + i], std::log(2.0f));
}

// Large and small x neither overflow nor vanish.
TEST(Pope, Extremes) {
  const PopePlan plan(Pope{.head_dim = 4}, DType::f64);
  std::vector<double> x{800, -800, 40, -40}, y(8);
  const Index p[] = {0};
  plan.apply(heads(x.data(), 1, 1, 4), heads(y.data(), 1, 1, 8), positions(p));
  EXPECT_EQ(y[0], 800);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], 40);
  EXPECT_NEAR(y[3] / std::exp(-40.0), 1, 1e-15);
}

}  // namespace
}  // namespace posenc
