// SPDX-License-Identifier: Apache-2.0
// What configuration classes of transformers 5.23 refuse on loading, or their models on being
// built.
#include <algorithm>

#include "class_rules.h"
#include "model/diagnostics.h"
#include "model/hugging_face/class_rules/class_rules.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec read_text_of(const std::string& type, const std::string& key, const std::string& value) {
  return read("{\"model_type\":\"" + type + "\",\"" + key + "\":" + value + "}");
}

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

// Run: the class, the key and the value that transformers refuses. It names them too.
TEST(ClassRefusals, WhatTheFieldsOfAClassDoNotTake) {
  const struct {
    const char *type, *key, *value, *wanted;
  } refused[] = {
      {"llama", "num_key_value_heads", "\"8\"", "a whole number, got \"8\""},
      {"llama", "num_attention_heads", "64.0", "without a point, got 64.0"},
      {"llama", "head_dim", "500000.0", "to 65536, got 500000.0"},
      {"llama", "pad_token_id", "\"0\"", "a whole number, got \"0\""},
      {"llama", "pad_token_id", "0.0", "without a point, got 0.0"},
      {"mistral", "sliding_window", "500000.0", "without a point, got 500000.0"},
      {"falcon", "rope_parameters", "false", "an object or null, got false"},
      {"llama", "rope_parameters", "0", "an object or null, got 0"},
      {"llama", "rope_parameters", "[]", "an object or null, got []"},
      {"llama", "rope_parameters", "\"\"", "an object or null, got \"\""},
      {"bert", "rope_parameters", "1", "an object or null, got 1"},
      {"bert", "rope_scaling", "\"x\"", "an object or null, got \"x\""},
      {"gemma3_text", "rope_scaling", "false", "an object or null, got false"},
      {"cohere2_moe", "rope_scaling", "\"\"", "an object or null, got \"\""},
      {"smollm3", "no_rope_layers", "[]", "each of the 36 layers, got []"},
      {"smollm3", "no_rope_layers", "false", "a list or null, got false"},
      {"llama4_text", "no_rope_layers", "{}", "a list or null, got {}"},
  };
  for (const auto& [type, key, value, wanted] : refused) {
    const ModelSpec spec = read_text_of(type, key, value);
    const std::string place = "config.json#/" + std::string(key);
    const auto it = std::find_if(spec.findings.begin(), spec.findings.end(), [&](const Finding& f) {
      return f.severity == Severity::error && f.where == place;
    });
    ASSERT_NE(it, spec.findings.end()) << type << " " << key << " " << value;
    EXPECT_NE(it->message.find(key), std::string::npos) << it->message;
    EXPECT_NE(it->message.find(wanted), std::string::npos) << it->message;
  }
}

TEST(ClassRefusals, WhatTheFieldsOfAClassTake) {
  const struct {
    const char *type, *key, *value;
    bool warns;
  } taken[] = {
      {"llama", "rope_scaling", "false", true},       {"llama", "rope_scaling", "[]", true},
      {"llama", "rope_scaling", "null", false},       {"llama", "rope_scaling", "{}", false},
      {"llama", "rope_parameters", "null", false},    {"llama", "rope_parameters", "{}", false},
      {"gemma3_text", "rope_scaling", "[]", true},    {"llama", "rope_theta", "10000", false},
      {"llama", "rope_theta", "10000.0", false},      {"mistral", "sliding_window", "null", false},
      {"llama4_text", "no_rope_layers", "[]", false}, {"smollm3", "no_rope_layers", "null", false},
      {"bert", "rope_parameters", "0", true},
  };
  for (const auto& [type, key, value, warns] : taken) {
    const ModelSpec spec = read_text_of(type, key, value);
    EXPECT_FALSE(spec.has_error()) << type << " " << key << " " << value << errors_of(spec);
    EXPECT_EQ(finding(spec, "wrong_type") != nullptr, warns) << type << " " << key << " " << value;
  }
}

