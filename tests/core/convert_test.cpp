// SPDX-License-Identifier: Apache-2.0
#include "core/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "convert_reference.h"
#include "support/random.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace posenc {
namespace {

using test::kBF16;
using test::kF16;
using test::NarrowReference;

static_assert(f16_from(1.0f) == 0x3c00 && f16_from(65504.0) == 0x7bff);
static_assert(bf16_from(1.0) == 0x3f80 && bf16_from(-2.0f) == 0xc000);
static_assert(f32_from_f16(0x0001) == 0x1p-24f && f32_from_bf16(0x0001) == 0x1p-133f);

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(Convert, WideningIsExactForAllPatterns) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<std::uint16_t>(i);
    const double sign = h & 0x8000 ? -1 : 1;
    const auto magnitude = static_cast<std::uint16_t>(h & 0x7fff);
    const float from_f16 = f32_from_f16(h), from_bf16 = f32_from_bf16(h);
    EXPECT_EQ(std::signbit(from_f16), sign < 0);
    EXPECT_EQ(std::signbit(from_bf16), sign < 0);
    if (magnitude < kF16.infinity()) {
      EXPECT_EQ(static_cast<double>(from_f16), sign * kF16.value(magnitude)) << i;
    } else {
      EXPECT_EQ(std::isnan(from_f16), magnitude > kF16.infinity()) << i;
      EXPECT_EQ(std::isinf(from_f16), magnitude == kF16.infinity()) << i;
    }
    if (magnitude < kBF16.infinity()) {
      EXPECT_EQ(static_cast<double>(from_bf16), sign * kBF16.value(magnitude)) << i;
    } else {
      EXPECT_EQ(std::isnan(from_bf16), magnitude > kBF16.infinity()) << i;
      EXPECT_EQ(std::isinf(from_bf16), magnitude == kBF16.infinity()) << i;
    }
  }
}

TEST(Convert, NarrowingUndoesWidening) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<std::uint16_t>(i);
    const auto quiet = [&](std::uint16_t infinity, int fraction) {
      return static_cast<std::uint16_t>((h & 0x7fff) > infinity ? h | 1 << (fraction - 1) : h);
    };
    EXPECT_EQ(f16_from(f32_from_f16(h)), quiet(0x7c00, 10)) << i;
    EXPECT_EQ(bf16_from(f32_from_bf16(h)), quiet(0x7f80, 7)) << i;
    EXPECT_EQ(f16_from(static_cast<double>(f32_from_f16(h))), quiet(0x7c00, 10)) << i;
    EXPECT_EQ(bf16_from(static_cast<double>(f32_from_bf16(h))), quiet(0x7f80, 7)) << i;
  }
}

// Every upper half with lower halves around all places where a format may round.
TEST(Convert, NarrowingFloatsRoundsToNearestEven) {
  const NarrowReference f16(kF16), bf16(kBF16);
  std::vector<std::uint32_t> lower;
  for (std::uint32_t point = 0; point < 0x10000; point += 0x1000)
    for (const int d : {-2, -1, 0, 1, 2})
      lower.push_back((point + static_cast<std::uint32_t>(d)) & 0xffffu);
  for (std::uint32_t upper = 0; upper < 65536; ++upper)
    for (const std::uint32_t low : lower) {
      const float x = float_of(upper << 16 | low);
      const auto d = static_cast<double>(x);
      ASSERT_TRUE(f16.is_right(d, f16_from(x))) << std::hexfloat << x;
      ASSERT_TRUE(bf16.is_right(d, bf16_from(x))) << std::hexfloat << x;
      ASSERT_EQ(f16_from(d), f16_from(x)) << std::hexfloat << x;
      ASSERT_EQ(bf16_from(d), bf16_from(x)) << std::hexfloat << x;
      ASSERT_EQ(narrow_float<BinaryBF16>(x), bf16_from(x)) << std::hexfloat << x;
    }
}

// A double a hair beside a midpoint: rounding by way of float would take it for the midpoint.
TEST(Convert, NarrowingDoublesRoundsOnce) {
  const auto check = [](test::Format format, auto narrow) {
    const NarrowReference reference(format);
    std::size_t differ = 0;
    for (std::uint16_t i = 0; i < format.infinity(); ++i) {
      const double middle = (reference.value(i) + reference.value(i + 1u)) / 2;
      for (const double x : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, HUGE_VAL),
                             middle * (1 + 0x1p-30), middle * (1 - 0x1p-30), middle * 1.01}) {
        ASSERT_TRUE(reference.is_right(x, narrow(x))) << std::hexfloat << x;
        ASSERT_TRUE(reference.is_right(-x, narrow(-x))) << std::hexfloat << -x;
        differ += narrow(x) != narrow(static_cast<double>(static_cast<float>(x)));
      }
    }
    EXPECT_GT(differ, 10000u) << "the inputs must tell one rounding from two";
    test::Random random(3);
    for (int i = 0; i < 300000; ++i) {
      const double x = std::bit_cast<double>(random.bits());
      ASSERT_TRUE(reference.is_right(x, narrow(x))) << std::hexfloat << x;
      const double y =
          std::ldexp(random.uniform(1, 2), static_cast<int>(random.integer(-140, 130)));
      ASSERT_TRUE(reference.is_right(y, narrow(y))) << std::hexfloat << y;
    }
    for (const double x :
         {0.0, -0.0, 5e-324, 1e300, -1e300, HUGE_VAL, -HUGE_VAL,
          std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::quiet_NaN(),
          std::numeric_limits<double>::signaling_NaN(), std::bit_cast<double>(0x7ff0000000000001u),
          0x1p-1022})
      ASSERT_TRUE(reference.is_right(x, narrow(x))) << std::hexfloat << x;
  };
  check(kF16, [](double x) { return f16_from(x); });
  check(kBF16, [](double x) { return bf16_from(x); });
}

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) std::uint16_t hardware_narrow(float x) {
  return static_cast<std::uint16_t>(
      _mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT)));
}
__attribute__((target("avx2,f16c"))) std::uint32_t hardware_widen(std::uint16_t h) {
  return std::bit_cast<std::uint32_t>(_mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))));
}

TEST(Convert, AgreesWithTheProcessor) {
  if (!__builtin_cpu_supports("avx2")) return;  // every processor with AVX2 has F16C
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<std::uint16_t>(i);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(f32_from_f16(h)), hardware_widen(h)) << i;
  }
  test::Random random(4);
  for (int i = 0; i < 3000000; ++i) {
    const float x = float_of(static_cast<std::uint32_t>(random.bits()));
    ASSERT_EQ(f16_from(x), hardware_narrow(x)) << std::hexfloat << x;
  }
}
#endif

}  // namespace
}  // namespace posenc
