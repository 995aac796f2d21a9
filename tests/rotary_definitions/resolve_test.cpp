// SPDX-License-Identifier: Apache-2.0
// The ways to write a definition with its scalings.
#include <gtest/gtest.h>

#include <vector>

#include "posenc/registry.h"

namespace posenc {
namespace {

Rope rope() {
  Rope r;
  r.head_dim = 64;
  r.pairing = Pairing::half_split;
  return r;
}

Yarn yarn() {
  Yarn y;
  y.factor = 4;
  y.original_context = 4096;
  return y;
}

TEST(Resolve, OneScalingAListAndARangeAreTheSame) {
  const RotarySpec expected = resolve(Encoding{rope(), {yarn()}});
  EXPECT_EQ(resolve(rope(), yarn()), expected);
  EXPECT_EQ(resolve(rope(), {yarn()}), expected);
  EXPECT_EQ(resolve(rope(), std::vector<Yarn>{yarn()}), expected);
  EXPECT_EQ(resolve(rope(), Scaling{yarn()}), expected);
  EXPECT_NE(resolve(rope()), expected);
}

TEST(Resolve, ScalingsActInOrder) {
  const RotarySpec expected = resolve(rope(), Linear{8});
  const RotarySpec twice = resolve(rope(), {Linear{2}, Linear{4}});
  ASSERT_EQ(twice.blocks.size(), 1u);
  EXPECT_EQ(twice.blocks[0].spectrum.frequency, expected.blocks[0].spectrum.frequency);
  EXPECT_EQ(resolve(rope(), {Scaling{Linear{2}}, Scaling{Linear{4}}}), twice);
}

TEST(Resolve, TheLengthReachesThePolicy) {
  Ntk ntk;
  ntk.factor = 2;
  ntk.formula = NtkFormula::alpha;
  EXPECT_EQ(resolve(rope(), ntk, {8192}), resolve(Encoding{rope(), {ntk}}, {8192}));
}

}  // namespace
}  // namespace posenc
