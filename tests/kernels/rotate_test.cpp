// SPDX-License-Identifier: Apache-2.0
// Worked examples of reference E1: d = 8, base 10000, x = 1 .. 8, position 3. What becomes of a NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/element.h"
#include "posenc/core/isa.h"
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

// One NaN among the numbers makes both members of its pair NaN of its sign, wherever the pair stands: in a vector, in what
// is left over, with the instruction set that negates a factor of a product (Arm) and with the one that does not.
TEST(Rotate, NaNKeepsItsSign) {
  const double nan = std::copysign(std::nan(""), 1.0);
  const Index position = 3;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16})
      for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved})
        for (const Index pairs : {1, 3, 13, 31, 100}) {
          // Head h has its NaN in channel h; in odd heads it is negative.
          const Index dim = 2 * pairs;
          std::vector<double> memory(static_cast<std::size_t>(dim * dim));
          void* x = memory.data();
          for (Index i = 0; i < dim * dim; ++i) detail::put_element(x, type, i, 1.0);
          for (Index h = 0; h < dim; ++h)
            detail::put_element(x, type, h * dim + h, h % 2 == 0 ? nan : -nan);
          const RotaryPlan plan(resolve(Rope{.head_dim = dim, .pairing = pairing}), type);
          plan.apply({heads(tensor(x, type, {1, 1, dim, dim}), HeadsLayout::bthd), {}},
                     positions(std::span<const Index>(&position, 1)));
          for (Index h = 0; h < dim; ++h)
            for (Index i = 0; i < dim; ++i) {
              const Index other = pairing == Pairing::interleaved ? h ^ 1 : (h + pairs) % dim;
              const double y = detail::float_element(x, type, h * dim + i);
              ASSERT_TRUE(std::isnan(y) == (i == h || i == other) &&
                          (!std::isnan(y) || std::signbit(y) == (h % 2 == 1)))
                  << isa_name(isa) << " " << dtype_name(type) << " " << enum_text(pairing) << " "
                  << pairs << " pairs, head " << h << ", channel " << i << ": " << y;
            }
        }
  }
  reset_isa();
}

}  // namespace
}  // namespace posenc
