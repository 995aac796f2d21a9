// SPDX-License-Identifier: Apache-2.0
// Offsets are 64-bit: a bfloat16 tensor of more than 2^31 elements.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

constexpr Index kHeads = 32, kDim = 128, kTokens = (Index{1} << 31) / (kHeads * kDim) + 16;
constexpr Index kRow = kHeads * kDim;

// MemAvailable of /proc/meminfo, or all of the memory.
double available_bytes() {
  double bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (std::FILE* f = std::fopen("/proc/meminfo", "r")) {
    char line[128];
    double kib = 0;
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, "MemAvailable: %lf kB", &kib) == 1) bytes = kib * 1024;
    std::fclose(f);
  }
  return bytes;
}

TEST(Large, CrossesTwoToTheThirtyOne) {
  const std::size_t bytes = static_cast<std::size_t>(kTokens * kRow) * 2;
  if (available_bytes() < static_cast<double>(bytes) * 1.2)
    GTEST_SKIP() << "needs " << (bytes >> 20) << " MiB and a fifth more";
  const std::unique_ptr<void, void (*)(void*)> memory(std::calloc(bytes, 1), std::free);
  ASSERT_NE(memory, nullptr);
  auto* x = static_cast<std::uint16_t*>(memory.get());
  const Index marked[] = {0, kTokens / 2, kTokens - 1};
  for (const Index t : marked)
    for (Index i = 0; i < kRow; ++i)
      x[t * kRow + i] = static_cast<std::uint16_t>(0x3f80 + (i * 7 + t) % 128);
  std::vector<Index> p(static_cast<std::size_t>(kTokens));
  for (Index t = 0; t < kTokens; ++t) p[static_cast<std::size_t>(t)] = 2 * t;
  std::vector<std::vector<std::uint16_t>> want;
  const RotaryPlan plan(resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split}),
                        DType::bf16);
  for (const Index t : marked) {
    want.emplace_back(x + t * kRow, x + (t + 1) * kRow);
    const Index shape[] = {1, kHeads, kDim}, at[] = {2 * t};
    plan.apply({heads(tensor(static_cast<void*>(want.back().data()), DType::bf16, shape),
                      HeadsLayout::thd),
                {}},
               positions(at));
  }
  const Index shape[] = {kTokens, kHeads, kDim};
  plan.apply({heads(tensor(static_cast<void*>(x), DType::bf16, shape), HeadsLayout::thd), {}},
             positions(std::span<const Index>(p)));
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(std::equal(want[i].begin(), want[i].end(), x + marked[i] * kRow)) << marked[i];
  for (const Index t : {Index{1}, kTokens / 2 + 1, kTokens - 2})
    for (Index i = 0; i < kRow; ++i) ASSERT_EQ(x[t * kRow + i] & 0x7fff, 0) << t;
}

}  // namespace
}  // namespace posenc
