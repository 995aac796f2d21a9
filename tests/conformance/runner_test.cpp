// SPDX-License-Identifier: Apache-2.0
// The runner's own rules: outcomes, tolerances, slices, axes, maps, filters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "conformance/runner/axes.h"
#include "conformance/runner/check.h"
#include "conformance/runner/rule.h"
#include "conformance/runner/runner.h"
#include "posenc/core/error.h"
#include "support/temporary_directory.h"

namespace posenc::conformance {
namespace {

using ::testing::HasSubstr;

Array f64(std::vector<Index> shape, const std::vector<double>& values) {
  Array a = make_array(DType::f64, std::move(shape));
  std::memcpy(a.bytes.data(), values.data(), 8 * values.size());
  return a;
}

// A suite of one case: x [4] = 1 2 3 4 at positions 0 and 5, turned by hand.
class OneCase : public ::testing::Test {
 protected:
  void SetUp() override {
    arrays_["x"] = f64({2, 1, 2}, {1, 0, 1, 0});
    arrays_["out"] = f64({2, 1, 2}, {1, 0, std::cos(5.0), std::sin(5.0)});
  }
  Json run(const std::string& fields, const Options& options = {}) {
    std::ofstream(dir_ / "cases.json")
        << R"({"suite": "mine", "cases": [{"name": "a", "inputs": {"x": "x"},
              "outputs": {"out": "out"}, "params": {"k": {"n": 3}},)"
        << fields << "}]}";
    write_safetensors(dir_ / "arrays.safetensors", arrays_);
    const Json report = run_suites({dir_.path()}, options);
    const Json& cases = report.at("suites").as_array().at(0).at("cases");
    return cases.as_array().empty() ? Json() : cases.as_array().at(0);
  }
  static std::string outcome(const Json& c) { return c.at("outcome").as_string(); }
  static std::string reason(const Json& c) { return c.at("reason").as_string(); }

  const std::string rotate_ =
      R"({"op": "rotate", "scheme": "rope head_dim=2 pairing=interleaved", "positions": [0, 5],
          "in": {"q": "x"}, "out": {"q": "out"})";
  const std::string tight_ = R"("tolerance": {"abs": 1e-12, "rel": 0})";
  test::TemporaryDirectory dir_;
  Arrays arrays_;
};

TEST_F(OneCase, Passes) {
  const Json c = run(tight_ + ", \"posenc\": [" + rotate_ + "}]");
  EXPECT_EQ(outcome(c), "pass") << reason(c);
  EXPECT_EQ(c.at("checks").as_array().at(0).at("op").as_string(), "rotate");
}

TEST_F(OneCase, FailsWithTheElementThatIsFurthestOff) {
  arrays_["out"] = f64({2, 1, 2}, {1, 0, std::cos(5.0), std::sin(5.0) + 1e-6});
  const Json c = run(tight_ + ", \"posenc\": [" + rotate_ + "}]");
  EXPECT_EQ(outcome(c), "fail");
  const Json& worst = c.at("checks").as_array().at(0).at("worst");
  EXPECT_EQ(worst.at("array").as_string(), "out");
  EXPECT_EQ(worst.at("index").dump(), "[1, 0, 1]");
  EXPECT_DOUBLE_EQ(worst.at("allowed").as_number(), 1e-12);
}

TEST_F(OneCase, NanNeverPasses) {
  arrays_["out"] = f64({2, 1, 2}, {1, 0, std::nan(""), 0});
  const Json c = run(R"("tolerance": {"abs": 1e300, "rel": 1}, "posenc": [)" + rotate_ + "}]");
  EXPECT_EQ(outcome(c), "fail");
}

TEST_F(OneCase, WithoutTheFieldItIsNotExpressible) {
  const Json c = run(tight_);
  EXPECT_EQ(outcome(c), "not_expressible");
  EXPECT_EQ(reason(c), "no operation given");
}

