// SPDX-License-Identifier: Apache-2.0
// What configuration classes of transformers 5.23 refuse on loading, or their models on being
// built.
#include "class_rules.h"

namespace posenc {
namespace {

using namespace test;

TEST(ClassRefusals, WhatTransformersRefuses) {
  const std::string yarn =
      R"("rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":512})";
  for (const char* type : {"phi", "starcoder2"}) {  // TypeError: None * float
    const std::string begin = std::string("{\"model_type\":\"") + type + "\",\"head_dim\":null,";
    expect_refused(begin + yarn + "}", "wrong_type");
    EXPECT_FALSE(
        read(begin + R"("rope_scaling":{"rope_type":"linear","factor":2.0}})").has_error());
  }
  expect_refused(R"({"model_type":"llama","rope_parameters":{"rope_type":"proportional",)"
                 R"("rope_theta":10000.0,"factor":null,"partial_rotary_factor":0.5}})",
                 "wrong_type");
  expect_refused(R"({"model_type":"mistral","sliding_window":0})", "wrong_type");
  expect_refused(R"({"model_type":"llama","max_position_embeddings":null})", "wrong_type");
  expect_refused(R"({"model_type":"llama","head_dim":64.0})", "wrong_type");
  std::string ones, twos;
  for (int i = 0; i < 64; ++i) ones += i > 0 ? ",1.0" : "1.0", twos += i > 0 ? ",2.0" : "2.0";
  const std::string longrope =
      R"({"model_type":"phimoe","rope_scaling":{"rope_type":"longrope","factor":4.0,)"
      R"("original_max_position_embeddings":4096,"short_factor":[)" +
      ones + "],\"long_factor\":[" + twos + "]";
  expect_refused(longrope + "}}", "missing_key");
  expect_refused(longrope + R"(,"short_mscale":1.2}})", "missing_key");
  EXPECT_FALSE(read(longrope + R"(,"short_mscale":1.2,"long_mscale":1.3}})").has_error());
  // Its forward makes the frequencies by the short list at every length; the gain alone switches.
  for (const Index length : {4096, 4097}) {
    ReadOptions options;
    options.context = length;
    const ModelSpec spec = read_hugging_face(
        parse_json(longrope + R"(,"short_mscale":1.2,"long_mscale":1.3}})", "config.json"),
        "config.json", options);
    ASSERT_FALSE(spec.has_error()) << errors_of(spec);
    const Spectrum& s = spec.layers.at(0).rotary->blocks.at(0).spectrum;
    EXPECT_EQ(s.gain, length > 4096 ? 1.3 : 1.2);
    EXPECT_EQ(s.frequency.at(0), 1.0);
  }
}

// transformers checks every whole number that a class holds, read or not; EXAONE's may be letters.
TEST(ClassRefusals, NumbersOfAnotherType) {
  for (const char* text :
       {R"({"model_type":"bert","pad_token_id":"0"})", R"({"model_type":"phi3","pad_token_id":{}})",
        R"({"model_type":"wav2vec2-bert","max_source_positions":"x"})",
        R"({"model_type":"trocr","decoder_attention_heads":true})",
        R"({"model_type":"speecht5","num_conv_pos_embeddings":"128"})",
        R"({"model_type":"blip_text_model","num_attention_heads":{}})"})
    expect_refused(text, "wrong_type");
  for (
      const char* text :
      {R"({"model_type":"bert","vocab_size":"x"})",
       R"({"model_type":"exaone4","sliding_window_pattern":"L","num_hidden_layers":0,"layer_types":[]})"})
    EXPECT_FALSE(finding(read(text), "wrong_type")) << text;
}

// Each fails in transformers, on loading or when its rotary is built.
TEST(ClassRefusals, WhatElseTransformersRefuses) {
  for (const char* type : {"gemma3_text", "cohere2", "qwen3_next", "modernbert", "afmoe"})
    for (const char* key :
         {"sliding_window_pattern", "full_attention_interval", "global_attn_every_n_layers"}) {
      const Json config = Json::object({{"model_type", type}, {key, nullptr}});
      const bool read_by_class =
          std::string(type) == "qwen3_next"  ? std::string(key) == "full_attention_interval"
          : type[0] == 'm' || type[0] == 'a' ? std::string(key) == "global_attn_every_n_layers"
                                             : std::string(key) == "sliding_window_pattern";
      EXPECT_EQ(read(config.dump()).has_error(), read_by_class) << config.dump();
    }
  for (const char* type : {"gemma4_text", "laguna", "mellum", "mimo_v2_flash", "zaya"})
    for (const char* scaling : {"null", "{}"})
      expect_refused(
          R"({"model_type":")" + std::string(type) + R"(","rope_scaling":)" + scaling + "}",
          "wrong_type");
  for (const char* type : {"exaone4", "dia_decoder", "glm4_moe_lite", "helium"})
    expect_refused(R"({"model_type":")" + std::string(type) + R"(","num_key_value_heads":null})",
                   "wrong_type");
  expect_refused(R"({"model_type":"llama","num_hidden_layers":2,"layer_types":["full_attention"]})",
                 "layer_types_length");
  expect_refused(R"({"model_type":"llama","num_hidden_layers":1,"layer_types":["nonsense"]})",
                 "wrong_type");
  expect_refused(R"({"model_type":"zamba2","num_hidden_layers":3})", "layer_types_length");
}

// A size that the scheme does not take is no model without positions: the finding names the key, the
// range and what stands there.
TEST(ClassRefusals, ASizeBeyondTheSchemeIsAnErrorAtItsKey) {
  const auto refusal = [](const std::string& text) {
    const ModelSpec spec = read(text);
    EXPECT_TRUE(spec.has_error()) << text;
    const Finding* f = finding(spec, "refused");
    return f ? f->where + ": " + f->message : errors_of(spec);
  };
  EXPECT_EQ(refusal(R"({"model_type":"bert","hidden_size":2000000})"),
            "config.json#/hidden_size: [scheme] learned: width must be within 1 and 1000000, got "
            "\"2000000\"");
  EXPECT_EQ(refusal(R"({"model_type":"t5","relative_attention_num_buckets":31})"),
            "config.json#/relative_attention_num_buckets: [t5] num_buckets must be even when "
            "bidirectional, got 31");
}

}  // namespace
}  // namespace posenc
