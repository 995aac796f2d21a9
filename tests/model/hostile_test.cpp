// SPDX-License-Identifier: Apache-2.0
// Files that are broken, or hold what no config should: one clear error with thing, rule and place,
// and never a reading.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <streambuf>

#include "posenc/core/error.h"
#include "posenc/io/json.h"
#include "posenc/model/read.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

// A sound Llama with one more member, or with one replaced.
std::string config(const std::string& more, const std::string& from = "",
                   const std::string& to = "") {
  std::string text =
      R"({"model_type":"llama","hidden_size":512,"num_attention_heads":4,"num_hidden_layers":2,)"
      R"("max_position_embeddings":4096)" +
      std::string(more.empty() ? "" : ",") + more + "}";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

class HostileFile : public testing::Test {
 protected:
  ModelSpec read(const std::string& text) const {
    std::ofstream(folder_ / "config.json", std::ios::binary) << text;
    return read_model(folder_);
  }
  const test::TemporaryDirectory directory_;  // tests run beside each other
  const fs::path folder_ = directory_.path();
};

TEST_F(HostileFile, NoJson) {
  const std::string sound = config("");
  for (const std::string& text :
       {std::string(), std::string("  \n"), sound.substr(0, sound.size() - 1), sound + " x",
        "\xef\xbb\xbf" + sound, config("\"rope_theta\":NaN"), config("\"rope_theta\":Infinity"),
        config("\"rope_theta\":-Infinity"), config("\"rope_theta\":1e400"),
        config("\"rope_theta\":1e4,\"rope_theta\":1e6"), config("\"x\":1,"),
        config("\"x\":\"\xff\xfe\""),
        config("\"x\":" + std::string(100000, '[') + std::string(100000, ']'))}) {
    try {
      (void)read(text);
      ADD_FAILURE() << "read " << text.substr(0, 200);
    } catch (const FormatError& e) {
      EXPECT_NE(std::string(e.what()).find("config.json"), std::string::npos) << e.what();
    }
  }
  EXPECT_FALSE(read(sound).has_error());
}

// Files of Falcon-H1 and Nemotron-H hold "time_step_limit": [0.0, Infinity], which transformers
// reads; where a position would follow from such a token it is named with its place.
TEST_F(HostileFile, TokensOfPython) {
  for (const char* more :
       {R"("time_step_limit":[0.0,Infinity])", R"("a\"NaN":-Infinity,"b":{"c":NaN})",
        R"("text":"NaN, Infinity \\","x" : NaN)"}) {
    const ModelSpec spec = read(config(more));
    EXPECT_FALSE(spec.has_error()) << more;
    EXPECT_EQ(spec.layers.size(), 2u) << more;
  }
  struct Bad {
    std::string more, place, token;
  };
  for (const Bad& bad :
       {Bad{R"("rope_theta":NaN)", "#/rope_theta", "NaN"},
        Bad{R"("rope_scaling":{"type":"yarn","factor":-Infinity})", "#/rope_scaling/factor",
            "-Infinity"},
        Bad{R"("rope_scaling":{"long_factor":[1.0,Infinity]})", "#/rope_scaling/long_factor/1",
            "Infinity"},
        Bad{R"("head_dim":Infinity)", "#/head_dim", "Infinity"},
        Bad{R"("text_config":{"sliding_window":NaN})", "#/text_config/sliding_window", "NaN"},
        Bad{R"("x":NaNs)", "byte", "NaN"}, Bad{R"("x":[nan])", "byte", "last read"},
        Bad{"\"x\":\"\x7f\",\"y\":NaN", "byte", "NaN"}}) {
    try {
      (void)read(config(bad.more));
      ADD_FAILURE() << "read " << bad.more;
    } catch (const FormatError& e) {
      const std::string what = e.what();
      EXPECT_NE(what.find(bad.place), std::string::npos) << what;
      EXPECT_NE(what.find(bad.token), std::string::npos) << what;
    }
  }
}

TEST_F(HostileFile, NoFile) {
  EXPECT_THROW((void)read_model(folder_), FormatError);  // an empty directory
  EXPECT_THROW((void)read_model(folder_ / "nothing.json"), FormatError);
  fs::create_directories(folder_ / "config.json");
  EXPECT_THROW((void)read_model(folder_), FormatError);  // a directory of that name
}

