// SPDX-License-Identifier: Apache-2.0
// How classes of transformers 5.23 normalise q and k: each line names the class whose __init__ and
// forward were read.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "model/hugging_face/class_rules/class_rules.h"
#include "posenc/model/read.h"

namespace posenc {
namespace {

ModelSpec of(const std::string& type, const std::string& more = "") {
  return read_hugging_face(
      parse_config("{\"model_type\":\"" + type + "\"" + more + "}", "config.json"), "config.json");
}
// HunYuan's classes leave head_dim null.
const std::string kHead = R"(,"head_dim":128)";
// What explain says of it; empty: nothing. Of the text, or of the first tower that has layers.
std::string said(const ModelSpec& model, std::size_t layer = 0) {
  for (const Finding& f : model.findings)
    if (f.severity == Severity::error) return f.message;
  for (const Requirement& r : must_honour(model.layers.at(layer)))
    if (r.what == "qk_norm") return r.text;
  return "";
}

// RMS norm of head_dim weights, then apply_rotary_pos_emb: Qwen3Attention, Gemma3Attention (its
// norm multiplies by 1 + weight), Lfm2Attention (norm_eps), Qwen3NextAttention (full attention
// alone), Gemma4VisionAttention, T5Gemma2MergedAttention.
TEST(QkNorm, RmsOverEachHeadBeforeTheRotation) {
  EXPECT_EQ(said(of("qwen3")),
            "normalise q and k: RMS norm over each head of 128, before the rotation, eps 1e-06 "
            "(rms_norm_eps)");
  EXPECT_EQ(said(of("qwen3", R"(,"rms_norm_eps":0.001)")),
            "normalise q and k: RMS norm over each head of 128, before the rotation, eps 0.001 "
            "(rms_norm_eps)");
  EXPECT_EQ(said(of("gemma3_text")),
            "normalise q and k: RMS norm over each head of 256, before the rotation, 1 is added to "
            "its weights, eps 1e-06 (rms_norm_eps)");
  EXPECT_EQ(said(of("lfm2"), 2),
            "normalise q and k: RMS norm over each head of 80, before the rotation, eps 1e-05 "
            "(norm_eps)");
  EXPECT_EQ(said(of("qwen3_next")), "");  // linear attention
  EXPECT_NE(said(of("qwen3_next"), 3), "");
  EXPECT_NE(said(of("gemma4_vision")).find("RMS norm over each head"), std::string::npos);
  EXPECT_NE(said(of("t5gemma2_decoder")).find("1 is added to its weights"), std::string::npos);
}

// Olmo2Attention, OlmoeAttention, MiniMaxM2Attention: weights of num_attention_heads * head_dim;
// EsmcAttention: a LayerNorm of hidden_size.
TEST(QkNorm, OverAllHeadsAtOnce) {
  EXPECT_EQ(said(of("olmo2")),
            "normalise q and k: RMS norm over all heads at once, before the rotation, eps 1e-05 "
            "(rms_norm_eps)");
  EXPECT_NE(said(of("olmoe")).find("all heads at once"), std::string::npos);
  EXPECT_NE(said(of("minimax_m2")).find("all heads at once"), std::string::npos);
  EXPECT_EQ(said(of("esmc")),
            "normalise q and k: LayerNorm over all heads at once, before the rotation, eps 1e-05");
}

// HunYuanDenseV1Attention, TimesFm2_5Attention, NanoChatAttention (no weights): after
// apply_rotary_pos_emb.
TEST(QkNorm, AfterTheRotation) {
  EXPECT_NE(said(of("hunyuan_v1_dense", kHead)).find("after the rotation, eps 1e-05"),
            std::string::npos);
  EXPECT_NE(said(of("timesfm2_5")).find("after the rotation"), std::string::npos);
  EXPECT_EQ(said(of("nanochat")),
            "normalise q and k: RMS norm over each head of 128, after the rotation, no weights, "
            "eps 1e-06 (rms_norm_eps)");
}

// Llama4TextAttention: Llama4TextL2Norm, x * rsqrt(mean(x^2) + eps), where use_rope and
// use_qk_norm.
TEST(QkNorm, Llama4OnlyWhereItRotates) {
  const ModelSpec scout = of("llama4_text");
  for (const LayerSpec& layer : scout.layers)
    EXPECT_EQ(layer.qk_norm.has_value(), layer.rotary.has_value()) << layer.index;
  EXPECT_EQ(said(scout),
            "normalise q and k: RMS norm over each head of 128, after the rotation, no weights, "
            "eps 1e-05 (rms_norm_eps)");
  EXPECT_EQ(said(scout, 3), "");
  EXPECT_EQ(said(of("llama4_text", R"(,"use_qk_norm":false)")), "");
}

// CohereAttention, Glm4MoeAttention, Sapiens2Attention, PersimmonAttention, PhiAttention,
// StableLmAttention, InternVLVisionAttention: what the class holds for the switch, and both of its
// values.
TEST(QkNorm, SwitchesAndTheirDefaults) {
  const struct {
    const char *type, *key;
    bool held;
  } all[] = {{"cohere", "use_qk_norm", false},         {"glm4_moe", "use_qk_norm", false},
             {"sapiens2", "use_qk_norm", true},        {"persimmon", "qk_layernorm", true},
             {"phi", "qk_layernorm", false},           {"stablelm", "qk_layernorm", false},
             {"internvl_vision", "use_qk_norm", false}};
  for (const auto& one : all) {
    const std::string key = std::string(",\"") + one.key + "\":";
    EXPECT_EQ(said(of(one.type)).empty(), !one.held) << one.type;
    EXPECT_EQ(said(of(one.type, key + "false")), "") << one.type;
    const ModelSpec on = of(one.type, key + "true");
    EXPECT_EQ(said(on).find("normalise q and k: "), 0U) << one.type;
    const FieldValue* field = on.layers.front().field("qk_norm");
    ASSERT_NE(field, nullptr) << one.type;
    EXPECT_EQ(field->origin, Origin::derived) << one.type;
    EXPECT_EQ(field->where, std::string("config.json#/") + one.key) << one.type;
  }
  EXPECT_EQ(said(of("cohere", R"(,"use_qk_norm":null)")), "");
  EXPECT_EQ(said(of("cohere", R"(,"use_qk_norm":true)")),
            "normalise q and k: LayerNorm over each head of 128, before the rotation, each head "
            "has its own weights, eps 1e-05 (layer_norm_eps)");
}

// Molmo2Attention: qk_norm_type. ChameleonAttention: LayerNorm, eps 1e-5 in the code.
// Dots3NoteTextAttention: k_rope_only_layernorm. DeepseekV4Attention: q_b_norm has no weights.
// ZayaQKNorm, Swinv2SelfAttention: L2. MuseGlimmerTextAttention: qk_scale_factor, and layers
// without rotation.
TEST(QkNorm, ClassesOfTheirOwn) {
  EXPECT_NE(said(of("molmo2_text")).find("over each head"), std::string::npos);
  EXPECT_NE(said(of("molmo2_text", R"(,"qk_norm_type":"olmo")")).find("all heads at once"),
            std::string::npos);
  EXPECT_TRUE(of("molmo2_text", R"(,"qk_norm_type":"other")").has_error());
  EXPECT_NE(said(of("chameleon")).find("LayerNorm over each head of 128, before"),
            std::string::npos);
  EXPECT_EQ(said(of("dots3_note_text")),
            "normalise k: RMS norm over the rotated channels of 64, before the rotation, eps 1e-05 "
            "(rms_norm_eps)");
  EXPECT_NE(said(of("deepseek_v4")).find("only k has weights"), std::string::npos);
  EXPECT_NE(said(of("zaya")).find("division by the L2 norm over each head"), std::string::npos);
  EXPECT_NE(said(of("swinv2")).find("over each head, no weights, eps 1e-12; the scale"),
            std::string::npos);
  const ModelSpec muse = of("muse_glimmer_text");
  for (std::size_t i = 0; i < muse.layers.size(); ++i) {
    const std::string text = said(muse, i);
    EXPECT_NE(text.find("qk_scale_factor"), std::string::npos);
    EXPECT_EQ(text.find("rotation") != std::string::npos, muse.layers[i].rotary.has_value());
  }
}

TEST(QkNorm, NothingIsSaidOfTheOthers) {
  for (const char* type : {"llama", "mistral", "gpt_oss", "deepseek_v3", "idefics", "bert"})
    EXPECT_EQ(said(of(type)), "") << type;
}

TEST(QkNorm, TheJsonHasItsParts) {
  const Json layer = explain_json(of("hunyuan_v1_dense", kHead), 0).at("layers").as_array().at(0);
  const Json& norm = layer.at("must_honour").as_array().at(0);
  EXPECT_EQ(norm.at("what").as_string(), "qk_norm");
  EXPECT_EQ(norm.at("value").dump(),
            R"({"kind": "rms", "over": "head", "channels": 128, "rotation": "after", "of": )"
            R"("q and k", "weights": "shared", "plus_one": false, "eps": 1e-05, "eps_key": )"
            R"("rms_norm_eps", "note": null})");
}

// Every model type whose modeling file speaks of such a norm has an entry, or is listed with
// why not.
TEST(QkNorm, EveryModelingFileThatNormalisesIsKnown) {
  const Json list = read_json(std::string(POSENC_SOURCE_DIR) + "/tests/model/qk_norm_types.json");
  std::set<std::string> listed;
  for (const Json& type : list.at("normalised").as_array()) {
    listed.insert(type.as_string());
    const hf::ClassRules* rules = hf::class_rules(type.as_string());
    ASSERT_NE(rules, nullptr) << type.as_string();
    EXPECT_TRUE(rules->qk_norm) << type.as_string();
  }
  EXPECT_EQ(listed.size(), 81U);
  for (const auto& [why, types] : list.at("others").as_object())
    for (const Json& type : types.as_array()) {
      const hf::ClassRules* rules = hf::class_rules(type.as_string());
      ASSERT_NE(rules, nullptr) << type.as_string();
      EXPECT_FALSE(rules->qk_norm) << type.as_string() << ": " << why;
    }
  for (const auto& [type, rules] : hf::all_class_rules()) {
    if (!rules.qk_norm) continue;
    EXPECT_TRUE(listed.count(type) != 0 || !rules.remote.empty()) << type;
    const std::string& key = rules.qk_norm->switch_key;
    EXPECT_TRUE(key.empty() || rules.defaults.find(key) != nullptr) << type;
  }
}

}  // namespace
}  // namespace posenc