TEST_F(OneCase, UnknownOperation) {
  const Json c = run(tight_ + R"(, "posenc": [{"op": "fold"}])");
  EXPECT_EQ(outcome(c), "not_expressible");
  EXPECT_THAT(reason(c), HasSubstr("fold"));
}

TEST_F(OneCase, ACheckThatComparesNothingFails) {
  const Json c = run(tight_ + R"(, "posenc": [{"op": "rotate", "positions": [0, 5],
      "scheme": "rope head_dim=2 pairing=interleaved", "in": {"q": "x"}, "out": {}}])");
  EXPECT_EQ(outcome(c), "fail");
  EXPECT_THAT(reason(c), HasSubstr("nothing"));
  EXPECT_EQ(outcome(run(tight_ + R"(, "posenc": [])")), "fail");
}

TEST_F(OneCase, ANamedPrecisionMustBeRun) {
  const std::string tolerance =
      R"("tolerance": {"abs": 1, "rel": 0, "compat": {"mode": "ggml", "abs": 1e-6}}, "posenc": [)";
  const Json c = run(tolerance + rotate_ + "}]");
  EXPECT_EQ(outcome(c), "fail");
  EXPECT_THAT(reason(c), HasSubstr("precision ggml"));
}

TEST_F(OneCase, TolerancesOfArraysAndPositionsWin) {
  arrays_["out"] = f64({2, 1, 2}, {1, 0, std::cos(5.0), std::sin(5.0) + 1e-3});
  const auto with = [&](const std::string& rows) {
    return outcome(run(R"("tolerance": {"abs": 0, "rel": 0, "arrays": {"out": {"abs": 0,
        "rel": 0, "abs_by_position": )" +
                       rows + "}}}, \"posenc\": [" + rotate_ + "}]"));
  };
  EXPECT_EQ(with("[1e-12, 2e-3]"), "pass");
  EXPECT_EQ(with("[2e-3, 1e-12]"), "fail");
  EXPECT_EQ(with("[2e-3]"), "fail");
}

TEST_F(OneCase, ACheckMayTightenButNeverLoosen) {
  arrays_["out"] = f64({2, 1, 2}, {1, 0, std::cos(5.0), std::sin(5.0) + 1e-3});
  const auto with = [&](const std::string& own, const std::string& checks) {
    return outcome(run(R"("tolerance": {"abs": )" + own + R"(, "rel": 0}, "posenc": [)" + rotate_ +
                       R"(, "tolerance": )" + checks + "}]"));
  };
  EXPECT_EQ(with("1e-2", R"({"abs": 1e-4})"), "fail");
  EXPECT_EQ(with("1e-4", R"({"abs": 1, "rel": 1})"), "fail");
}

TEST_F(OneCase, AKnownDifferenceMustBeThereAndBeBounded) {
  const auto with = [&](double moved) {
    arrays_["out"] = f64({2, 1, 2}, {1, 0, std::cos(5.0), std::sin(5.0) + moved});
    return outcome(run(tight_ + ", \"posenc\": [" + rotate_ + R"(, "known_difference": 0.01}])"));
  };
  EXPECT_EQ(with(0.005), "pass");
  EXPECT_EQ(with(0.02), "fail");
  EXPECT_EQ(with(0), "fail");
}

TEST_F(OneCase, AMapGivesTheFieldToAStrangersCase) {
  std::ofstream(dir_ / "map.json") << "{\"a\": [" << rotate_ << "}]}";
  Options options;
  options.map = dir_ / "map.json";
  EXPECT_EQ(outcome(run(tight_, options)), "pass");
  std::ofstream(dir_ / "map.json") << "[1]";
  EXPECT_THROW(run(tight_, options), FormatError);
  options.map = dir_ / "missing.json";
  EXPECT_THROW(run(tight_, options), FormatError);
}

TEST_F(OneCase, FiltersByRegularExpression) {
  Options options;
  options.filter = "^mine/b";
  EXPECT_TRUE(run(tight_, options).is_null());
  options.filter = "mine/a$";
  EXPECT_FALSE(run(tight_, options).is_null());
  options.filter = "(";
  EXPECT_THROW(run(tight_, options), std::invalid_argument);
}

