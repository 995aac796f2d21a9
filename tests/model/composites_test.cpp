// SPDX-License-Identifier: Apache-2.0
// Files that leave parts out, state them in part or say things twice, against what transformers
// 5.23 did with the same file (composites.json, by tools/model_table/run_composites.py).
#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec read(const Json& config) {
  return read_hugging_face(config, "config.json");
}
const LayerSpec* first_that_turns(const ModelSpec& spec) {
  for (const auto& layer : spec.layers)
    if (layer.rotary) return &layer;
  return nullptr;
}

TEST(Composites, AsTransformersFillsThemIn) {
  const Json cases =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / "composites.json");
  int read_by_both = 0, turning = 0;
  for (const Json& c : cases.at("cases").as_array()) {
    const std::string who = c.at("config").dump();
    const ModelSpec spec = read(c.at("config"));
    if (c.find("refused")) {
      EXPECT_TRUE(spec.has_error()) << who;
      continue;
    }
    ASSERT_FALSE(spec.has_error()) << who << errors_of(spec);
    ++read_by_both;
    const Json* layers = c.find("layers");
    const Json* context = c.find("context");
    if (layers) {
      EXPECT_EQ(static_cast<Index>(spec.layers.size()), layers->as_integer()) << who;
    }
    if (context) {
      EXPECT_EQ(spec.context.value, context->as_integer()) << who;
    }
    const LayerSpec* layer = first_that_turns(spec);
    if (!layer || !c.find("pairs")) continue;
    ++turning;
    const auto f = frequencies(*layer);
    ASSERT_EQ(static_cast<Index>(f.size()), c.at("pairs").as_integer()) << who;
    const double second = c.at("second").as_number();
    EXPECT_LE(std::abs(f[1] - second), 1e-12 * second) << who;
    EXPECT_NEAR(gain(*layer), c.at("gain").as_number(), 1e-12) << who;
  }
  EXPECT_GE(read_by_both, 600);
  EXPECT_GE(turning, 280);
}

const Finding* finding(const ModelSpec& spec, const std::string& code, const std::string& where) {
  for (const auto& f : spec.findings)
    if (f.code == code && f.where == "config.json#" + where) return &f;
  return nullptr;
}
ModelSpec read(const char* text) {
  return read(parse_json(text, "config.json"));
}

// Mistral3Config holds 40 layers, theta 1e9 and no window; MistralConfig 32, 1e4 and 4096.
TEST(Composites, SayWhichClassHoldsAValue) {
  const ModelSpec missing = read(R"({"model_type":"mistral3"})");
  ASSERT_EQ(missing.layers.size(), 40u);
  const LayerSpec& layer = missing.layers.front();
  EXPECT_EQ(layer.field("base")->value, Json(1e9));
  EXPECT_EQ(layer.field("base")->origin, Origin::class_default);
  EXPECT_EQ(layer.field("base")->where, "Mistral3Config");
  EXPECT_EQ(layer.attention.kind, AttentionKind::full);
  EXPECT_EQ(missing.context.where, "Mistral3Config");
  EXPECT_TRUE(finding(missing, "missing_key", "/text_config"));
  ASSERT_EQ(missing.towers.size(), 1u);
  EXPECT_EQ(missing.towers.front().layers.size(), 24u);

  const ModelSpec empty = read(R"({"model_type":"mistral3","text_config":{}})");
  ASSERT_EQ(empty.layers.size(), 32u);
  EXPECT_EQ(empty.layers.front().field("base")->where, "MistralConfig");
  EXPECT_EQ(empty.layers.front().attention.left, 4095);
  EXPECT_FALSE(finding(empty, "missing_key", "/text_config"));

  // Voxtral's stand under a stated part too.
  const ModelSpec under = read(R"({"model_type":"voxtral","text_config":{"num_hidden_layers":4}})");
  ASSERT_EQ(under.layers.size(), 4u);
  EXPECT_EQ(under.layers.front().field("base")->value, Json(1e8));
  EXPECT_EQ(under.context.value, 131072);
}

