// SPDX-License-Identifier: Apache-2.0
// What stands at the embedding, and whether anything acts in the score, against small models that
// transformers 5.23 built and ran (input_encodings.json, written by
// tools/model_table/run_input.py): rows and widths of tables, the row that the first token reads,
// rows of sinusoids as numbers, the factor on the embedding.
#include <cmath>

#include "hugging_face_suite.h"
#include "input_rows.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec read(const std::string& text) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json");
}
const std::vector<InputEncoding>& input_of(const ModelSpec& spec, const std::string& part) {
  if (part == "encoder" && !spec.towers.empty()) return spec.towers.front().input;
  return spec.input;
}

void check_table(const Encoding& encoding, const Json& want, const std::string& who) {
  const Learned* table = std::get_if<Learned>(&encoding.scheme);
  ASSERT_NE(table, nullptr) << who << to_text(encoding);
  EXPECT_EQ(table->rows, want.at("rows").as_integer()) << who;
  EXPECT_EQ(table->width, want.at("width").as_integer()) << who;
  if (const Json* first = want.find("first")) {
    EXPECT_EQ(table->offset, first->as_integer()) << who;
  }
}

double gain_of(const Encoding& encoding) {
  double gain = 0;
  std::visit(
      [&](const auto& s) {
        if constexpr (requires { s.input_gain; }) gain = s.input_gain;
      },
      encoding.scheme);
  return gain;
}

struct Counts {
  int tables = 0, sines = 0, gains = 0, convolutions = 0;
};

void check_at_input(const InputEncoding& got, const Json& want, const std::string& who, Counts& n) {
  if (const Json* values = want.find("values")) {
    check_rows(got.value, *values, who), ++n.sines;
  } else if (const Json* kernel = want.find("kernel")) {
    const auto* module = std::get_if<Convolutional>(&got.value.scheme);
    ASSERT_NE(module, nullptr) << who;
    EXPECT_EQ(module->kernel, kernel->as_integer()) << who;
    EXPECT_EQ(module->groups, want.at("groups").as_integer()) << who;
    ++n.convolutions;
  } else {
    check_table(got.value, want, who), ++n.tables;
  }
}

Counts check_cases(const char* file) {
  Counts n;
  const Json cases = read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / file);
  for (const Json& c : cases.at("cases").as_array()) {
    const std::string who = c.at("config").dump() + "\n";
    const ModelSpec spec = read_hugging_face(c.at("config"), "config.json");
    EXPECT_FALSE(spec.has_error()) << who << errors_of(spec);
    std::size_t own = 0;
    for (const Json& want : c.at("tables").as_array()) {
      const std::string part = want.at("part").as_string();
      const auto& input = input_of(spec, part);
      EXPECT_FALSE(input.empty()) << who << part;
      own += part != "encoder";
      if (!input.empty()) check_at_input(input.front(), want, who, n);
    }
    const std::string type = c.at("config").at("model_type").as_string();
    const bool module = type == "wav2vec2" || type == "hubert" || type == "wavlm";
    EXPECT_EQ(spec.input.empty(), own == 0 && !module) << who;
    for (const auto& [part, gain] : c.at("gain").as_object()) {
      EXPECT_NEAR(gain_of(input_of(spec, part).front().value), gain.as_number(), 1e-4)
          << who << part;
      ++n.gains;
    }
    bool acts = false;
    for (const auto& layer : spec.layers)
      acts = acts || (layer.scheme != "none" && (layer.scheme != "t5" || c.find("layers")) &&
                      layer.scheme != "swin_v2");
    EXPECT_EQ(acts, c.at("acts_in_score").as_bool()) << who;
    if (const Json* layers = c.find("layers")) {
      EXPECT_EQ(static_cast<Index>(spec.layers.size()), layers->as_integer()) << who;
    }
  }
  return n;
}

TEST(InputEncodings, AsTransformersBuildsAndRunsThem) {
  const Counts n = check_cases("input_encodings.json");
  EXPECT_GE(n.tables, 70);
  EXPECT_GE(n.sines, 35);
  EXPECT_GE(n.gains, 50);
}

// The same of texts, speech, sound and time series (run_text_and_sound.py), and how many layers.
TEST(InputEncodings, OfTextAndSoundAsTransformersBuildsAndRunsThem) {
  const Counts n = check_cases("text_and_sound.json");
  EXPECT_GE(n.tables, 20);
  EXPECT_GE(n.sines, 20);
  EXPECT_GE(n.gains, 18);
  EXPECT_EQ(n.convolutions, 2);
}

std::string only_input(const ModelSpec& spec) {
  std::string text;
  for (const auto& e : spec.input) text += (text.empty() ? "" : " | ") + to_text(e.value);
  return text;
}