TEST_F(OneCase, ReportsProgress) {
  Options options;
  std::string seen;
  options.progress = [&](std::string_view suite, std::string_view name, std::int64_t done,
                         std::int64_t total) {
    seen += std::string(suite) + "/" + std::string(name) + " " + std::to_string(done) + " of " +
            std::to_string(total);
  };
  run(tight_, options);
  EXPECT_EQ(seen, "mine/a 1 of 1");
}

TEST_F(OneCase, ASequenceHandsItsMembersDown) {
  const Json c = run(tight_ + R"(, "posenc": [{"op": "sequence",
      "scheme": "rope head_dim=2 pairing=interleaved", "in": {"q": "x"}, "out": {"q": "out"},
      "steps": [{"op": "rotate", "positions": [0, 5]}, {"op": "rotate", "positions": [0, 5]}]}])");
  EXPECT_EQ(outcome(c), "pass") << reason(c);
}

TEST_F(OneCase, AMemberThatNothingReadsFailsByItsName) {
  const std::string scheme = R"("scheme": "rope head_dim=2 pairing=interleaved")";
  const std::string turned = R"({"op": "rotate", )" + scheme + R"(, "positions": [0, 5], )";
  const std::string both = R"("in": {"q": "x"}, "out": {"q": "out"})";
  for (
      const auto& [check, name] : std::vector<std::pair<std::string, std::string>>{
          {rotate_ + R"(, "sens": "gradient"})", "sens"},
          {rotate_ + R"(, "precission": "ggml"})", "precission"},
          {rotate_ + R"(, "layout": "half"})", "layout"},
          {rotate_ + R"(, "model": "$config"})", "model"},
          {rotate_ + R"(, "layer": 0})", "layer"},
          {turned + R"("in": {"q": "x", "kk": "x"}, "out": {"q": "out"}})", "in.kk"},
          {turned + R"("in": {"q": "x"}, "out": {"q": "out", "qq": "out"}})", "out.qq"},
          {turned + both + R"(, "axes": {"x": "thd", "y": "thd"}})", "axes.y"},
          {R"({"op": "rotate", )" + scheme + ", " + both +
               R"(, "positions": {"batch": [[0, 5]], "rows": 1}})",
           "positions.rows"},
          {R"({"op": "rotate", )" + scheme + ", " + both +
               R"(, "positions": {"rule": "arange count=2 step=5", "in": {"mask": "x"}}})",
           "positions.in"},
          {R"({"op": "sequence", "sense": "forward", "steps": [)" + rotate_ + "}, " + rotate_ +
               R"(, "sens": "inverse"}]})",
           "steps.1.sens"},
          {R"({"op": "sequence", "sens": "forward", "steps": [)" + rotate_ + "}]}", "sens"},
          {rotate_ + R"(, "tolerance": {"abs": 1e-12, "rell": 0}})", "rell"},
          {R"({"op": "doctor", "model": {"model_type": "llama"}, "codes": [{"code": "x", "sev": 1}]})",
           "sev"},
          {R"({"op": "refuse", "scheme": "rope head_dim=3 pairing=interleaved", "say": "even"})",
           "say"}}) {
    const Json c = run(tight_ + ", \"posenc\": [" + check + "]");
    EXPECT_EQ(outcome(c), "fail") << check;
    EXPECT_THAT(reason(c), HasSubstr(name)) << check;
  }
  // Read by a step: handed down for good reason.
  const Json c = run(tight_ + R"(, "posenc": [{"op": "sequence", "sense": "forward", "steps": [)" +
                     rotate_ + "}]}]");
  EXPECT_EQ(outcome(c), "pass") << reason(c);
}

