// SPDX-License-Identifier: Apache-2.0
// Machines read memory in two ways: the same bits by both, for every split.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "core/access_pattern.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/plan.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using detail::AccessPattern;

constexpr Index kBatch = 3, kTokens = 75, kRows = 90;

class BothWays : public ::testing::TestWithParam<DType> {
 protected:
  void TearDown() override { detail::reset_access_pattern(); }
};

// y of tokens [begin, end) of each sequence, by a plan made for the pattern.
std::vector<std::uint16_t> composed(const LoweredInput& low, DType type, Index width,
                                    AccessPattern pattern, const std::vector<Index>& at,
                                    bool shared, Index begin, Index end) {
  detail::force_access_pattern(pattern);
  const InputPlan plan(low, type);
  const auto halves = static_cast<std::size_t>(size_of(type) / 2);
  std::vector<std::uint16_t> x(static_cast<std::size_t>(kBatch * kTokens * width) * halves);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<std::uint16_t>(0x3800 + i * 37 % 0x400);
  const Index token = width, shape[] = {kBatch, end - begin, width},
              stride[] = {kTokens * width, width, 1};
  const TensorView view =
      tensor(static_cast<void*>(x.data() + static_cast<std::size_t>(begin * token) * halves), type,
             shape, stride);
  std::vector<Index> part;
  for (Index b = 0; b < (shared ? 1 : kBatch); ++b)
    for (Index t = begin; t < end; ++t)
      part.push_back(at[static_cast<std::size_t>(b * kTokens + t)]);
  plan.apply(view, explicit_positions(part, shared ? 1 : kBatch), view, inline_executor());
  return x;
}

void expect_same_bits(DType type, Index width) {
  std::vector<double> values(static_cast<std::size_t>(kRows * width));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(i % 97) / 64 - 0.75;
  const ConstTensorView table = tensor(values.data(), {kRows, width});
  LoweredInput sines, halves, learned;
  Sinusoidal{.width = width}.lower({}, sines);
  Sinusoidal{.width = width, .layout = SineLayout::halves}.lower({}, halves);
  Learned{.width = width, .rows = kRows}.lower(std::span(&table, 1), learned);
  std::vector<Index> at;
  for (Index b = 0; b < kBatch; ++b)
    for (Index t = 0; t < kTokens; ++t) at.push_back(t + 5 * b);
  for (const LoweredInput* low : {&sines, &halves, &learned})
    for (const bool shared : {false, true}) {
      const auto all = [&](AccessPattern pattern, Index begin, Index end) {
        return composed(*low, type, width, pattern, at, shared, begin, end);
      };
      const auto whole = all(AccessPattern::sequential, 0, kTokens);
      EXPECT_EQ(whole, all(AccessPattern::interleave_pages, 0, kTokens)) << shared;
      // A part alone: what it meets is as in the whole, what lies around it is as it was.
      for (const AccessPattern pattern :
           {AccessPattern::sequential, AccessPattern::interleave_pages}) {
        const auto part = all(pattern, 13, 58), untouched = all(pattern, 0, 0);
        const auto row = static_cast<std::size_t>(width * size_of(type) / 2);
        for (std::size_t r = 0; r < part.size() / row; ++r) {
          const Index t = static_cast<Index>(r) % kTokens;
          const auto& want = t >= 13 && t < 58 ? whole : untouched;
          ASSERT_EQ(std::memcmp(&part[r * row], &want[r * row], row * 2), 0) << r;
        }
      }
    }
}

// Blocks of 1024 and 4096 channels: one whole and one begun, of each.
TEST_P(BothWays, SameBits) {
  expect_same_bits(GetParam(), 1100);
}
TEST_P(BothWays, SameBitsOfManyChannels) {
  expect_same_bits(GetParam(), 4500);
}

INSTANTIATE_TEST_SUITE_P(All, BothWays,
                         ::testing::Values(DType::f32, DType::bf16, DType::f16, DType::f64),
                         [](const auto& type) { return std::string(dtype_name(type.param)); });

TEST(AccessPattern, ComesFromTheEnvironmentOrIsRefused) {
  const char* before = std::getenv("POSENC_ACCESS_PATTERN");
  const std::string kept = before != nullptr ? before : "";
  const auto said = [](const char* text) {
    setenv("POSENC_ACCESS_PATTERN", text, 1);
    detail::reset_access_pattern();
    return detail::access_pattern();
  };
  EXPECT_EQ(said("sequential"), AccessPattern::sequential);
  EXPECT_EQ(said("interleave_pages"), AccessPattern::interleave_pages);
  EXPECT_EQ(test::refusal([&] { said("pages"); }),
            "[POSENC_ACCESS_PATTERN] must be sequential or interleave_pages, got \"pages\"");
  said("");
  if (before != nullptr)
    setenv("POSENC_ACCESS_PATTERN", kept.c_str(), 1);
  else
    unsetenv("POSENC_ACCESS_PATTERN");
  detail::reset_access_pattern();
}

}  // namespace
}  // namespace posenc
