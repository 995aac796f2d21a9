// SPDX-License-Identifier: Apache-2.0
// How posenc advise compares and ranks.
#include <gtest/gtest.h>

#include "report/advice/evidence.h"

namespace posenc::report {
namespace {

Comparison of(const char* metric, bool higher, std::vector<std::pair<std::string, double>> values) {
  Comparison c;
  c.metric = metric;
  c.higher_is_better = higher;
  for (auto& [scheme, value] : values) {
    Entry e;
    e.scheme = e.label = std::move(scheme);
    e.value = value;
    e.seeds = 3;
    c.entries.push_back(std::move(e));
  }
  return c;
}

std::vector<std::string> order(const std::vector<Comparison>& all) {
  std::vector<std::string> names;
  for (const Ranked& r : rank(all)) names.push_back(r.scheme);
  return names;
}

TEST(Advice, LowerPerplexityAndHigherAccuracyWin) {
  EXPECT_EQ(order({of("perplexity", false, {{"a", 20}, {"b", 18}, {"c", 25}})}),
            (std::vector<std::string>{"b", "a", "c"}));
  EXPECT_EQ(order({of("accuracy", true, {{"a", 0.8}, {"b", 0.9}, {"c", 0.95}})}),
            (std::vector<std::string>{"c", "b", "a"}));
  EXPECT_EQ(order({of("BLEU", true, {{"a", 26.5}, {"b", 29}})}),
            (std::vector<std::string>{"b", "a"}));
}

TEST(Advice, NoiseAndExplodedCurvesTie) {
  // 20.0 and 20.1 differ by less than a factor of e^0.01; 300 and 400 are both beyond e^0.5 of the best.
  const Comparison c = of("perplexity", false, {{"a", 20}, {"b", 20.1}, {"c", 300}, {"d", 400}});
  for (const Ranked& r : rank({c})) {
    EXPECT_EQ(r.tied, 1) << r.scheme;
    EXPECT_EQ(r.won, r.scheme < "c" ? 2 : 0) << r.scheme;
  }
}

TEST(Advice, FewComparisonsCountLess) {
  std::vector<Comparison> all{of("loss", false, {{"a", 1}, {"z", 2}})};
  for (int i = 0; i < 9; ++i) all.push_back(of("loss", false, {{"b", 1}, {"y", 2}}));
  EXPECT_EQ(order(all).front(), "b");
}

TEST(Advice, TheBestVariantOfASchemeCounts) {
  const auto ranked = rank({of("loss", false, {{"kerple", 1}, {"alibi", 1.5}, {"kerple", 2}})});
  EXPECT_EQ(ranked.front().scheme, "kerple");
  EXPECT_EQ(ranked.front().won, 1);
  EXPECT_EQ(ranked.front().numbers.size(), 2u);
  EXPECT_LT(rank({of("loss", false, {{"a", 1}})}).front().score(), 0);
}

TEST(Advice, TheLeastLengthThatReachesTheRatioIsRead) {
  LabRun run;
  run.task = "lm";
  run.label = run.scheme = "alibi";
  run.options = Json::object({{"train", Index{32}}});
  run.values = Json::object(
      {{"loss", Json::object({{"32", 1.0}, {"64", 2.0}, {"128", 3.0}, {"256", 4.0}})}});
  const auto value = [&](double ratio) {
    return compare_runs({run}, {ratio, "lm", false, false}).at(0).entries.at(0).value;
  };
  EXPECT_EQ(value(1.5), 2);
  EXPECT_EQ(value(2), 2);
  EXPECT_EQ(value(2.1), 3);
  EXPECT_EQ(value(100), 4);
}

}  // namespace
}  // namespace posenc::report
