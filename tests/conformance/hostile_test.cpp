// SPDX-License-Identifier: Apache-2.0
// Suites and ONNX nodes whose sizes do not fit: each is one failed case with a reason, and never memory that is not
// theirs (the sanitizers of ./test --full see it).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "conformance/runner/onnx_node.h"
#include "conformance/runner/runner.h"
#include "conformance/runner/suite.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "support/onnx_writer.h"
#include "support/temporary_directory.h"

namespace posenc::conformance {
namespace {

using ::testing::HasSubstr;

Arrays hostile_arrays() {
  Arrays all;
  const auto add = [&](const char* name, std::vector<Index> shape, DType dtype = DType::f64) {
    all.emplace(name, make_array(dtype, std::move(shape)));
  };
  add("q", {1, 2, 4, 4});  // [b, h, t, d]
  add("k", {1, 2, 3, 4});
  add("wide", {1, 4, 3, 4});  // more heads than k
  add("deep", {1, 2, 3, 8});  // other channels
  add("none", {1, 2, 3, 0});
  add("odd", {1, 3, 4, 4});  // heads that do not divide
  add("batch", {2, 2, 3, 4});
  add("rows", {3, 4});
  add("row", {3});
  add("cube", {2, 3, 4});
  add("empty", {0, 4});
  add("lse", {1, 2, 4});
  add("ids", {4}, DType::i64);
  return all;
}

// The outcome of one check of a suite with those arrays.
Json hostile_case(const std::string& check) {
  Suite suite =
      parse_suite(parse_json(R"({"cases": [{"name": "a", "tolerance": {"abs": 1, "rel": 0},
      "params": {}, "posenc": [)" +
                                 check + "]}]}",
                             "cases.json"),
                  "nowhere");
  suite.arrays = hostile_arrays();
  return run_suite(suite).at("suites").as_array().at(0).at("cases").as_array().at(0);
}

void expect_failure(const std::string& check, const std::string& says) {
  const Json c = hostile_case(check);
  EXPECT_EQ(c.at("outcome").as_string(), "fail") << check;
  EXPECT_THAT(c.at("reason").as_string(), HasSubstr(says)) << check;
}

std::string attend(const std::string& more, const std::string& k = R"("k")",
                   const std::string& v = R"("k")") {
  return R"({"op": "attend", "in": {"q": "q", "k": )" + k + R"(, "v": )" + v + "}, " + more +
         R"("out": {"out": "q"}})";
}

TEST(HostileSuite, PartsOfKeysMustAgreeInAllButTheirTokens) {
  EXPECT_EQ(hostile_case(attend("", R"(["k", "k"])", R"(["k", "k"])")).at("outcome").as_string(),
            "pass");
  expect_failure(attend("", R"(["k", "wide"])"), "one size of the axis h, got 4");
  expect_failure(attend("", R"(["k", "deep"])"), "one size of the axis d, got 8");
  expect_failure(attend("", R"(["batch", "k"])"), "one size of the axis b, got 1");
  expect_failure(attend("", R"(["none", "k"])"), "one size of the axis d, got 4");
  expect_failure(attend("", "[]"), "must not be empty");
}

TEST(HostileSuite, MatricesOfNumbersHaveRowsOfOneLength) {
  for (const char* rows : {"[]", "[[]]", "[[], []]"})
    expect_failure(attend(std::string(R"("call": {"mix_before": )") + rows + "}, "),
                   "must not be empty");
  expect_failure(attend(R"("call": {"mix_before": [[1], [2, 3]]}, )"),
                 "must have one length: mix_before, got 2");
  expect_failure(
      attend(R"("scheme": "xlnet", "parameters": {}, "inputs": {"query_class": [[1, 2], [3]]}, )"),
      "");
}

TEST(HostileSuite, GradientsAndTransposedParametersFillTheirShape) {
  const std::string back = R"("gradient": {"in": {"log_sum_exp": ")";
  expect_failure(attend(back + R"(row"}}, )"), "must have the shape of log_sum_exp");
  for (const char* order : {"[0, 0]", "[5]", "[-1, 0]", "[0, 1, 2]"})
    expect_failure(
        attend(std::string(R"("scheme": "fixed", "transpose": {"table": )") + order + "}, "), "");
}

TEST(HostileSuite, EveryAxisOfAnArrayHasALetter) {
  expect_failure(
      R"({"op": "attend", "in": {"q": "q", "k": "k[:, 0:1]", "v": "k[:, 0:1]"}, "axes": {"q": "bxtd"},
          "out": {"out": "q"}})",
      "every axis of an array must be one of the letters");
  expect_failure(
      R"JSON({"op": "attend", "head_dim": -4, "axes": {"cube": "bt(hd)"}, "in": {"q": "cube",
          "k": "cube", "v": "cube"}, "out": {"out": "cube"}})JSON",
      "a merged axis needs the size of its letter d, got -4");
}