TEST(ClassRefusals, KeyHeadsDivideTheHeads) {
  const auto config = [](const char* type, const char* heads) {
    return R"({"model_type":")" + std::string(type) + R"(","num_attention_heads":32,)" +
           R"("num_key_value_heads":)" + heads + "}";
  };
  for (const char* heads : {"0", "-8", "5", "33", "64"}) {
    expect_refused(config("llama", heads), "wrong_type");
    expect_refused(config("zamba", heads), "wrong_type");
  }
  for (const char* heads : {"1", "8", "32", "null"})
    EXPECT_FALSE(read(config("llama", heads)).has_error()) << heads;
  EXPECT_FALSE(read(config("deepseek_v4", "5")).has_error());  // one key head, whatever it says
}

// A key that a class has under another name, or one of a list, is named as the file has it.
TEST(ClassRefusals, TheKeyOfTheFileIsNamed) {
  const auto first = [](const std::string& text) {
    const std::string all = errors_of(read(text));
    return all.substr(0, all.find('\n'));
  };
  for (const auto& [type, key] : {std::pair{"gemma3_text", "rope_local_base_freq"},
                                  {"modernbert", "local_rope_theta"},
                                  {"gpt_neox", "rotary_emb_base"},
                                  {"deepseek_v4", "compress_rope_theta"}})
    EXPECT_EQ(first(message(R"({"model_type":"{}","{}":-5})", type, key)),
              message("theta_not_positive config.json#/{}: {} must be above 0, got -5", key, key));
  EXPECT_EQ(
      first(R"({"model_type":"step3p5","rope_theta":[-5]})").find("#/rope_theta/0: rope_theta"),
      std::string("theta_not_positive config.json").size());
  EXPECT_EQ(first(R"({"model_type":"gpt_neox","rotary_pct":5})"),
            "partial_out_of_range config.json#/rotary_pct: rotary_pct must be above 0 and at most "
            "1, got 5");
  EXPECT_EQ(
      first(R"({"model_type":"gpt2","n_layer":-1})"),
      "wrong_type config.json#/n_layer: n_layer must be a whole number from 0 to 10000, got -1");
}

// The entry, the word, the nearest and all that there are, in every class with layer types.
TEST(ClassRefusals, AWordThatIsNoLayerType) {
  int classes = 0;
  for (const auto& [type, rules] : hf::all_class_rules()) {
    if (!rules.typed || contains(rules.computed, "layer_types") || !rules.defaults.is_object())
      continue;
    const std::size_t layers = read(Json::object({{"model_type", type}}).dump()).layers.size();
    if (layers < 2 || (rules.layers && rules.layers->rule == "letters")) continue;
    const std::string good = rules.type_words.empty() ? "full_attention" : rules.type_words[0];
    Json words = Json::array();
    for (std::size_t i = 0; i < layers; ++i)
      words.as_array().emplace_back(i == 1 ? "sliding_atention" : good);
    const std::string* own = rules.names.find("layer_types");
    const std::string key = own ? *own : "layer_types";
    const ModelSpec spec = read(Json::object({{"model_type", type}, {key, words}}).dump());
    ++classes;
    const auto f = std::find_if(spec.findings.begin(), spec.findings.end(),
                                [&](const Finding& x) { return x.where.ends_with(key + "/1"); });
    ASSERT_NE(f, spec.findings.end()) << type << "\n" << errors_of(spec);
    EXPECT_EQ(f->message.find(key + " holds \"sliding_atention\""), 0U) << f->message;
    const bool slides = rules.type_words.empty() || contains(rules.type_words, "sliding_attention");
    EXPECT_EQ(f->fix.find("did you mean sliding_attention? "), slides ? 0U : f->fix.npos) << f->fix;
    EXPECT_NE(f->fix.find("There are: " + good + ", "), f->fix.npos) << f->fix;
  }
  EXPECT_GE(classes, 70);
  const ModelSpec spec = read(R"({"model_type":"recurrent_gemma","block_types":["recurent"]})");
  const Finding* f = finding(spec, "wrong_type");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->where, "config.json#/block_types/0");
  EXPECT_EQ(f->fix, "did you mean recurrent? There are: recurrent, attention");
}

}  // namespace
}  // namespace posenc
