// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/array_shape.h"

#include <gtest/gtest.h>

#include <vector>

namespace posenc {
namespace {

TEST(ArrayShape, KeepsNumbersAndWhatTheyFollowFrom) {
  const AxisSize heads(8, "heads"), head_dim(64, "head_dim");
  ArrayShape s{heads * head_dim, 32, 2 * heads * 16, AxisSize(3) * 5};
  EXPECT_EQ(s, (std::vector<Index>{512, 32, 256, 15}));
  EXPECT_EQ(s.name(0), "heads * head_dim");
  EXPECT_EQ(s.name(1), "");
  EXPECT_EQ(s.name(2), "2 * heads * 16");
  EXPECT_EQ(s.name(3), "");  // a product of numbers is a number
  s.add_front(heads);
  s.drop_last();
  EXPECT_EQ(s, (std::vector<Index>{8, 512, 32, 256}));
  EXPECT_EQ(s.name(0), "heads");
  EXPECT_EQ(s.name(1), "heads * head_dim");
  EXPECT_EQ(s, (ArrayShape{8, 512, 32, 256})) << "names do not count";
  EXPECT_TRUE(ArrayShape().empty());
  EXPECT_EQ(ArrayShape(std::vector<Index>{2, 3}).name(1), "");
}

}  // namespace
}  // namespace posenc
