// SPDX-License-Identifier: Apache-2.0
// The collector of findings, and the error that carries them.
#include "model/diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "posenc/model/read.h"

namespace posenc {
namespace {

TEST(Diagnostics, OneFindingEachWithTheHigherSeverity) {
  Diagnostics d;
  d.note("key_ignored", "it is not read", "config.json#/a");
  d.warn("key_ignored", "it is not read", "config.json#/a", "remove it", 4);
  d.note("key_ignored", "it is not read", "config.json#/a", "leave it");
  d.note("key_ignored", "it is not read", "config.json#/b");
  ASSERT_EQ(d.findings().size(), 2u);
  EXPECT_EQ(d.findings()[0].severity, Severity::warning);
  EXPECT_EQ(d.findings()[0].fix, "remove it");
  EXPECT_EQ(d.findings()[0].value, 4);
  EXPECT_EQ(d.findings()[1].fix, "nothing to do");
  EXPECT_EQ(d.errors(), 0u);
  d.error("key_ignored", "it is not read", "config.json#/b", "remove it");
  EXPECT_EQ(d.errors(), 1u);
  EXPECT_EQ(d.take().size(), 2u);
  EXPECT_TRUE(d.findings().empty());
  d.note("key_ignored", "it is not read", "config.json#/a");
  EXPECT_EQ(d.findings().size(), 1u);
}

TEST(Diagnostics, MessagesAreFilledInTurn) {
  EXPECT_EQ(message("{} of {} is {}, not {}", std::string("a {}"), "b", 500000.0, 7),
            "a {} of b is 500000, not 7");
  EXPECT_EQ(message("got {}", parse_json(R"({"rope_type": null})", "test")),
            R"(got {"rope_type": null})");
  EXPECT_EQ(listed({"a", "b"}), "a, b");
}

TEST(Diagnostics, ManyFindingsStayFast) {
  Diagnostics d;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 100'000; ++i)
      d.note("key_ignored", "it is not read", "config.json#/" + std::to_string(i));
  ASSERT_EQ(d.findings().size(), Diagnostics::kMostAlike);
  EXPECT_EQ(d.take().back().message, "it is not read (and 99980 more of this kind)");
}

// One code and severity in one object or list; the rest is kept apart.
TEST(Diagnostics, FindingsOfOneKindAreCountedAfterTheFirstTwenty) {
  Diagnostics d;
  for (int i = 0; i < 30; ++i) {
    const std::string n = std::to_string(i);
    d.note("key_ignored", "it is not read", "config.json#/rope_scaling/k" + n);
    d.warn("key_ignored", "it is not read", "config.json#/k" + n);
    d.error("wrong_type", "it is null", "config.json#/block_configs/" + n + "/attention/window");
    d.note("float32_angle", "it is wrong by " + n, "config.json layer " + n);
  }
  EXPECT_EQ(d.errors(), 30u);
  const std::vector<Finding> all = d.take();
  ASSERT_EQ(all.size(), 4 * Diagnostics::kMostAlike);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].message.ends_with(" (and 10 more of this kind)"), i >= 76) << all[i].message;
  d.error("wrong_type", "it is null", "config.json#/a");
  EXPECT_EQ(d.take().front().message, "it is null");
}

// A finding that was counted and comes again with a higher severity is kept.
TEST(Diagnostics, AnErrorIsNeverOnlyCounted) {
  Diagnostics d;
  for (int i = 0; i < 30; ++i) d.warn("key_ignored", "x", "config.json#/" + std::to_string(i));
  d.error("key_ignored", "x", "config.json#/29");
  EXPECT_EQ(d.errors(), 1u);
  EXPECT_EQ(d.take().back().severity, Severity::error);
}

