// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/distance_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/positions/sequence.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

const support::Suite& engines() {
  static const support::Suite suite("rotary_engines");
  return suite;
}
Integers positions_to(Index n) {
  return std::get<Integers>(arange(0, n).value);
}

void expect_distances(const std::string& name, const DistanceMap& map, const Integers& p) {
  SCOPED_TRACE(name);
  const auto want = engines()(name, "distance");
  const Index n = static_cast<Index>(p.size());
  ASSERT_EQ(want.dim(0), n);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j <= i; ++j)
      EXPECT_EQ(mapped_distance(map, p, p, i, j), want.value[static_cast<std::size_t>(i * n + j)])
          << i << " " << j;
}

TEST(DistanceMap, SelfExtendAsPublished) {
  const Integers p30 = positions_to(30), p20 = positions_to(20), p6 = positions_to(6);
  expect_distances("paper_self_extend", self_extend(p30, p30, 8, 4, SelfExtendRatio::real), p30);
  expect_distances("paper_self_extend", self_extend(p30, p30, 8, 4, SelfExtendRatio::floored), p30);
  expect_distances("paper_self_extend_real_ratio",
                   self_extend(p20, p20, 6, 4, SelfExtendRatio::real), p20);
  expect_distances("paper_self_extend_short", self_extend(p6, p6, 8, 4, SelfExtendRatio::real), p6);
}

TEST(DistanceMap, SelfExtendOfThePaper) {
  // reference/rotary.md section 9: window 512, group 4.
  const Integers q{600, 16383}, k{88, 0};
  const DistanceMap map = self_extend(q, k, 512, 4, SelfExtendRatio::floored);
  EXPECT_EQ(mapped_distance(map, q, k, 0, 0), 512);
  EXPECT_EQ(mapped_distance(map, q, k, 1, 1), 4479);
  const Integers near{100}, key{99};
  EXPECT_EQ(
      mapped_distance(self_extend(near, key, 6, 4, SelfExtendRatio::floored), near, key, 0, 0), 1);
}

TEST(DistanceMap, DualChunkOfItsAuthors) {
  const Integers p = positions_to(33);
  expect_distances("paper_dual_chunk", dual_chunk(p, p, {12, 2}), p);
}

// The five rotated queries of vLLM: turned by our positions, half-split, base 10000.
TEST(DistanceMap, DualChunkQueriesOfVllm) {
  const std::string name = "vllm_dual_chunk";
  const Integers p = engines()(name, "positions").integers();
  const auto q = engines()(name, "q"), k = engines()(name, "k");
  const auto q_out = engines()(name, "q_out_f64"), k_out = engines()(name, "k_out_f64");
  const DualChunkPositions d = dual_chunk_positions(p, {16, 4});
  const auto turned = [&](const std::vector<double>& x, std::size_t row, std::size_t c,
                          double position) {
    const std::size_t head = c / 16 * 16, i = c % 16, pair = i % 8;
    const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(pair) / 16);
    const double a = x[row * 32 + head + pair], b = x[row * 32 + head + pair + 8];
    return i < 8 ? a * std::cos(angle) - b * std::sin(angle)
                 : a * std::sin(angle) + b * std::cos(angle);
  };
  const OwnedPositions* order[] = {&d.intra, &d.successive, &d.inter, &d.successive_critical,
                                   &d.inter_critical};
  for (std::size_t t = 0; t < p.size(); ++t)
    for (std::size_t c = 0; c < 32; ++c) {
      const auto i = static_cast<Index>(t);
      EXPECT_NEAR(k_out.value[t * 32 + c], turned(k.value, t, c, position_at(d.key, 0, 0, i)),
                  1e-12);
      for (std::size_t copy = 0; copy < 5; ++copy)
        EXPECT_NEAR(q_out.value[t * 160 + copy * 32 + c],
                    turned(q.value, t, c, position_at(*order[copy], 0, 0, i)), 1e-12)
            << "token " << t << " copy " << copy;
    }
}

TEST(DistanceMap, ReRopeClampsAndTheLeakyOneSlows) {
  const Integers q{16384, 600}, k{0, 599};
  const DistanceMap clamp = rerope(q, k, 512);
  EXPECT_EQ(mapped_distance(clamp, q, k, 0, 0), 512);
  EXPECT_EQ(mapped_distance(clamp, q, k, 1, 1), 1);
  const DistanceMap leaky = leaky_rerope(q, k, 512, 16);
  EXPECT_EQ(mapped_distance(leaky, q, k, 0, 0), 1504);
  EXPECT_EQ(mapped_distance(leaky, q, k, 1, 1), 1);
}

TEST(DistanceMap, EveryPairLiesInOneRegion) {
  const Integers p = positions_to(64);
  const DistanceMap maps[] = {self_extend(p, p, 8, 4, SelfExtendRatio::floored), rerope(p, p, 8),
                              leaky_rerope(p, p, 8, 4), dual_chunk(p, p, {16, 4})};
  for (const DistanceMap& map : maps)
    for (const Index i : p)
      for (const Index j : p) {
        int held = 0;
        for (const DistanceRegion& r : map) held += r.contains(i, j) ? 1 : 0;
        EXPECT_EQ(held, 1);
      }
}

TEST(DistanceMap, FarAndNegativePositions) {
  const Integers q{Index{1} << 37, -5}, k{0, -kUnbounded};
  const DistanceMap map = self_extend(q, k, 8, 4, SelfExtendRatio::floored);
  EXPECT_EQ(mapped_distance(map, q, k, 0, 0), std::ldexp(1.0, 35) + 6);
  EXPECT_TRUE(map[1].contains(kUnbounded, -kUnbounded));
  const Integers negative{-5};
  EXPECT_EQ(integer_position_at(
                self_extend(negative, negative, 8, 4, SelfExtendRatio::floored)[1].key, 0, 0, 0),
            -2);
}

TEST(DistanceMap, BadRulesAreRefused) {
  const Integers p{1}, negative{-1};
  EXPECT_THAT(refusal([&] { self_extend(p, p, 0, 4, SelfExtendRatio::real); }),
              HasSubstr("[self_extend] window"));
  EXPECT_THAT(refusal([&] { self_extend(p, p, 4, 0, SelfExtendRatio::real); }),
              HasSubstr("[self_extend] group"));
  EXPECT_THAT(refusal([&] { rerope(p, p, -1); }), HasSubstr("[rerope] window"));
  EXPECT_THAT(refusal([&] { leaky_rerope(p, p, 4, 0.5); }), HasSubstr("[leaky_rerope] factor"));
  EXPECT_THAT(refusal([&] { leaky_rerope(p, p, 4, NAN); }), HasSubstr("[leaky_rerope] factor"));
  EXPECT_THAT(refusal([&] { dual_chunk(p, p, {4, 4}); }), HasSubstr("[dual_chunk] chunk_size"));
  EXPECT_THAT(refusal([&] { dual_chunk(p, p, {4, -1}); }), HasSubstr("[dual_chunk] local_size"));
  EXPECT_THAT(refusal([&] { dual_chunk(negative, p, {4, 1}); }), HasSubstr("not be negative"));
  EXPECT_THAT(refusal([&] { mapped_distance({}, p, p, 0, 0); }), HasSubstr("[distance_map]"));
  EXPECT_THAT(refusal([&] { mapped_distance(rerope(p, p, 4), p, p, 1, 0); }),
              HasSubstr("[distance_map]"));
}

}  // namespace
}  // namespace posenc
