// SPDX-License-Identifier: Apache-2.0
// LayerNorm and weighted sums of 16-bit rows on every instruction set, against long double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/convert.h"
#include "kernels/norm.h"
#include "kernels/weighted_sum.h"
#include "support/random.h"

namespace posenc {
namespace {

constexpr double kEpsilon = 1e-5;
const std::vector<Index> kSizes{1, 2, 7, 8, 9, 15, 64, 100, 771};

struct Norm {
  std::vector<double> s, gamma, beta, up;
  explicit Norm(Index n) {
    test::Random random(11);
    for (std::vector<double>* v : {&s, &gamma, &beta, &up})
      *v = random.normals<double>(static_cast<std::size_t>(n));
    for (double& x : s) x += 3;
  }
};

TEST(NormKernels, ForwardAndBackwardOnEveryInstructionSet) {
  using Real = long double;
  for (const Index n : kSizes) {
    const Norm c(n);
    const auto size = c.s.size();
    Real mean = 0, variance = 0;
    for (const double x : c.s) mean += Real{x} / static_cast<Real>(n);
    for (const double x : c.s) variance += (x - mean) * (x - mean) / static_cast<Real>(n);
    const Real deviation = std::sqrt(variance + Real{kEpsilon});
    Real sum = 0, along = 0;
    std::vector<Real> z(size);
    for (std::size_t i = 0; i < size; ++i) {
      z[i] = (c.s[i] - mean) / deviation;
      sum += Real{c.up[i]} * c.gamma[i] / static_cast<Real>(n);
      along += Real{c.up[i]} * c.gamma[i] * z[i] / static_cast<Real>(n);
    }
    std::vector<double> first;
    for (const Isa isa : supported_isas()) {
      const detail::NormKernels& k = detail::norm_kernels(isa);
      std::vector<double> y = c.s, s = c.s, d = c.up, d_gamma(size, 0.5), d_beta(size, 0.25);
      k.forward(y.data(), n, kEpsilon, c.gamma.data(), c.beta.data(), y.data());
      std::vector<float> narrow(size);
      k.forward_f32(c.s.data(), n, kEpsilon, c.gamma.data(), c.beta.data(), narrow.data());
      std::vector<double> other = c.s, d_alone = c.up;
      k.backward(other.data(), n, kEpsilon, c.gamma.data(), d_alone.data(), nullptr, nullptr);
      k.backward(s.data(), n, kEpsilon, c.gamma.data(), d.data(), d_gamma.data(), d_beta.data());
      for (std::size_t i = 0; i < size; ++i) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::to_string(i) + " of " +
                     std::to_string(n));
        const auto near = [](double got, Real want, Real scale) {
          EXPECT_NEAR(got, static_cast<double>(want), 1e-14 * static_cast<double>(scale));
        };
        near(y[i], z[i] * c.gamma[i] + c.beta[i], 4);
        near(d[i], (Real{c.up[i]} * c.gamma[i] - sum - z[i] * along) / deviation, 8 / deviation);
        near(d_gamma[i], Real{0.5} + c.up[i] * z[i], 8);
        near(d_beta[i], Real{0.25} + c.up[i], 4);
      }
      EXPECT_EQ(narrow, std::vector<float>(y.begin(), y.end()));
      EXPECT_EQ(d_alone, d) << "sums that nobody wants change nothing";
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << isa_name(isa) << " has other bits, " << n;
    }
  }
}

TEST(WeightedSumKernels, SixteenBitRowsOnEveryInstructionSet) {
  test::Random random(5);
  for (const Index n : kSizes) {
    const auto values = random.normals<float>(static_cast<std::size_t>(2 * n));
    std::vector<std::uint16_t> half, brain;
    for (const float x : values) half.push_back(f16_from(x)), brain.push_back(bf16_from(x));
    const double weight[] = {0.75, -3};
    for (const Isa isa : supported_isas())
      for (const DType type : {DType::f16, DType::bf16}) {
        const std::vector<std::uint16_t>& from = type == DType::f16 ? half : brain;
        const void* rows[] = {from.data(), from.data() + n};
        std::vector<double> out(static_cast<std::size_t>(n) + 1, 7);
        detail::weighted_sum_kernels(isa).into_f64(type)({rows, weight, 2, n, out.data()});
        const auto widened = [&](Index i) {
          const std::uint16_t bits = from[static_cast<std::size_t>(i)];
          return static_cast<double>(type == DType::f16 ? f32_from_f16(bits) : f32_from_bf16(bits));
        };
        for (Index i = 0; i < n; ++i)  // exact: the products have few bits
          EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.75 * widened(i) - 3 * widened(n + i))
              << isa_name(isa) << " " << dtype_name(type) << " " << i << " of " << n;
        EXPECT_EQ(out.back(), 7) << "written beyond the row";
      }
  }
}

}  // namespace
}  // namespace posenc
