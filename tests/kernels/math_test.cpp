// SPDX-License-Identifier: Apache-2.0
// exp of the kernels on every instruction set, against long double over its range.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/math-inl.h"

#ifndef POSENC_TESTS_KERNELS_MATH_ONCE_
#define POSENC_TESTS_KERNELS_MATH_ONCE_
namespace posenc::inline v0::detail {
struct ExpKernels {
  void (*exp_minus)(const double* a, std::size_t n, double* out);
  void (*exp_f32)(const float* x, std::size_t n, float* out);
};
}  // namespace posenc::v0::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void exp_minus(const double* a, std::size_t n, double* out) {
  const hn::ScalableTag<double> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(ExpMinus(d, hn::LoadU(d, a + i)), d, out + i);
}
void exp_f32(const float* x, std::size_t n, float* out) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(ExpF32(d, hn::LoadU(d, x + i)), d, out + i);
}
constexpr ExpKernels kKernels{exp_minus, exp_f32};
}  // namespace

const ExpKernels* table_of_exp() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/isa_table.h"

namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_exp);
const ExpKernels& kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_exp), isa);
}
}  // namespace posenc::v0::detail

namespace posenc {
namespace {

constexpr std::size_t kBlock = 256;

TEST(Math, ExpMinusOfDoubles) {
  std::mt19937_64 gen(5);
  std::vector<double> a(kBlock), got(kBlock);
  for (const Isa isa : supported_isas())
    for (const double most : {1e-3, 1.0, 40.0, 708.0})
      for (int round = 0; round < 20; ++round) {
        for (double& v : a) v = std::uniform_real_distribution<double>(0, most)(gen);
        a[0] = 0;
        detail::kernels(isa).exp_minus(a.data(), kBlock, got.data());
        for (std::size_t i = 0; i < kBlock; ++i) {
          const long double want = expl(-static_cast<long double>(a[i]));
          EXPECT_LE(fabsl(got[i] - want), 1.8e-16L * want) << isa_name(isa) << " " << a[i];
        }
      }
  // The smallest results: a unit of subnormals; beyond them 0.
  for (const Isa isa : supported_isas()) {
    for (std::size_t i = 0; i < kBlock; ++i) a[i] = 708 + 0.2 * static_cast<double>(i);
    a[kBlock - 1] = std::numeric_limits<double>::infinity();
    detail::kernels(isa).exp_minus(a.data(), kBlock, got.data());
    for (std::size_t i = 0; i < kBlock; ++i) {
      const long double want = expl(-static_cast<long double>(a[i]));
      EXPECT_LE(fabsl(got[i] - want), 1.8e-16L * want + 0x1p-1074L) << isa_name(isa) << " " << a[i];
    }
  }
}

TEST(Math, ExpOfFloats) {
  constexpr float kLeast = -0x1.5d589ep+6f, kMost = 0x1.62e42ep+6f;  // ln 2^-126, ln 2^128 inside
  std::vector<float> x(kBlock), got(kBlock);
  for (const Isa isa : supported_isas())
    for (const float most : {kLeast, kMost}) {
      // Bit patterns of floats from 0 to the end of the range, at steps that leave no exponent out.
      std::uint32_t bits = std::bit_cast<std::uint32_t>(most);
      const std::uint32_t sign = bits & 0x80000000u, step = 9973;
      for (bits &= 0x7fffffffu; bits > step * kBlock;) {
        for (float& v : x) v = std::bit_cast<float>(bits | sign), bits -= step;
        detail::kernels(isa).exp_f32(x.data(), kBlock, got.data());
        for (std::size_t i = 0; i < kBlock; ++i) {
          const long double want = expl(static_cast<long double>(x[i]));
          ASSERT_LE(fabsl(got[i] - want), 9.2e-8L * want) << isa_name(isa) << " " << x[i];
        }
      }
    }
}

TEST(Math, ExpOfFloatsAtAndBeyondTheEnds) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto bits = [](std::uint32_t u) { return std::bit_cast<float>(u); };
  for (const Isa isa : supported_isas()) {
    std::vector<float> x(kBlock, -1.0f), got(kBlock);
    const float given[] = {
        0.0f,  -0.0f, -0x1.5d589ep+6f,   -0x1.5d58a0p+6f,   -1e30f,           -kInf,
        88.8f, kInf,  bits(0x7fc00000u), bits(0x7f800001u), bits(0xffffffffu)};
    std::copy(std::begin(given), std::end(given), x.begin());
    detail::kernels(isa).exp_f32(x.data(), kBlock, got.data());
    EXPECT_EQ(got[0], 1.0f);
    EXPECT_EQ(got[1], 1.0f);
    EXPECT_GE(got[2], std::numeric_limits<float>::min());
    for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(got[i], 0.0f) << isa_name(isa) << " " << x[i];
    for (std::size_t i = 6; i < 8; ++i) EXPECT_EQ(got[i], kInf) << isa_name(isa) << " " << x[i];
    for (std::size_t i = 8; i < 11; ++i)
      EXPECT_TRUE(std::isnan(got[i])) << isa_name(isa) << " " << i;
  }
}

}  // namespace
}  // namespace posenc
#endif
