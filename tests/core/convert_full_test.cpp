// SPDX-License-Identifier: Apache-2.0
// All 2^32 floats.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>

#include "convert_reference.h"
#include "core/convert.h"

namespace posenc {
namespace {

TEST(ConvertFull, AllFloatsRoundToNearestEven) {
  const test::NarrowReference f16(test::kF16), bf16(test::kBF16);
  std::atomic<std::uint64_t> next{0}, checked{0}, wrong{0};
  std::atomic<std::uint32_t> example{0};
  const auto work = [&] {
    for (std::uint64_t block; (block = next.fetch_add(1)) < 4096;) {
      for (std::uint64_t i = block << 20; i < (block + 1) << 20; ++i) {
        const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
        const auto d = static_cast<double>(x);
        const std::uint16_t h = f16_from(x), b = bf16_from(x);
        if (!f16.is_right(d, h) || !bf16.is_right(d, b) || f16_from(d) != h || bf16_from(d) != b) {
          example = static_cast<std::uint32_t>(i);
          ++wrong;
        }
      }
      checked += 1u << 20;
    }
  };
  std::vector<std::thread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::thread& t : threads) t = std::thread(work);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(checked, std::uint64_t{1} << 32);
  EXPECT_EQ(wrong, 0u) << "such as pattern " << example;
}

}  // namespace
}  // namespace posenc