TEST(HostileSuite, IndicesOfArraysStayInside) {
  const auto sliced = [](const std::string& name) {
    return R"({"op": "attend", "in": {"q": ")" + name +
           R"(", "k": "k", "v": "k"}, "out": {"out": "q"}})";
  };
  for (const char* name :
       {"q[9223372036854775807]", "q[-5]", "q[:, 2]", "q[:, 0:3]", "q[0:1:0]", "row[3]"})
    expect_failure(sliced(name), "an index of an array lies outside it");
  expect_failure(sliced("q[0, 0, 0, 0, 0]"), "fewer axes");
  // A step longer than the axis leaves the first, whatever its size.
  EXPECT_EQ(hostile_case(sliced("q[:, :, ::9223372036854775807, :]")).at("outcome").as_string(),
            "fail");
}

TEST(HostileSuite, LayersOfAProjectHaveTheSizesOfTheirWeights) {
  const auto project = [](const std::string& words) {
    return R"({"op": "attend", "project": {"heads": 2, )" + words + R"(}, "out": {"out": "rows"}})";
  };
  const std::string v = R"("v": {"x": "rows", "weight": "square"})";
  expect_failure(project(R"("q": {"x": "empty"}, "k": {"x": "rows"}, "v": {"x": "rows"})"),
                 "must be rows of numbers");
  expect_failure(
      project(R"("q": {"x": "rows", "weight": "cube"}, "k": {"x": "rows", "weight": "cube"},
      "v": {"x": "rows", "weight": "cube"})"),
      "a weight of project must be [outputs, width of the hidden states], got 24");
  expect_failure(
      project(R"("q": {"x": "rows", "weight": "rows"}, "k": {"x": "rows", "weight": "rows"},
      "v": {"x": "rows", "weight": "rows"})"),
      "heads of project must divide the outputs, got 3");
}

TEST(HostileSuite, ScoresNeedHeadsThatDivideAndAPositionEach) {
  const auto scores = [](const std::string& k, const std::string& positions) {
    return R"({"op": "scores", "scheme": "rope head_dim=4 pairing=half_split", "axes": {"q": "bhtd", "k": "bhtd",
        "wide": "bhtd", "odd": "bhtd", "batch": "bhtd"}, "in": {"q": "q", "k": ")" +
           k + R"("}, "q_positions": ")" + positions +
           R"(", "k_positions": "0:3", "out": {"scores": "lse"}})";
  };
  expect_failure(scores("wide", "0:4"), "heads of k must divide those of q, got 4");
  expect_failure(scores("batch", "0:4"), "one batch");
  expect_failure(scores("k", "0:1"), "q needs a position each, got 1");
}

TEST(HostileSuite, TablesAndRangesHaveSizes) {
  for (const char* size : {"0", "-3x-3", "4x0", "99999999999"})
    expect_failure(
        std::string(R"({"op": "extend", "scheme": "learned grid=3", "how": "linear", "to": ")") +
            size + R"(", "in": {"table": "rows"}, "out": {"table": "rows"}})",
        "a size of a table must be 1 to");
  expect_failure(
      R"({"op": "positions", "rule": "normalised size=[4]", "positions": "0:9223372036854775807",
      "out": {"positions": "ids"}})",
      "at most 268435456 positions");
  expect_failure(R"({"op": "positions", "rule": "normalised size=[4]", "positions": [[1, 2], [3]],
      "out": {"positions": "ids"}})",
                 "one length");
}

TEST(HostileSuite, AMergeHasANumberForEachRow) {
  expect_failure(
      R"({"op": "merge", "in": {"out": ["q"], "log_sum_exp": ["row"]}, "axes": {"row": "q"},
      "out": {"out": "q"}})",
      "log_sum_exp must have a number for each row of out");
}

TEST(HostileSuite, NamesAndReasonsMayBeAnything) {
  test::TemporaryDirectory dir;
  const auto folder = dir.path() / "s\xff";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "cases.json") << R"({"cases": [{"name": "a", "posenc_not_expressible": 3},
      {"name": "b", "posenc": [{"op": "explain", "model": "none"}]}]})";
  const Json report = run_suites({folder});
  EXPECT_EQ(parse_json(report.dump(), "report"), report);
  EXPECT_EQ(report.at("suites").as_array().at(0).at("suite").as_string(), "s?");
  std::ofstream(folder / "cases.json")
      << R"({"cases": [{"name": ")" << std::string(1001, 'a') << R"("}]})";
  EXPECT_THROW(load_suite(folder), FormatError);
}

}  // namespace
}  // namespace posenc::conformance