TEST_F(OneCase, EveryOperationNamesWhatItDoesNotRead) {
  // What each reads is found by what it asks for, so no list can fall behind: whatever runs to its
  // end is held to it. One of every suite, with one member more.
  const std::filesystem::path root = std::filesystem::path(POSENC_SOURCE_DIR) / "conformance";
  std::set<std::string> tried;
  for (const std::filesystem::path& dir : suites_under(root)) {
    const Suite suite = load_suite(dir);
    Options options;
    Json map = Json::object();
    std::string filter;
    for (const Json& one : suite.cases.as_array()) {
      const Json* checks = one.find("posenc");
      if (checks == nullptr || checks->as_array().empty()) continue;
      Json check = checks->as_array()[0];
      const Json* op = check.find("op");
      if (check.find("precision") != nullptr || one.at_pointer("/tolerance/compat") != nullptr ||
          op->as_string() == "attend" || op->as_string() == "merge" ||
          !tried.insert(op->as_string()).second)
        continue;
      check.set("surplus", Json(true));
      map.set(one.at("name").as_string(), Json::array({check}));
      filter += (filter.empty() ? "/(" : "|") + one.at("name").as_string();
    }
    if (filter.empty()) continue;
    options.filter = filter + ")$";
    options.map = dir_ / "map.json";
    std::ofstream(options.map) << map.dump();
    const Json report = run_suites({dir}, options);
    for (const Json& c : report.at("suites").as_array()[0].at("cases").as_array()) {
      EXPECT_EQ(outcome(c), "fail") << c.at("name").dump();
      EXPECT_THAT(reason(c), HasSubstr("\"surplus\"")) << c.at("name").dump();
    }
  }
  EXPECT_GE(tried.size(), 20u);
}

TEST_F(OneCase, ShapesAreCompared) {
  const auto rows = [&](std::vector<Index> shape) {
    arrays_["out"] = f64(std::move(shape), {1, 1, std::cos(5.0), std::cos(0.05)});
    return run(tight_ + R"(, "posenc": [{"op": "rows", "positions": [0, 5],
        "scheme": "rope head_dim=4 pairing=interleaved", "out": {"cos": "out"}}])");
  };
  EXPECT_EQ(outcome(rows({2, 2})), "pass");
  EXPECT_EQ(outcome(rows({1, 2, 1, 2})), "pass");
  for (const std::vector<Index>& shape :
       {std::vector<Index>{4}, std::vector<Index>{1, 4}, std::vector<Index>{4, 1}}) {
    const Json c = rows(shape);
    EXPECT_EQ(outcome(c), "fail");
    EXPECT_THAT(reason(c), HasSubstr("shape"));
  }
}

TEST_F(OneCase, BadReferencesAreTheCasesFailure) {
  for (const char* check :
       {R"({"op": "rotate"})", R"({"op": "rotate", "scheme": "rope"})", R"({"op": 3})", "7",
        R"({"op": "frequencies", "model": "$nothing"})",
        R"({"op": "explain", "model": "../missing/config.json"})",
        R"({"op": "rotate", "scheme": "rope head_dim=2 pairing=interleaved", "positions": "5",
            "in": {"q": "x"}, "out": {"q": "out"}})",
        R"({"op": "rotate", "scheme": "rope head_dim=2 pairing=interleaved", "positions": [0, 5],
            "in": {"q": "x[9]"}, "out": {"q": "out"}})",
        R"({"op": "rotate", "scheme": "rope head_dim=2 pairing=interleaved", "positions": [0, 5],
            "axes": {"x": "bt"}, "in": {"q": "x"}, "out": {"q": "out"}})"}) {
    const Json c = run(tight_ + ", \"posenc\": [" + check + "]");
    EXPECT_EQ(outcome(c), "fail") << check;
    EXPECT_FALSE(reason(c).empty()) << check;
  }
}

TEST(Suite, UnreadableFilesAreRefused) {
  const test::TemporaryDirectory dir;
  EXPECT_THROW(run_suites({dir.path()}), FormatError);
  for (const char* text : {"", "[]", "{}", R"({"cases": 3})", R"({"cases": [{}]})",
                           R"({"cases": [{"name": 3}]})", R"({"cases": [1]})"}) {
    std::ofstream(dir / "cases.json") << text;
    EXPECT_THROW(run_suites({dir.path()}), FormatError) << text;
  }
}

