// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/isa_table.h"

namespace posenc {
namespace {

class IsaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* text = std::getenv("POSENC_ISA")) environment_ = text;
    ::unsetenv("POSENC_ISA");
    reset_isa();
  }
  void TearDown() override {
    if (environment_)
      ::setenv("POSENC_ISA", environment_->c_str(), 1);
    else
      ::unsetenv("POSENC_ISA");
    enable_native_features(true);
    reset_isa();
  }

 private:
  std::optional<std::string> environment_;  // whoever runs the tests may have set it
};

Isa unsupported() {
  const auto list = supported_isas();
  for (int i = 0; i < 8; ++i)
    if (std::find(list.begin(), list.end(), static_cast<Isa>(i)) == list.end())
      return static_cast<Isa>(i);
  ADD_FAILURE() << "no machine has all";
  return Isa::scalar;
}

TEST_F(IsaTest, NamesGoBothWays) {
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(isa_from_name(isa_name(static_cast<Isa>(i))), static_cast<Isa>(i));
  EXPECT_THROW(isa_from_name("avx"), std::invalid_argument);
}

TEST_F(IsaTest, BestIsUsedUnlessForced) {
  const auto list = supported_isas();
  ASSERT_FALSE(list.empty());
  EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
  EXPECT_EQ(active_isa(), list.back());
  for (const Isa isa : list) {
    force_isa(isa);
    EXPECT_EQ(active_isa(), isa);
  }
  reset_isa();
  EXPECT_EQ(active_isa(), list.back());
}

TEST_F(IsaTest, EnvironmentChooses) {
  ::setenv("POSENC_ISA", std::string(isa_name(supported_isas().front())).c_str(), 1);
  reset_isa();
  EXPECT_EQ(active_isa(), supported_isas().front());
  force_isa(supported_isas().back());
  EXPECT_EQ(active_isa(), supported_isas().back()) << "code goes before the environment";
  ::setenv("POSENC_ISA", "", 1);
  reset_isa();
  EXPECT_EQ(active_isa(), supported_isas().back());
  for (const std::string& bad : {std::string("mmx"), std::string(isa_name(unsupported()))}) {
    ::setenv("POSENC_ISA", bad.c_str(), 1);
    reset_isa();
    EXPECT_THROW(active_isa(), std::invalid_argument);
  }
}

TEST_F(IsaTest, WhatTheMachineLacksIsRefused) {
  const Isa before = active_isa();
  EXPECT_THROW(force_isa(unsupported()), std::invalid_argument);
  EXPECT_THROW(isa_dispatch_index(unsupported()), std::invalid_argument);
  EXPECT_EQ(active_isa(), before);
}

TEST_F(IsaTest, NativeFeaturesCanBeSwitchedOff) {
  const auto features = native_features();
  const auto has = [](Isa isa) { return usable_features(isa).include({CpuFeature::avx512_bf16}); };
  const bool listed = std::find(features.begin(), features.end(), "avx512_bf16") != features.end();
  EXPECT_EQ(has(Isa::avx512), listed);
  EXPECT_FALSE(has(Isa::avx2));
  EXPECT_FALSE(has(Isa::scalar));
  enable_native_features(false);
  EXPECT_TRUE(native_features().empty());
  EXPECT_FALSE(has(Isa::avx512));
  enable_native_features(true);
  EXPECT_EQ(native_features(), features);
}

TEST_F(IsaTest, FeaturesAreASet) {
  constexpr CpuFeatures none, bf16{CpuFeature::avx512_bf16}, amx{CpuFeature::amx_bf16};
  constexpr CpuFeatures both{CpuFeature::avx512_bf16, CpuFeature::amx_bf16};
  EXPECT_TRUE(none.include(none));
  EXPECT_TRUE(both.include(none) && both.include(bf16) && both.include(amx) && both.include(both));
  EXPECT_FALSE(none.include(bf16));
  EXPECT_FALSE(bf16.include(amx));
  EXPECT_FALSE(amx.include(both));
}

TEST_F(IsaTest, TheFirstUsableEntryReplacesTheVectors) {
  const int vectors = 0, missing_feature = 1, always = 2, second = 3;
  const CpuFeatures both{CpuFeature::avx512_bf16, CpuFeature::amx_bf16};
  for (const Isa isa : supported_isas()) {
    EXPECT_EQ(&best_kernels<int>(vectors, {}, isa), &vectors);
    EXPECT_EQ(&best_kernels<int>(vectors, {{{}, nullptr}, {{}, &always}, {{}, &second}}, isa),
              &always);
    const bool has = usable_features(isa).include(both);
    EXPECT_EQ(&best_kernels<int>(vectors, {{both, &missing_feature}}, isa),
              has ? &missing_feature : &vectors);
  }
  enable_native_features(false);
  for (const Isa isa : supported_isas())
    EXPECT_EQ(&best_kernels<int>(vectors, {{both, &missing_feature}}, isa), &vectors);
}

}  // namespace
}  // namespace posenc