TEST(Diagnostics, AFileWithFiveThousandFindingsOfOneCode) {
  Json scaling = Json::object({{"rope_type", "linear"}, {"factor", 2.0}});
  for (int i = 0; i < 5000; ++i) scaling.set("k" + std::to_string(i), 1);
  const ModelSpec m = read_hugging_face(
      Json::object({{"model_type", "llama"}, {"rope_scaling", scaling}}), "config.json");
  std::vector<Finding> ignored;
  for (const Finding& f : m.findings)
    if (f.code == "key_ignored") ignored.push_back(f);
  ASSERT_EQ(ignored.size(), 20u);
  EXPECT_EQ(ignored[18].message.find("more of this kind"), std::string::npos);
  EXPECT_NE(ignored[19].message.find("(and 4980 more of this kind)"), std::string::npos)
      << ignored[19].message;
}

TEST(Diagnostics, TextsOfAFileStayPrintable) {
  Diagnostics d;
  d.note("key_ignored", "\033[2J of \xc3\xa9t\xc3\xa9 \xc2\x9b \xff", "a\nb");
  EXPECT_EQ(d.findings()[0].message, "?[2J of \xc3\xa9t\xc3\xa9 ?? ?");
  EXPECT_EQ(d.findings()[0].where, "a?b");
  const ModelSpec m = read_hugging_face(
      Json::object({{"model_type", "llama"},
                    {"rope_\033[2Jtheta", 5},
                    {"rope_scaling", Json::object({{"rope_type", "\033x"}, {"\033[1m", 2}})}}),
      "config.json");
  for (const Finding& f : m.findings)
    for (const std::string& text : {f.message, f.where, f.fix})
      EXPECT_TRUE(std::none_of(text.begin(), text.end(), [](char c) { return c == '\033'; }))
          << text;
}

Json llama(const char* scaling = nullptr) {
  Json config = parse_json(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
                               "num_hidden_layers": 2, "rope_theta": 10000.0})",
                           "config.json");
  if (scaling) config.set("rope_scaling", parse_json(scaling, "config.json"));
  return config;
}

std::string refusal(const ModelSpec& m, Index layer) {
  try {
    (void)m.rotary(layer);
  } catch (const ModelError& e) {
    EXPECT_EQ(e.findings().size(), m.findings.size());
    return e.what();
  }
  return "";
}

TEST(ModelError, CarriesEveryFinding) {
  const ModelSpec m = read_hugging_face(
      llama(R"({"rope_type": "yarn", "factor": "four", "beta_fast": "fast"})"), "config.json");
  try {
    require_readable(m);
    FAIL();
  } catch (const ModelError& e) {
    EXPECT_EQ(e.findings().size(), m.findings.size());
    for (const Finding& f : m.findings)
      EXPECT_EQ(std::string(e.what()).find(f.message) != std::string::npos,
                f.severity == Severity::error)
          << e.what();
  }
  EXPECT_NE(refusal(m, 0).find("positions cannot be determined"), std::string::npos);
}

TEST(ModelError, RotaryOfALayer) {
  const ModelSpec m = read_hugging_face(llama(), "config.json");
  EXPECT_EQ(m.rotary().head_dim, 16);
  EXPECT_EQ(&m.rotary(1), &*m.layers[1].rotary);
  EXPECT_EQ(refusal(m, 2), "config.json: layer 2 is none of the model's 2");
  EXPECT_EQ(refusal(m, -1), "config.json: layer -1 is none of the model's 2");
}

TEST(ModelError, SaysWhatActsInstead) {
  const auto read = [](const char* text) {
    return read_hugging_face(parse_json(text, "config.json"), "config.json");
  };
  EXPECT_EQ(refusal(read(R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2})"), 1),
            "config.json: layer 1 has no rotary encoding: learned acts at the input");
  EXPECT_EQ(refusal(read(R"({"model_type": "bloom", "hidden_size": 64, "n_head": 4,
                             "n_layer": 2})"),
                    0),
            "config.json: layer 0 has no rotary encoding: alibi acts there");
}

}  // namespace
}  // namespace posenc
