// SPDX-License-Identifier: Apache-2.0
// The limit of multiply-adds that `posenc bench` prints. No time of a machine is known here, but a chain of scalar sums
// is: each waits for the one before, so it does one operation a latency (2 to 6 cycles on every processor), whatever
// the frequency is and whoever else uses the core.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "lines/limits.h"

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

}  // namespace
}  // namespace posenc::bench
