// SPDX-License-Identifier: Apache-2.0
// The limit of multiply-adds that `posenc bench` prints. No time of a machine is known here, but a chain of scalar sums
// is: each waits for the one before, so it does one operation a latency (2 to 6 cycles on every processor), whatever
// the frequency is and whoever else uses the core.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "core/convert.h"
#include "lines/limits.h"
#include "posenc/core/isa.h"

namespace posenc::bench {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Operations a second of a chain: x + a + a + ...
double chained_sums_per_second() {
  constexpr int kCount = 200000;
  volatile float start = 1, more = 1e-6f, sink = 0;
  double best = 1e30;
  for (int sample = 0; sample < 10; ++sample) {
    const double from = seconds_now();
    float x = start;
    const float a = more;
    for (int i = 0; i < kCount; ++i) {
      x += a;
      // One after the other: neither the compiler nor vectors may add in another order.
#if defined(__x86_64__)
      asm volatile("" : "+x"(x));
#elif defined(__aarch64__)
      asm volatile("" : "+w"(x));
#endif
    }
    sink = x;
    best = std::min(best, seconds_now() - from);
  }
  (void)sink;
  return kCount / best;
}

TEST(Limits, MultiplyAddsOfEachInstructionSetArePlausible) {
  const std::vector<MultiplyAdds> all = multiply_adds();
  ASSERT_FALSE(all.empty());
  double before = 0;
  for (const MultiplyAdds& m : all) {
    SCOPED_TRACE(m.isa);
    EXPECT_GE(m.floats, 1u);
    // In turns, the best of several: another program slows both.
    double ratio = 0;
    for (int turn = 0; turn < 3; ++turn)
      ratio = std::max(ratio, multiply_adds_per_second(m, 0.01) / chained_sums_per_second());
    const double lanes = static_cast<double>(m.floats);
    // A unit that starts a vector each second cycle, two operations a lane, a latency of 2 cycles: 2. Four units that
    // start one each cycle, a latency of 6: 48. What calls a function of libm a lane is below 1 for any vector.
    EXPECT_GE(ratio, 2 * lanes);
    EXPECT_LE(ratio, 48 * lanes);
    EXPECT_GE(ratio, before / 2) << "a better instruction set does not halve it";
    before = ratio;
  }
}

TEST(Limits, SumsAreThoseOfEveryInstructionSet) {
  // Each of 12 numbers a lane goes from x to 0.999999 x + 1e-6, which keeps it near 1.
  for (const MultiplyAdds& m : multiply_adds())
    for (const auto sums : {m.f32, m.f64}) {
      const double lanes =
          static_cast<double>(sums == m.f32 ? m.floats : std::max<std::size_t>(m.floats / 2, 1));
      EXPECT_NEAR(sums(1000, 1) / (12 * lanes), 1.0055, 1e-3) << m.isa;
    }
}

// Each instruction set in turn is the one in use.
class LoopsOf : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { reset_isa(); }
};
INSTANTIATE_TEST_SUITE_P(Isas, LoopsOf, testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

TEST_P(LoopsOf, MultiplyAddsAreThoseInUse) {
  if (multiply_adds().back().isa == "best") GTEST_SKIP() << "a shared library shows one alone";
  EXPECT_EQ(multiply_adds_in_use().isa, isa_name(GetParam()));
}

TEST_P(LoopsOf, EveryElementIsMoved) {
  constexpr std::size_t kCount = 192;  // 12 lines of memory
  const PlainLoops& loops = plain_loops();
  const SharedBuffer from = buffer(4 * kCount + 8192), to = buffer(4 * kCount);
  float *x = from->as<float>(), *y = to->as<float>();
  const auto number = [](std::size_t i) { return static_cast<float>(i) + 0.5f; };
  for (std::size_t i = 0; i < kCount; ++i) x[i] = number(i);
  EXPECT_EQ(loops.read(x, kCount), kCount * kCount / 2.0f);
  EXPECT_EQ(loops.read_ahead(x, kCount), kCount * kCount / 2.0f);
  for (const Copy copy : {loops.copy, loops.copy_streaming}) {
    std::fill(y, y + kCount, 0.0f);
    copy(y, x, kCount);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_FLOAT_EQ(y[i], number(i)) << i;
  }
  for (const Fill fill : {loops.fill, loops.fill_streaming}) {
    std::fill(y, y + kCount, 0.0f);
    fill(y, kCount, 3);
    for (std::size_t i = 0; i < kCount; ++i) EXPECT_NEAR(y[i], 3.5f, 0.5f) << i;
  }
  loops.scale_in_place(x, kCount, 2);
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(x[i], 2 * number(i)) << i;
}

// Two tokens of two heads, turned by angles whose cosines and sines are 0.6 and 0.8, and the other way round.
TEST_P(LoopsOf, RotationsTurnHalvesOfHeads) {
  constexpr std::size_t kDim = 128, kTokens = 2, kHeads = 2, kCount = kTokens * kHeads * kDim;
  std::vector<float> cos(kTokens * kDim / 2), sin(cos.size()), x(kCount), expected(kCount);
  for (std::size_t i = 0; i < cos.size(); ++i)
    cos[i] = i % 2 ? 0.6f : 0.8f, sin[i] = i % 2 ? 0.8f : 0.6f;
  for (std::size_t n = 0; n < kCount; ++n) x[n] = static_cast<float>(n % 29) - 11;
  for (std::size_t row = 0; row < kTokens * kHeads; ++row)
    for (std::size_t i = 0; i < kDim / 2; ++i) {
      const std::size_t low = row * kDim + i, high = low + kDim / 2;
      const float c = cos[row / kHeads * kDim / 2 + i], s = sin[row / kHeads * kDim / 2 + i];
      expected[low] = c * x[low] - s * x[high];
      expected[high] = s * x[low] + c * x[high];
    }
  const PlainLoops& loops = plain_loops();
  std::vector<float> f32 = x;
  loops.rotation_f32(f32.data(), kTokens, kHeads, cos.data(), sin.data());
  for (std::size_t n = 0; n < kCount; ++n) EXPECT_NEAR(f32[n], expected[n], 1e-5) << n;

  std::vector<float> token = x;  // heads 0 and 1 of token 0 as a query and a key
  loops.token_rotation(token.data(), 1, token.data() + kDim, 1, kDim / 2, cos.data(), sin.data());
  for (std::size_t n = 0; n < 2 * kDim; ++n) EXPECT_NEAR(token[n], expected[n], 1e-5) << n;

  const auto sixteen_bits = [&](Rotation<std::uint16_t> rotate, auto narrow, auto widen,
                                double relative) {
    std::vector<std::uint16_t> bits(kCount);
    for (std::size_t n = 0; n < kCount; ++n) bits[n] = narrow(x[n]);
    rotate(bits.data(), kTokens, kHeads, cos.data(), sin.data());
    for (std::size_t n = 0; n < kCount; ++n)
      EXPECT_NEAR(widen(bits[n]), expected[n], 26 * relative) << n;
  };
  const auto to_bf16 = [](float v) { return bf16_from(v); };
  const auto to_f16 = [](float v) { return f16_from(v); };
  sixteen_bits(loops.rotation_bf16, to_bf16, f32_from_bf16, 1.0 / 256);
  if (loops.rotation_f16) sixteen_bits(loops.rotation_f16, to_f16, f32_from_f16, 1.0 / 2048);
  if (GetParam() == Isa::avx2 || GetParam() == Isa::avx512) {
    EXPECT_NE(loops.rotation_f16, nullptr);
  }
}

// Numbers do not wait for each other: even one at a time they are at least as quick as a chain, a call of a function a
// number is not. (Vectors of four reach 4 to 7, of eight 7 to 13, of sixteen 24, beside other programs.)
TEST_P(LoopsOf, ScalingIsAtLeastAsQuickAsAChain) {
  constexpr std::size_t kCount = 2048;  // in the first cache
  const SharedBuffer numbers = buffer(4 * kCount);
  double ratio = 0;
  for (int turn = 0; turn < 5; ++turn) {
    double best = 1e30;
    for (int sample = 0; sample < 20; ++sample) {
      const double from = seconds_now();
      for (int n = 0; n < 20; ++n)
        plain_loops().scale_in_place(numbers->as<float>(), kCount, 1.0000001f);
      best = std::min(best, seconds_now() - from);
    }
    ratio = std::max(ratio, 20 * kCount / best / chained_sums_per_second());
  }
  EXPECT_GE(ratio, 1);
}

}  // namespace
}  // namespace posenc::bench
