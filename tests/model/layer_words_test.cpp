// SPDX-License-Identifier: Apache-2.0
// Words of layer_types, layers of Mllama that read an image, and findings of nearly a key that were
// wrong.
#include <gmock/gmock.h>

#include <algorithm>

#include "class_rules.h"
#include "model/diagnostics.h"
#include "model/hugging_face/class_rules/class_rules.h"

namespace posenc {
namespace {

using namespace test;
using ::testing::HasSubstr;

ModelSpec layer_words_read(const std::string& text) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json");
}
// The message and fix of the first finding of this code, or nothing.
std::string layer_words_says(const std::string& text, const std::string& code) {
  for (const Finding& f : doctor(layer_words_read(text)))
    if (f.code == code) return f.message + "; " + f.fix;
  return "";
}
std::vector<Index> without_rotary(const ModelSpec& spec) {
  std::vector<Index> layers;
  for (const LayerSpec& l : spec.layers)
    if (!l.rotary) layers.push_back(l.index);
  return layers;
}

TEST(LayerWords, AWordThatNobodyHasIsRefusedByEveryClass) {
  int classes = 0;
  for (const auto& [type, rules] : hf::all_class_rules()) {
    if (rules.scheme.empty() || rules.other_layer_types || !rules.remote.empty()) continue;
    const ModelSpec spec = layer_words_read(
        R"({"model_type":")" + type +
        R"(","num_hidden_layers":2,"layer_types":["full_attention","sliding_atention"]})");
    EXPECT_TRUE(spec.has_error()) << type;
    ++classes;
  }
  EXPECT_GE(classes, 540);
}

TEST(LayerWords, AWordOfOtherClassesIsRefused) {
  const auto file = [](const std::string& type, const std::string& word) {
    return R"({"model_type":")" + type +
           R"(","num_hidden_layers":2,"sliding_window":8,"layer_types":["full_attention",")" +
           word + "\"]}";
  };
  EXPECT_EQ(layer_words_says(file("gemma2", "conv"), "wrong_type"),
            "layer_types holds \"conv\", and Gemma2Config has no such layer: transformers fails on "
            "the first token; There are: full_attention, sliding_attention");
  for (const auto& [type, word] : {std::pair("qwen3", "linear_attention"),
                                   {"qwen3_next", "sliding_attention"},
                                   {"llama4_text", "hybrid"},
                                   {"lfm2", "mamba"}})
    EXPECT_TRUE(layer_words_read(file(type, word)).has_error()) << type << " " << word;
  for (const auto& [type, word] : {std::pair("gemma2", "sliding_attention"),
                                   {"gemma2", "attention"},
                                   {"qwen3_next", "linear_attention"},
                                   {"jamba", "mamba"},
                                   {"lfm2", "conv"}})
    EXPECT_FALSE(layer_words_read(file(type, word)).has_error()) << type << " " << word;
}

// Keys of an image have no place in the text: transformers' class rotates neither side there.
// transformers writes "mlp" into the files of Nemotron-H, though its list of layer types has no such word.
TEST(LayerWords, NemotronHHasWordsOfItsOwn) {
  const auto file = [](const std::string& words) {
    return R"({"model_type":"nemotron_h","layers_block_type":[)" + words + "]}";
  };
  for (const char* words : {R"("linear_attention","moe","full_attention","mlp")",
                            R"("mamba","moe","attention","mlp")"}) {
    const ModelSpec spec = layer_words_read(file(words));
    ASSERT_FALSE(spec.has_error()) << words;
    ASSERT_EQ(spec.layers.size(), 4u) << words;
    EXPECT_EQ(spec.layers[3].attention.kind, AttentionKind::none) << words;
    EXPECT_EQ(spec.layers[2].attention.kind, AttentionKind::full) << words;
  }
  EXPECT_THAT(layer_words_says(file(R"("full_attention","sliding_attention")"), "wrong_type"),
              HasSubstr("There are: full_attention, linear_attention, moe, mlp"));
}