// Shapes of LayoutLM's tables and of the convolutions: named parameters of the same models at their
// own sizes (768 channels, 16 groups of 48, a kernel of 128).
TEST(InputEncodings, BoxesAndConvolutions) {
  EXPECT_EQ(only_input(read(R"({"model_type":"layoutlm"})")),
            "learned width=768 rows=512 | boxes width=768");
  EXPECT_EQ(
      only_input(read(R"({"model_type":"layoutlmv3"})")),
      "learned width=768 rows=512 offset=2 | boxes width=768 coordinate=128 shape=128 clip=true");
  EXPECT_EQ(only_input(read(R"({"model_type":"layoutlmv2"})")),
            "learned width=768 rows=512 | boxes width=768 coordinate=128 shape=128");
  EXPECT_TRUE(read(R"({"model_type":"layoutlmv2","coordinate_size":100})").has_error());
  const ModelSpec one = read(R"({"model_type":"layoutlmv3","has_spatial_attention_bias":false})");
  EXPECT_EQ(to_text(one.layers.front().encodings.at(0).value),
            "t5 bidirectional=true bias_scale=0.125 heads_first=true");
  EXPECT_EQ(
      read(R"({"model_type":"layoutlmv3","has_relative_attention_bias":false})").layers[0].scheme,
      "none");
  EXPECT_EQ(
      read(R"({"model_type":"layoutlmv2","has_relative_attention_bias":false})").layers[0].scheme,
      "layoutlm");
  for (const char* type : {"wav2vec2", "hubert", "wavlm"}) {
    const ModelSpec spec = read(std::string("{\"model_type\":\"") + type + "\"}");
    EXPECT_EQ(only_input(spec), "convolutional width=768") << type;
    EXPECT_EQ(spec.layers.front().scheme, std::string(type) == "wavlm" ? "wavlm" : "none");
  }
  EXPECT_TRUE(read(R"({"model_type":"hubert","conv_pos_batch_norm":true})").input.empty());
}

TEST(InputEncodings, AlibiOfFalconAndMpt) {
  const ModelSpec falcon = read(
      R"({"model_type":"falcon","alibi":true,"hidden_size":2048,"num_attention_heads":32,"num_hidden_layers":1})");
  EXPECT_EQ(to_text(falcon.layers.at(0).encodings.at(0).value),
            "alibi bias_scale=0.125 precision=falcon_bfloat16");
  EXPECT_TRUE(
      read(R"({"model_type":"falcon","alibi":null,"num_hidden_layers":1})").layers.at(0).rotary);
  const ModelSpec mpt =
      read(R"({"model_type":"mpt","attn_config":{"alibi":false,"alibi_bias_max":16}})");
  ASSERT_FALSE(mpt.has_error()) << errors_of(mpt);
  EXPECT_TRUE(mpt.input.empty());
  EXPECT_EQ(to_text(mpt.layers.at(0).encodings.at(0).value), "alibi");
  int ignored = 0;
  for (const auto& f : mpt.findings) ignored += f.code == "key_ignored";
  EXPECT_EQ(ignored, 2);
}

TEST(InputEncodings, WhatCannotBeCountedOrBuiltIsRefused) {
  for (const char* text :
       {R"({"model_type":"roberta","pad_token_id":null})",  // positions cannot be counted
        R"({"model_type":"roberta","pad_token_id":600})",   // torch: no such row
        R"({"model_type":"bert","max_position_embeddings":null})",
        R"({"model_type":"pegasus_x","d_model":33})",
        R"({"model_type":"m2m_100","d_model":2})",  // log(10000) / 0
        R"({"model_type":"clip_vision_model","image_size":[224,384]})",
        R"({"model_type":"vit","image_size":[224]})", R"({"model_type":"vit","image_size":224.0})",
        R"({"model_type":"vit_mae","image_size":[224,384]})"}) {
    EXPECT_TRUE(read(text).has_error()) << text;
  }
  EXPECT_EQ(only_input(read(R"({"model_type":"roberta","pad_token_id":-1})")),
            "learned width=768 rows=512");
}

// transformers' own verdict on each (StrictDataclassFieldValidationError, or accepted).
TEST(Switches, TakeTrueAndFalseOnly) {
  for (const char* text :
       {R"({"model_type":"bert","is_decoder":"false"})", R"({"model_type":"bert","is_decoder":0})",
        R"({"model_type":"bert","is_decoder":null})",
        R"({"model_type":"deepseek_v3","rope_interleave":"false"})",
        R"({"model_type":"glm4_moe_lite","rope_interleave":null})",
        R"({"model_type":"qwen2","use_sliding_window":"false"})",
        R"({"model_type":"falcon","alibi":"false"})",
        R"({"model_type":"mpt","attn_config":{"alibi":"false"}})",
        R"({"model_type":"mpt","attn_config":{"alibi":null}})",
        R"({"model_type":"marian","scale_embedding":1})",
        R"({"model_type":"qwen2_audio_encoder","scale_embedding":"false"})",
        R"({"model_type":"deberta","relative_attention":"true"})",
        R"({"model_type":"zamba2","use_mem_rope":"false"})",
        R"({"model_type":"llama4_text","attn_temperature_tuning":"false"})",
        R"({"model_type":"smollm3","no_rope_layers":[true,false],"num_hidden_layers":2})"}) {
    const ModelSpec spec = read(text);
    bool named = false;
    for (const auto& f : spec.findings)
      named = named || (f.severity == Severity::error && f.code == "wrong_type");
    EXPECT_TRUE(named) << text;
  }
  for (const char* text :
       {R"({"model_type":"bart","scale_embedding":null})",
        R"({"model_type":"deepseek_v3","rope_interleave":null,"num_hidden_layers":1})",
        R"({"model_type":"qwen2_vl_text","use_sliding_window":null})"})
    EXPECT_FALSE(read(text).has_error()) << text << errors_of(read(text));
  // null is off, not the class's default
  EXPECT_EQ(read(R"({"model_type":"deepseek_v3","rope_interleave":null,"num_hidden_layers":1})")
                .layers.at(0)
                .rotary->blocks.front()
                .pairing,
            Pairing::half_split);
  // an attribute that the class does not have decides nothing
  EXPECT_FALSE(read(R"({"model_type":"albert","is_decoder":true})").layers.at(0).attention.right);
  EXPECT_TRUE(read(R"({"model_type":"bert","is_decoder":true})").layers.at(0).attention.right);
}

}  // namespace
}  // namespace posenc
