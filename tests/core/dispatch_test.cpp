// SPDX-License-Identifier: Apache-2.0
// The index into Highway's tables: each instruction set runs its own code.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/dispatch_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::HWY_NAMESPACE {
long long target() {
  return HWY_TARGET;
}
}  // namespace posenc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <set>

#include "core/isa_table.h"

namespace posenc {
namespace {

HWY_EXPORT(target);

TEST(Dispatch, EachInstructionSetHasItsOwnCode) {
  std::set<long long> seen;
  for (const Isa isa : supported_isas()) {
    const auto function = isa_entry(HWY_DISPATCH_TABLE(target), isa);
    ASSERT_NE(function, nullptr) << isa_name(isa);
    const long long t = function();
    EXPECT_TRUE(seen.insert(t).second) << isa_name(isa);
    switch (isa) {
      case Isa::scalar:
        EXPECT_TRUE(t == HWY_SCALAR || t == HWY_EMU128);
        break;
      case Isa::ssse3:
        EXPECT_EQ(t, HWY_SSSE3);
        break;
      case Isa::sse4:
        EXPECT_EQ(t, HWY_SSE4);
        break;
      case Isa::avx2:
        EXPECT_EQ(t, HWY_AVX2);
        break;
      case Isa::avx512:
        EXPECT_TRUE(t == HWY_AVX3 || t == HWY_AVX3_DL);
        break;
      case Isa::neon:
        EXPECT_EQ(t, HWY_NEON);
        break;
      case Isa::sve:
        EXPECT_TRUE(t == HWY_SVE || t == HWY_SVE_256);
        break;
      case Isa::sve2:
        EXPECT_TRUE(t == HWY_SVE2 || t == HWY_SVE2_128);
        break;
    }
  }
  EXPECT_EQ(seen.size(), supported_isas().size());
}

}  // namespace
}  // namespace posenc
#endif
