// SPDX-License-Identifier: Apache-2.0
// What an engine must do besides the rotation, of published configs: the numbers are those of the
// suite rotary_hugging_face and of the classes of transformers 5.23.
#include <gtest/gtest.h>

#include "model/hugging_face_suite.h"
#include "posenc/model/read.h"

namespace posenc::test {
namespace {

std::string names(const LayerSpec& layer) {
  std::string out;
  for (const Requirement& r : must_honour(layer)) {
    EXPECT_FALSE(r.text.empty()) << r.what;
    EXPECT_FALSE(r.value.is_null()) << r.what;
    out += (out.empty() ? "" : " ") + r.what;
  }
  return out;
}
ModelSpec published(const std::string& name) {
  ModelSpec model = read_model(suite_folder() / "configs" / name);
  EXPECT_FALSE(model.has_error()) << name;
  return model;
}
ModelSpec of(const std::string& text) {
  return read_hugging_face(parse_config(text, "config.json"), "config.json");
}

TEST(MustHonour, NothingBesideAPlainRotation) {
  EXPECT_EQ(names(published("llama_3_1_8b").layers.at(0)), "");
}

TEST(MustHonour, DeepSeeksLogitFactor) {
  const std::vector<Requirement> all = must_honour(published("deepseek_v3").layers.at(0));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].what, "logit_factor");
  EXPECT_NEAR(all[0].value.as_number(), 1.8738542070926265, 1e-14);
  EXPECT_NE(all[0].text.find("1.873854"), std::string::npos) << all[0].text;
}

TEST(MustHonour, WindowsOfTheLayersThatHaveThem) {
  const ModelSpec gemma = published("gemma_3_1b_v5");
  EXPECT_EQ(names(gemma.layers.at(0)), "qk_norm window");
  EXPECT_EQ(must_honour(gemma.layers.at(0))[1].value.at("left").as_integer(), 511);
  EXPECT_EQ(must_honour(gemma.layers.at(0))[1].value.at("right").as_integer(), 0);
  EXPECT_EQ(names(gemma.layers.at(5)), "qk_norm");
}

TEST(MustHonour, LengthsForWhichTheFrequenciesHold) {
  const std::vector<Requirement> all = must_honour(published("phi_4_mini").layers.at(0));
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].what, "valid_range");
  EXPECT_EQ(all[0].value.at("from").as_integer(), 4097);
  EXPECT_TRUE(all[0].value.at("to").is_null());
}

TEST(MustHonour, TemperatureChunksScoresAndValues) {
  const ModelSpec scout = published("llama_4_scout");
  bool temperature = false, chunk = false;
  for (const LayerSpec& layer : scout.layers) {
    temperature = temperature || names(layer) == "query_temperature";
    chunk = chunk || names(layer) == "qk_norm window";
  }
  EXPECT_TRUE(temperature);  // of layers without rotary
  EXPECT_TRUE(chunk);        // of the others
  EXPECT_EQ(names(published("bloom_default").layers.at(0)), "score_term");
  EXPECT_EQ(names(of(R"({"model_type": "roformer", "rotary_value": true})").layers.at(0)),
            "rotates_value");
}

TEST(MustHonour, TheJsonOfALayerListsThem) {
  const Json layer = explain_json(published("deepseek_v3")).at("layers").as_array().at(0);
  const Json& all = layer.at("must_honour");
  ASSERT_EQ(all.as_array().size(), 1u);
  EXPECT_EQ(all.as_array()[0].at("what").as_string(), "logit_factor");
}

}  // namespace
}  // namespace posenc::test
