// SPDX-License-Identifier: Apache-2.0
#include "relative/learned.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "posenc/relative/local_window.h"
#include "posenc/relative/xlnet.h"
#include "relative/call_inputs.h"
#include "relative/term_names.h"

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

constexpr detail::TermNames kNames{"toy", {{"first"}, {"left out", false}, {"last"}}};

TEST(TermNames, CountOnlyTheTermsThatAreThere) {
  EXPECT_EQ(kNames["first"], 0u);
  EXPECT_EQ(kNames["last"], 1u);
  EXPECT_THROW(kNames["left out"], std::logic_error);
  EXPECT_THROW(kNames["middle"], std::logic_error);
}

TEST(TermNames, AreAddedInTheirOrderOnly) {
  LoweredTerms out;
  out.add(LinearTerm{});  // of another scheme
  detail::NamedTerms terms(kNames, out);
  EXPECT_THROW(terms.add("last", DecayTerm{}), std::logic_error);
  terms.add("first", DecayTerm{});
  EXPECT_THROW(terms.add("first", DecayTerm{}), std::logic_error);
  terms.add("last", LinearTerm{});
  ASSERT_EQ(out.terms.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<LinearTerm>(out.terms[2]));
}

TEST(TermNames, FindTheGradientOfATerm) {
  const std::vector<double> rows{1, 2};
  std::vector<TermGradient> g(2);
  g[1].table = tensor(const_cast<double*>(rows.data()), {1, 1, 2, 1});
  const detail::TermGradients of(kNames, {.terms = g});
  EXPECT_EQ(of.table("last", {1, 1, 2, 1}), rows);
  EXPECT_EQ(of.table("first", {1, 1, 2, 1}), (std::vector<double>{0, 0})) << "empty: zeros";
  const detail::TermGradients few(kNames, {.terms = std::span(g).first(1)});
  EXPECT_THROW(few["last"], ArgumentError);
}

// query_segment, key_segment, query_class and key_class.
const XlNet kTokens{.d_model = 8, .segments = 2, .class_token = true};

TEST(CallInputs, AreFoundByName) {
  const std::vector<std::int32_t> n(6);
  std::vector<ConstTensorView> given(4);
  given[3] = tensor(n.data(), {2, 3});
  const detail::CallInputs inputs(kTokens, kShape, {.inputs = given});
  EXPECT_EQ(inputs["key_class"].data, n.data());
  EXPECT_EQ(inputs.shape("key_class"), (std::vector<Index>{2, 3}));
  EXPECT_TRUE(inputs["query_segment"].empty());
  EXPECT_THROW(inputs["hidden"], std::logic_error);
  try {
    (void)detail::CallInputs(kTokens, kShape, {.inputs = std::span(given).first(3)});
    ADD_FAILURE() << "too few arrays were accepted";
  } catch (const ArgumentError& e) {
    EXPECT_EQ(e.field(), "inputs");
    EXPECT_STREQ(e.what(),
                 "[xlnet] inputs must be query_segment, key_segment, query_class and key_class, "
                 "got 3");
  }
}

TEST(InputGradients, AreAddedInTheOrderOfTheInputs) {
  const std::vector<double> x(2);
  const std::vector<ConstTensorView> given{tensor(x.data(), {1, 2, 1}),
                                           tensor(x.data(), {1, 1, 1})};
  const detail::CallInputs inputs(
      "toy", {{"query", {kBatch, kQueries, 1}}, {"key", {kBatch, kKeys, 1}}}, given);
  detail::InputGradients to(inputs);
  to["key"] = {5};
  to["query"] = {3, 4};
  std::vector<double> query(2, 10), key(1, 10);
  const std::vector<TensorView> d{tensor(query.data(), {1, 2, 1}), tensor(key.data(), {1, 1, 1})};
  to.accumulate(d);
  EXPECT_THAT(query, ::testing::ElementsAre(13, 14));
  EXPECT_THAT(key, ::testing::ElementsAre(15));
  to.accumulate({});
  EXPECT_THROW(to.check(std::span(d).first(1)), ArgumentError);
  const std::vector<TensorView> swapped{d[1], d[0]};
  EXPECT_THROW(to.accumulate(swapped), ArgumentError);
  EXPECT_THAT(query, ::testing::ElementsAre(13, 14)) << "nothing is written";
}

}  // namespace
}  // namespace posenc
