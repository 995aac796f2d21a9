// SPDX-License-Identifier: Apache-2.0
// Worked examples of reference E1: d = 8, base 10000, x = 1 .. 8, position 3.
#include <gtest/gtest.h>

#include <vector>

#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

template <class T>
std::vector<T> turn(const Rope& rope, std::vector<T> x, Index position, RotateMode sense) {
  const RotaryPlan plan(resolve(rope), dtype_of<T>);
  const Index p[] = {position};
  plan.apply({heads(x.data(), 1, 1, static_cast<Index>(x.size())), {}}, positions(p), sense);
  return x;
}

TEST(Rotate, WorkedExampleInterleaved) {
  const double want[] = {-1.27223251272018, -1.83886498514102, 1.68392864073146, 4.70790657648644,
                         4.81777716752996,  6.1472777035064,   6.97596853602361, 8.02096396852701};
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  const auto y =
      turn<double>({.head_dim = 8, .pairing = Pairing::interleaved}, x, 3, RotateMode::forward);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], want[i], 2e-14) << i;
  const std::vector<float> xf(x.begin(), x.end());
  const auto yf =
      turn<float>({.head_dim = 8, .pairing = Pairing::interleaved}, xf, 3, RotateMode::forward);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(yf[i], want[i], 2e-6) << i;
}

TEST(Rotate, WorkedExampleHalfSplit) {
  const double want[] = {-1.69559253689978, 0.137551738283174, 2.78868159982949, 3.97598203601348,
                         -4.80884247494236, 6.32305934807632,  7.0868367368504,  8.01196398202701};
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8};
  const auto y =
      turn<double>({.head_dim = 8, .pairing = Pairing::half_split}, x, 3, RotateMode::forward);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], want[i], 2e-14) << i;
  const auto back =
      turn<double>({.head_dim = 8, .pairing = Pairing::half_split}, y, 3, RotateMode::inverse);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(back[i], x[i], 1e-14) << i;
}

}  // namespace
}  // namespace posenc
