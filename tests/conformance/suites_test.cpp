// SPDX-License-Identifier: Apache-2.0
// Every suite whose cases have operations: none fails, and what cannot be expressed is named here.
#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>

#include "conformance/runner/runner.h"
#include "posenc/io/array.h"

namespace posenc::conformance {
namespace {

std::filesystem::path suite_dir(const std::string& name) {
  return std::filesystem::path(POSENC_SOURCE_DIR) / "conformance" / name;
}

struct Result {
  std::int64_t passed = 0, failed = 0;
  std::set<std::string> not_expressible;
};

Result run(const std::string& name) {
  const Json report = run_suites({suite_dir(name)});
  const Json& suite = report.at("suites").as_array().at(0);
  Result r;
  r.passed = suite.at("passed").as_integer();
  r.failed = suite.at("failed").as_integer();
  for (const Json& c : suite.at("cases").as_array()) {
    const std::string& outcome = c.at("outcome").as_string();
    if (outcome == "not_expressible") r.not_expressible.insert(c.at("name").as_string());
    if (outcome == "fail")
      ADD_FAILURE() << c.at("name").as_string() << ": " << c.at("reason").as_string();
  }
  std::cout << name << ": " << r.passed << " passed, " << r.failed << " failed, "
            << r.not_expressible.size() << " not expressible\n";
  EXPECT_EQ(all_passed(report), r.failed == 0 && r.passed > 0);
  return r;
}

// The counts are those of the suites: a case that vanishes is noticed. docs/conformance.md gives
// the reason for each name.
TEST(Suites, HuggingFace) {
  const Result r = run("rotary_hugging_face");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 158);
}

TEST(Suites, Engines) {
  const Result r = run("rotary_engines");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 155);
}

TEST(Suites, Gguf) {
  const Result r = run("gguf");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 102);
}

TEST(Suites, Positions) {
  const Result r = run("positions");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 60);
}

TEST(Suites, Absolute) {
  const Result r = run("absolute");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 221);
}

TEST(Suites, Attention) {
  const Result r = run("attention");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 151);
}

TEST(Suites, RelativeBias) {
  const Result r = run("relative_bias");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 152);
}

TEST(Suites, RelativeContent) {
  const Result r = run("relative_content");
  EXPECT_EQ(r.not_expressible, (std::set<std::string>{"espnet_legacy_peer_bug",
                                                      "transfo_xl_without_mask_peer_garbage"}));
  EXPECT_EQ(r.passed, 130);
}

TEST(Suites, TinyModels) {
  const Result r = run("tiny_models");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 35);
}

TEST(Suites, ModelAttention) {
  const Result r = run("model_attention");
  EXPECT_EQ(r.not_expressible, std::set<std::string>{});
  EXPECT_EQ(r.passed, 89);
}

// What `posenc selftest` runs without arguments: every folder of cases, so that none is forgotten.
TEST(Suites, AllAreFound) {
  std::vector<std::string> names;
  for (const std::filesystem::path& dir :
       suites_under(std::filesystem::path(POSENC_SOURCE_DIR) / "conformance"))
    names.push_back(dir.filename().string());
  EXPECT_EQ(names,
            (std::vector<std::string>{"absolute", "attention", "gguf", "model_attention",
                                      "positions", "relative_bias", "relative_content",
                                      "rotary_engines", "rotary_hugging_face", "tiny_models"}));
  EXPECT_TRUE(suites_under("/nowhere").empty());
}

// An output that no check names would be compared with nothing. What is left out is listed, with
// the reason: it belongs to parts that come later, or to another release of the peer.
bool may_be_left_out(const std::string& output) {
  static const std::set<std::string> kLater{
      "inv_freq_older", "inv_freq_after_9000_older",  // transformers 4.57, not our reference
      "ntk_alpha",                                    // the step itself; frequencies show it
      "indices", "weights"};                          // of a resize; the resized table shows them
  return kLater.count(output) > 0;
}

TEST(Suites, EveryOutputIsCompared) {
  std::int64_t compared = 0;
  for (const char* name : {"rotary_hugging_face", "rotary_engines", "gguf", "absolute"}) {
    const Json suite = read_json(suite_dir(name) / "cases.json");
    for (const Json& c : suite.at("cases").as_array()) {
      if (c.find("posenc") == nullptr) continue;
      const std::string checks = c.at("posenc").dump();
      const bool refused = checks.find("\"refuse\"") != std::string::npos;
      for (const auto& [output, stored] : c.at("outputs").as_object()) {
        if (may_be_left_out(output) || refused) continue;
        const bool named = checks.find("\"" + output + "\"") != std::string::npos ||
                           checks.find("\"" + output + "[") != std::string::npos ||
                           checks.find("\"-" + output + "[") != std::string::npos;
        EXPECT_TRUE(named) << name << "/" << c.at("name").as_string() << ": " << output;
        compared += named ? 1 : 0;
      }
    }
  }
  std::cout << compared << " arrays are compared\n";
  EXPECT_GT(compared, 1000);
}

}  // namespace
}  // namespace posenc::conformance
