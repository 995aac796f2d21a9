// SPDX-License-Identifier: Apache-2.0
// ggml's q8_0 blocks in every instruction set.
#include "kernels/q8_0.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/convert.h"
#include "support/random.h"

namespace posenc {
namespace {

// 0x2c00 is 2^-4: bytes 0, 1, -1, 127, -128 are 0, 0.0625, -0.0625, 7.9375, -8 (by hand).
TEST(Q8, ReadsBlocks) {
  std::vector<std::byte> blocks(2 * 34);
  for (int b = 0; b < 2; ++b) {
    const std::uint16_t scale = b == 0 ? 0x2c00 : 0x8001;  // -2^-24, subnormal
    std::memcpy(&blocks[static_cast<std::size_t>(34 * b)], &scale, 2);
    const std::int8_t q[] = {0, 1, -1, 127, -128};
    std::memcpy(&blocks[static_cast<std::size_t>(34 * b + 2)], q, 5);
  }
  for (const Isa isa : supported_isas()) {
    std::vector<float> x(64, -1);
    detail::q8_kernels(isa).read(blocks.data(), 2, x.data());
    const std::vector<float> want{0, 0.0625f, -0.0625f, 7.9375f, -8};
    EXPECT_TRUE(std::equal(want.begin(), want.end(), x.begin())) << isa_name(isa);
    EXPECT_EQ(x[5], 0);
    EXPECT_EQ(x[35], -127 * 0x1p-24f) << isa_name(isa);
  }
}

// Within half a scale, the largest number's bytes are +-127, and what was read is written back the same.
TEST(Q8, WritesToTheNearest) {
  constexpr Index kBlocks = 70;
  test::Random random(1);
  std::vector<float> x;
  for (Index b = 0; b < kBlocks; ++b)
    for (int i = 0; i < 32; ++i)
      x.push_back(static_cast<float>(std::ldexp(random.normal(), static_cast<int>(b % 20) - 8)));
  std::vector<std::byte> first;
  for (const Isa isa : supported_isas()) {
    const detail::Q8Kernels& k = detail::q8_kernels(isa);
    std::vector<std::byte> blocks(kBlocks * 34), again(kBlocks * 34);
    std::vector<float> back(x.size());
    k.write(x.data(), kBlocks, blocks.data());
    k.read(blocks.data(), kBlocks, back.data());
    for (std::size_t b = 0; b < kBlocks; ++b) {
      std::uint16_t bits;
      std::memcpy(&bits, &blocks[34 * b], 2);
      float most = 0;
      for (std::size_t i = 32 * b; i < 32 * b + 32; ++i) most = std::max(most, std::fabs(x[i]));
      EXPECT_EQ(bits, f16_from(most / 127.0f)) << b;
      for (std::size_t i = 32 * b; i < 32 * b + 32; ++i)
        EXPECT_LE(std::fabs(back[i] - x[i]), f32_from_f16(bits) * 0.50001f) << isa_name(isa) << b;
    }
    k.write(back.data(), kBlocks, again.data());
    EXPECT_EQ(again, blocks) << isa_name(isa);
    if (first.empty()) first = blocks;
    EXPECT_EQ(first, blocks) << isa_name(isa);
  }
}

TEST(Q8, NothingFiniteComesOfNaNAndOverflow) {
  for (const Isa isa : supported_isas()) {
    const detail::Q8Kernels& k = detail::q8_kernels(isa);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 1e30f, 127 * 65520.0f}) {
      std::vector<float> x(64, 1.0f), back(64);
      x[7] = bad;
      std::vector<std::byte> blocks(68);
      k.write(x.data(), 2, blocks.data());
      k.read(blocks.data(), 2, back.data());
      for (std::size_t i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(back[i])) << isa_name(isa) << i;
      EXPECT_NEAR(back[40], 1, 1e-3);
    }
    std::vector<float> zero(32, 0.0f), back(32, 1.0f);
    std::vector<std::byte> blocks(34);
    k.write(zero.data(), 1, blocks.data());
    k.read(blocks.data(), 1, back.data());
    EXPECT_EQ(back, zero);
  }
}

}  // namespace
}  // namespace posenc
