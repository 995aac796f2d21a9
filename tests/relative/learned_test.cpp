// SPDX-License-Identifier: Apache-2.0
#include "relative/learned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "posenc/relative/local_window.h"

namespace posenc {
namespace {

const LocalWindow kScheme{.window = 1};  // near [heads, 3], far [heads]
const ScoreShape kShape{.heads = 2, .head_dim = 4};

TEST(LearnedValues, AreFoundByNameInAnyOrder) {
  const std::vector<float> near{1, 2, 3, 4, 5, 6};
  const std::vector<double> far{7, 8};
  const std::vector<ConstTensorView> given{tensor(near.data(), {2, 3}), tensor(far.data(), {2})};
  const detail::LearnedValues value(kScheme, kShape, given);
  EXPECT_EQ(value["far"], far);
  EXPECT_EQ(value["near"], (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(value.shape("near"), (std::vector<Index>{2, 3}));
  EXPECT_TRUE(value.has("near"));
  EXPECT_FALSE(value.has("middle"));
  EXPECT_TRUE(value.if_any("middle").empty());
  EXPECT_EQ(value.if_any("far"), far);
  EXPECT_THROW(value["middle"], std::logic_error);
  EXPECT_THROW(detail::LearnedValues(kScheme, kShape, std::span(given).first(1)), ArgumentError);
  try {
    const std::vector<ConstTensorView> swapped{given[1], given[0]};
    (void)detail::LearnedValues(kScheme, kShape, swapped)["near"];
    ADD_FAILURE() << "an array of another shape was read";
  } catch (const ArgumentError& e) {
    EXPECT_EQ(e.field(), "near");
    EXPECT_EQ(e.who(), "local_window");
  }
}

TEST(LearnedGradients, AreAddedInTheOrderOfTheParameters) {
  const std::vector<double> numbers(6, 1);
  const std::vector<ConstTensorView> given{tensor(numbers.data(), {2, 3}),
                                           tensor(numbers.data(), {2})};
  detail::LearnedGradients to(detail::LearnedValues(kScheme, kShape, given));
  to["far"] = {3, 4};  // near stays zeros
  std::vector<double> near(6, 10), far(2, 10);
  const std::vector<TensorView> d{tensor(near.data(), {2, 3}), tensor(far.data(), {2})};
  to.accumulate(d);
  EXPECT_EQ(near, std::vector<double>(6, 10));
  EXPECT_THAT(far, ::testing::ElementsAre(13, 14));
  EXPECT_THROW(to["middle"], std::logic_error);
  const std::vector<TensorView> swapped{d[1], d[0]};
  EXPECT_THROW(to.check(swapped), ArgumentError);
  EXPECT_THROW(to.accumulate(swapped), ArgumentError);
  EXPECT_THAT(far, ::testing::ElementsAre(13, 14)) << "nothing is written";
}

}  // namespace
}  // namespace posenc