TEST_F(HostileFile, WrongValues) {
  struct Bad {
    std::string text, code, place;
  };
  const auto scaling = [](const std::string& inside) {
    return config("\"rope_scaling\":" + inside);
  };
  const std::string heads = "\"num_attention_heads\":4", layers = "\"num_hidden_layers\":2";
  const Bad kBad[] = {
      {config("\"rope_theta\":\"10000\""), "wrong_type", "#/rope_theta"},
      {config("\"rope_theta\":true"), "wrong_type", "#/rope_theta"},
      {config("\"rope_theta\":[10000]"), "wrong_type", "#/rope_theta"},
      {config("\"rope_theta\":0"), "theta_not_positive", "#/rope_theta"},
      {config("\"rope_theta\":-10000"), "theta_not_positive", "#/rope_theta"},
      {scaling("\"yarn\""), "wrong_type", "#/rope_scaling"},
      {scaling("[\"yarn\",4]"), "wrong_type", "#/rope_scaling"},
      {scaling(R"({"type":3,"factor":2})"), "wrong_type", "#/rope_scaling/type"},
      {scaling(R"({"type":"linear","factor":[4]})"), "wrong_type", "#/rope_scaling/factor"},
      {scaling(R"({"type":"linear","factor":true})"), "wrong_type", "#/rope_scaling/factor"},
      {scaling(R"({"type":"linear","factor":"4"})"), "wrong_type", "#/rope_scaling/factor"},
      {scaling(R"({"type":"linear","factor":0})"), "wrong_type", "#/rope_scaling/factor"},
      {scaling(R"({"type":"linear"})"), "missing_key", "#/rope_scaling/factor"},
      {config("", heads, "\"num_attention_heads\":-4"), "wrong_type", "#/num_attention_heads"},
      {config("", heads, "\"num_attention_heads\":0"), "wrong_type", "#/num_attention_heads"},
      {config("", heads, "\"num_attention_heads\":true"), "wrong_type", "#/num_attention_heads"},
      {config("", heads, "\"num_attention_heads\":7"), "wrong_type", "#/num_attention_heads"},
      {config("", layers, "\"num_hidden_layers\":2.5"), "wrong_type", "#/num_hidden_layers"},
      {config("", layers, "\"num_hidden_layers\":1000000000"), "wrong_type", "#/num_hidden_layers"},
      {config("", "4096", "9223372036854775807"), "wrong_type", "#/max_position_embeddings"},
      {config("", "4096", "-1"), "wrong_type", "#/max_position_embeddings"},
      {config("", "\"num_hidden_layers\":2", "\"num_hidden_layers\":2.0"), "wrong_type",
       "#/num_hidden_layers"},
      {config("", "4096", "null"), "wrong_type", "#/max_position_embeddings"},
      {config("", "\"llama\"", "7"), "unknown_model_type", "#/model_type"},
      {config("", "\"llama\"", "null"), "unknown_model_type", "#/model_type"},
  };
  for (const Bad& bad : kBad) {
    const ModelSpec spec = read(bad.text);
    EXPECT_TRUE(spec.has_error()) << bad.text;
    bool found = false;
    for (const Finding& f : spec.findings)
      found = found || (f.severity == Severity::error && f.code == bad.code &&
                        f.where == "config.json" + bad.place && !f.fix.empty());
    EXPECT_TRUE(found) << bad.text << " is not " << bad.code << " at " << bad.place;
    EXPECT_THROW(require_readable(spec), std::runtime_error);
  }
}

// Odd, and right all the same.
TEST_F(HostileFile, SoundAllTheSame) {
  for (const std::string& text : {config("\"rope_scaling\":null"), config("\"rope_scaling\":{}"),
                                  config("\"rope_parameters\":null"), config("\"head_dim\":null"),
                                  config("\"a key nobody knows\":{\"deep\":[1,2,{\"x\":null}]}"),
                                  config("", "4096", "1000000000000000000")}) {
    const ModelSpec spec = read(text);
    EXPECT_FALSE(spec.has_error()) << text;
    ASSERT_EQ(spec.layers.size(), 2u) << text;
    EXPECT_EQ(spec.layers[0].rotary->head_dim, 128) << text;
    EXPECT_NO_THROW((void)explain_json(spec).dump());
    EXPECT_NO_THROW((void)doctor_json(doctor(spec)).dump());
  }
}

// Zeros without an end, as /dev/zero gives them.
class Endless : public std::streambuf {
 public:
  std::size_t given = 0;

 private:
  int_type underflow() override {
    given += block_.size();
    setg(block_.data(), block_.data(), block_.data() + block_.size());
    return 0;
  }
  std::array<char, 65536> block_{};
};

TEST(HostileStream, IsReadNoFurtherThanAConfigMayBe) {
  Endless zeros;
  std::istream in(&zeros);
  EXPECT_THROW((void)read_model(in, "-"), FormatError);
  EXPECT_LE(zeros.given, 100'000'000u + 65536);
}

TEST(HostileStream, AConfigAndAnEmptyPipe) {
  std::istringstream sound(config(""));
  EXPECT_EQ(read_model(sound, "-").layers.size(), 2u);
  std::istringstream empty, cut("GGU");
  EXPECT_THROW((void)read_model(empty, "-"), FormatError);
  EXPECT_THROW((void)read_model(cut, "-"), FormatError);
}

// Limits that hold for themselves multiply: 200 layers of 32768 frequencies are refused as one
// answer, and shown layer by layer.
TEST(HostileSizes, AnAnswerIsBounded) {
  const ModelSpec spec = read_hugging_face(
      parse_config(
          config("\"head_dim\":65536", "\"num_hidden_layers\":2", "\"num_hidden_layers\":200"),
          "config.json"),
      "config.json");
  ASSERT_FALSE(spec.has_error());
  EXPECT_THROW((void)explain_json(spec), ArgumentError);
  EXPECT_EQ(explain_json(spec, 199).at("layers").as_array().size(), 1u);
  // In memory they are one.
  EXPECT_EQ(&*spec.layers.front().rotary, &*spec.layers.back().rotary);
}

}  // namespace
}  // namespace posenc