TEST(Composites, SayWhichKeysStandWhereNobodyLooks) {
  for (const char* type : {"qwen3_vl", "gemma3", "mistral3", "llava", "glm46v"}) {
    const ModelSpec spec =
        read(Json::object({{"model_type", type}, {"rope_theta", 777.0}, {"num_hidden_layers", 4}}));
    EXPECT_TRUE(finding(spec, "key_ignored", "/rope_theta")) << type;
    EXPECT_TRUE(finding(spec, "key_ignored", "/num_hidden_layers")) << type;
  }
  // Qwen2-VL takes fields of its text class from there, and no other key.
  const ModelSpec flat = read(R"({"model_type":"qwen2_vl","rope_theta":777.0,"head_dim":64})");
  EXPECT_EQ(flat.layers.front().field("base")->value, Json(777.0));
  EXPECT_EQ(flat.layers.front().rotary->head_dim, 128);
  EXPECT_FALSE(finding(flat, "key_ignored", "/rope_theta"));
  EXPECT_TRUE(finding(flat, "key_ignored", "/head_dim"));
  // A copy beside a text part that speaks of rotary is nothing to say.
  const ModelSpec copy = read(R"({"model_type":"qwen3_vl","rope_theta":777.0,"hidden_size":64,
      "text_config":{"rope_theta":777.0}})");
  EXPECT_FALSE(finding(copy, "key_ignored", "/rope_theta"));
  EXPECT_FALSE(finding(copy, "key_ignored", "/hidden_size"));
  EXPECT_TRUE(finding(read(R"({"model_type":"qwen3_vl","rope_theta":777.0,"text_config":{}})"),
                      "key_ignored", "/rope_theta"));
}

TEST(Composites, NameBothValuesOfTwoSpellings) {
  const ModelSpec names = read(R"({"model_type":"gpt2","n_layer":4,"num_hidden_layers":8})");
  const Finding* f = finding(names, "both_spellings", "/n_layer");
  ASSERT_TRUE(f);
  EXPECT_NE(f->message.find("n_layer is 4 and num_hidden_layers 8"), std::string::npos);
  EXPECT_EQ(f->value, 8.0);
  EXPECT_FALSE(finding(read(R"({"model_type":"gpt2","n_layer":8,"num_hidden_layers":8})"),
                       "both_spellings", "/n_layer"));
  const ModelSpec parts = read(R"({"model_type":"clip","text_config":{"num_hidden_layers":3},
      "text_config_dict":{"num_hidden_layers":5}})");
  EXPECT_EQ(parts.layers.size(), 5u);
  const Finding* both = finding(parts, "both_spellings", "/text_config_dict");
  ASSERT_TRUE(both);
  EXPECT_NE(both->message.find("num_hidden_layers (5 and 3)"), std::string::npos) << both->message;
}

// Shapes of the tables of models that transformers built from empty files.
TEST(Composites, TablesOfClipsKin) {
  struct Want {
    const char *type, *text, *vision;
  };
  for (const Want& w :
       {Want{"altclip", "learned width=1024 rows=514 offset=2", "learned width=768 rows=50"},
        Want{"chinese_clip", "learned width=768 rows=512", "learned width=768 rows=50"},
        Want{"clipseg", "learned width=512 rows=77", "learned width=768 rows=50"},
        Want{"metaclip_2", "learned width=512 rows=77", "learned width=768 rows=50"},
        Want{"xclip", "learned width=512 rows=77", "learned width=768 rows=50"},
        Want{"owlvit", "learned width=512 rows=16", "learned width=768 rows=577"},
        Want{"owlv2", "learned width=512 rows=16", "learned width=768 rows=2305"},
        Want{"bridgetower", "learned width=768 rows=514 offset=2", "learned width=768 rows=325"},
        Want{"clap", "learned width=768 rows=514 offset=2", nullptr},  // a Swin of spectrograms
        Want{"groupvit", "learned width=256 rows=77", "learned width=384 rows=196"},
        Want{"siglip2", "learned width=768 rows=64", "learned width=768 rows=256"},
        Want{"aimv2", "learned width=768 rows=77", "learned width=1024 rows=256"}}) {
    const ModelSpec spec = read(Json::object({{"model_type", w.type}}));
    ASSERT_FALSE(spec.has_error()) << w.type << errors_of(spec);
    ASSERT_EQ(spec.input.size(), 1u) << w.type;
    EXPECT_EQ(to_text(spec.input.front().value), w.text) << w.type;
    ASSERT_EQ(spec.towers.size(), 1u) << w.type;
    if (w.vision) {
      EXPECT_EQ(to_text(spec.towers.front().input.front().value), w.vision);
    } else {
      EXPECT_EQ(spec.towers.front().layers.front().scheme, "swin");
    }
  }
  EXPECT_EQ(read(R"({"model_type":"clipseg"})").layers.front().attention.right, 0);
  EXPECT_FALSE(read(R"({"model_type":"siglip2"})").layers.front().attention.right);
  EXPECT_TRUE(finding(read(R"({"model_type":"bridgetower","text_config":{"num_hidden_layers":3},
      "text_config_dict":{"num_hidden_layers":5}})"),
                      "key_ignored", "/text_config_dict"));
}

// transformers: "property 'layers_block_type' of 'BambaConfig' object has no setter".
TEST(Composites, LayerTypesThatAreComputedCannotBeStated) {
  for (const char* type : {"bamba", "falcon_h1", "recurrent_gemma"})
    EXPECT_TRUE(
        read(Json::object({{"model_type", type}, {"layer_types", Json::array()}})).has_error())
        << type;
}

}  // namespace
}  // namespace posenc