class Slices : public ::testing::Test {
 protected:
  Slices() {
    std::vector<double> v(24);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(i);
    suite_.arrays["a"] = f64({2, 3, 4}, v);
  }
  std::vector<double> values(const std::string& text) const {
    return slice(Case{suite_, json_, "c"}, text).values();
  }
  Suite suite_;
  Json json_ = Json::object();
};

TEST_F(Slices, AsInNumpy) {
  EXPECT_EQ(values("a[1,2,3]"), std::vector<double>{23});
  EXPECT_EQ(values("a[-1, 0]"), (std::vector<double>{12, 13, 14, 15}));
  EXPECT_EQ(values("a[0,:,1]"), (std::vector<double>{1, 5, 9}));
  EXPECT_EQ(values("a[0,1,1:3]"), (std::vector<double>{5, 6}));
  EXPECT_EQ(values("a[0,0,1::2]"), (std::vector<double>{1, 3}));
  EXPECT_EQ(values("-a[0,0,-2:]"), (std::vector<double>{-2, -3}));
  EXPECT_EQ(values("a").size(), 24u);
}

TEST_F(Slices, OutsideIsRefused) {
  for (const char* text : {"a[2]", "a[0,0,0,0]", "a[0", "a[x]", "a[0:9]", "a[1:1]", "a[::0]",
                           "a[0:1:1:1]", "b", "", "a[99999999999999999999]"})
    EXPECT_THROW(values(text), std::invalid_argument) << text;
}

TEST(AxesTest, MergedRepeatedAndFixed) {
  const Axes merged({2, 3, 8}, "bt(hd)", {{'d', 4}});
  EXPECT_EQ(merged['h'].size, 2);
  EXPECT_EQ(merged['h'].stride, 4);
  EXPECT_EQ(merged['t'].stride, 8);
  const Axes grid({2, 3, 5, 4}, "bttd", {});
  EXPECT_EQ(grid['t'].size, 15);
  EXPECT_EQ(grid['t'].stride, 4);
  const Axes fixed({5, 8, 2}, "td2", {});
  EXPECT_EQ(fixed['d'].size, 16);
  EXPECT_EQ(Axes({2, 3}, "td", {}).walk("td"), (std::vector<Index>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Axes({2, 3}, "td", {}).walk("dt"), (std::vector<Index>{0, 3, 1, 4, 2, 5}));
}

TEST(AxesTest, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(Axes({2, 3}, "thd", {}), std::invalid_argument);
  EXPECT_THROW(Axes({2, 9}, "t(hd)", {{'d', 4}}), std::invalid_argument);
  EXPECT_THROW(Axes({2, 8}, "t(hd)", {}), std::invalid_argument);
  EXPECT_THROW(Axes({2, 3, 4}, "tht", {}), std::invalid_argument);
  EXPECT_THROW(Axes({2, 3}, "t2", {}), std::invalid_argument);
}

TEST(RuleTest, ReadsAndRefuses) {
  const Rule rule("grid shape=[2,3] first=1 swap_xy=true");
  EXPECT_EQ(rule.name(), "grid");
  EXPECT_EQ(rule.integers("shape"), (std::vector<Index>{2, 3}));
  EXPECT_EQ(rule.integer("first"), 1);
  EXPECT_THROW(rule.all_used(), std::invalid_argument);
  EXPECT_TRUE(rule.flag("swap_xy"));
  EXPECT_NO_THROW(rule.all_used());
  EXPECT_THROW(rule.number("last"), std::invalid_argument);
  for (const char* text : {"", "grid shape", "grid a=1 a=2"})
    EXPECT_THROW(Rule{text}, std::invalid_argument) << text;
  EXPECT_THROW(Rule("g a=x").number("a"), std::invalid_argument);
  EXPECT_THROW(Rule("g a=1.5").integer("a"), std::invalid_argument);
  EXPECT_THROW(Rule("g a=[1,").integers("a"), std::invalid_argument);
}

}  // namespace
}  // namespace posenc::conformance