TEST(LayerWords, CrossAttentionOfMllamaHasNoRotary) {
  const auto file = [](const std::string& more, const char* layers = "12") {
    return R"({"model_type":"mllama_text_model","num_hidden_layers":)" + std::string(layers) +
           more + "}";
  };
  const auto of = [&](const std::string& text) {
    const ModelSpec spec = layer_words_read(text);
    EXPECT_FALSE(spec.has_error()) << text;
    return without_rotary(spec);
  };
  using Layers = std::vector<Index>;
  EXPECT_EQ(of(file(R"(,"cross_attention_layers":[1,7])")), (Layers{1, 7}));
  EXPECT_EQ(of(file(R"(,"cross_attention_layers":[])")), Layers{});
  // The class's own, where the file says nothing; those beyond the layers are none.
  EXPECT_EQ(of(file("")), (Layers{3, 8}));
  EXPECT_EQ(of(file(R"(,"cross_attention_layers":null)")), (Layers{3, 8}));
  EXPECT_EQ(of(file(R"(,"cross_attention_layers":[1,38])", "2")), Layers{1});
  EXPECT_EQ(of(R"({"model_type":"mllama_text_model"})"), (Layers{3, 8, 13, 18, 23, 28, 33, 38}));
  // layer_types says nothing of it.
  EXPECT_EQ(of(file(R"(,"layer_types":["full_attention","full_attention"],)"
                    R"("cross_attention_layers":[1])",
                    "2")),
            Layers{1});
  EXPECT_EQ(layer_words_says(file(R"(,"cross_attention_layers":["3"])"), "wrong_type").empty(),
            false);
}

TEST(NearKeys, OfAModelWithoutRotary) {
  const std::string more = R"(,"extra":{"rope_theta":5000.0}})";
  for (const char* type : {"bert", "gpt2", "bloom", "t5"})
    EXPECT_EQ(
        layer_words_says(R"({"model_type":")" + std::string(type) + "\"" + more, "nearly_a_key"),
        "")
        << type;
  EXPECT_THAT(layer_words_says(R"({"model_type":"llama")" + more, "nearly_a_key"),
              HasSubstr("nobody reads rope_theta in extra"));
}

TEST(NearKeys, AWordMoreIsAnotherKey) {
  EXPECT_EQ(layer_words_says(R"({"model_type":"llama","hidden_size":4096,"mm_hidden_size":1024})",
                             "nearly_a_key"),
            "");
  EXPECT_THAT(layer_words_says(R"({"model_type":"llama","hiden_size":4096})", "nearly_a_key"),
              HasSubstr("write hidden_size"));
}

TEST(NearKeys, MembersOfADictionaryThatIsNotThere) {
  const auto file = [](const std::string& more) {
    return R"({"model_type":"llama","factor":2.0)" + more + "}";
  };
  EXPECT_EQ(layer_words_says(file(""), "nearly_a_key"),
            "nobody reads factor: LlamaConfig reads it only inside rope_scaling, which the "
            "file does not have; move it into rope_scaling");
  EXPECT_EQ(layer_words_says(file(R"(,"rope_scaling":{"rope_type":"linear","factor":4.0})"),
                             "nearly_a_key"),
            "nobody reads factor beside rope_scaling: LlamaConfig reads it only inside; move "
            "it into rope_scaling");
  EXPECT_EQ(layer_words_says(file(R"(,"rope_parameters":{"rope_type":"linear","factor":4.0})"),
                             "nearly_a_key"),
            "nobody reads factor beside rope_parameters: LlamaConfig reads it only inside; move it "
            "into rope_parameters");
}

TEST(NearKeys, OneDictionaryInAnother) {
  const auto file = [](const std::string& inner) {
    return R"({"model_type":"llama","rope_scaling":{"rope_type":"linear","factor":2.0,)" + inner +
           "}}";
  };
  for (const char* code : {"nearly_a_key", "key_ignored"}) {
    const bool near = std::string(code) == "nearly_a_key";
    EXPECT_EQ(layer_words_says(file(R"("rope_scaling":{"factor":4.0})"), code),
              near ? "nobody reads rope_scaling inside rope_scaling; move its members one "
                     "level up"
                   : "");
    EXPECT_EQ(layer_words_says(file(R"("rope_scaling":null)"), code), "");
  }
}

}  // namespace
}  // namespace posenc
