// SPDX-License-Identifier: Apache-2.0
// Classes of a model's own repository (remote code). remote_code.json: what the published rotary
// modules computed from small configurations (PyTorch, float32), each with the repository, file and
// commit it was taken from. real_models.json has whole files as they were released.
#include <algorithm>
#include <functional>
#include <set>

#include "by_the_book.h"
#include "hugging_face_suite.h"
#include "posenc/relative/alibi.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec read(const std::string& text, std::map<std::string, std::string> assume = {}) {
  ReadOptions options;
  options.assume = std::move(assume);
  return read_hugging_face(parse_json(text, "config.json"), "config.json", options);
}
const Finding* finding(const ModelSpec& spec, const std::string& code,
                       const std::string& part = "") {
  for (const auto& f : spec.findings)
    if (f.code == code && f.message.find(part) != std::string::npos) return &f;
  return nullptr;
}
const LayerSpec& first(const ModelSpec& spec) {
  return spec.layers.at(0);
}

// How far a layer's rotation is from what a case of the file says.
double farthest(const LayerSpec& layer, const Json& c) {
  double worst = 0;
  const auto& shape = c.at("shape").as_array();
  const auto width = static_cast<std::size_t>(shape[2].as_integer());
  EXPECT_EQ(layer.rotary->head_dim, shape[2].as_integer()) << name_of(c);
  const auto &q = c.at("q").as_array(), &want = c.at("turned").as_array();
  const Json* second = c.find("second_stream");
  for (std::size_t at = 0; at < q.size(); at += width) {
    const std::size_t token = at / width / static_cast<std::size_t>(shape[1].as_integer());
    std::vector<double> head, position{c.at("positions").as_array()[token].as_number()};
    if (second) position.push_back(second->as_array()[token].as_number());
    for (std::size_t i = 0; i < width; ++i) head.push_back(q[at + i].as_number());
    const auto got = turned(*layer.rotary, head, position);
    for (std::size_t i = 0; i < width; ++i)
      worst = std::max(worst, std::abs(got[i] - want[at + i].as_number()));
  }
  return worst;
}

const Json& remote_code() {
  static const Json all =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / "remote_code.json");
  return all;
}

TEST(RemoteCode, TurnsAsItsModuleDoes) {
  std::set<std::string> types;
  for (const Json& c : remote_code().at("cases").as_array()) {
    const std::string who = name_of(c);
    ReadOptions options;
    options.context = c.at("context").as_integer();
    const ModelSpec spec = read_hugging_face(c.at("config"), "config.json", options);
    ASSERT_FALSE(spec.has_error()) << who << errors_of(spec);
    ASSERT_TRUE(first(spec).rotary) << who;
    EXPECT_LE(farthest(first(spec), c), 4e-6) << who;  // float32 angles up to position 512
    types.insert(spec.model_type);
    EXPECT_TRUE(finding(spec, "remote_code")) << who;
  }
  EXPECT_EQ(types.size(), 19u);
}

// The original pairs neighbours; transformers' Kimi-K2.5 has its weights in another order.
TEST(RemoteCode, MoonViTTurnsByColumnAndRow) {
  const Json& c = remote_code().at("vision");
  const ModelSpec spec = read_hugging_face(c.at("config"), "config.json");
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  ASSERT_EQ(spec.towers.size(), 1u);
  EXPECT_LE(farthest(spec.towers[0].layers.at(0), c), 1e-6);
}

TEST(RemoteCode, BaichuanOf13BHasItsBias) {
  const Json& c = remote_code().at("alibi");
  const ModelSpec spec = read_hugging_face(c.at("config"), "config.json");
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  const Json explained = explain_json(spec);
  const Json& layer = explained.at("layers").as_array()[0];
  ASSERT_EQ(layer.at("encodings").as_array()[0].at("text"), Json("alibi"));
  const auto slopes = Alibi{}.slope(c.at("heads").as_integer());
  const auto& bias = c.at("bias").as_array();
  ASSERT_EQ(bias.size(), 3 * slopes.size());
  // the code counts from the first key, which adds the same to every score of a query
  for (std::size_t i = 0; i < bias.size(); ++i)
    EXPECT_NEAR(bias[i].as_number() - bias[i - i % 3 + 2].as_number(),
                -slopes[i / 3] * (2.0 - static_cast<double>(i % 3)), 1e-7);
}

struct Refused {
  const char *config, *code, *part;
};
// What no release of the code reads, or what several read otherwise, is refused by name.
TEST(RemoteCode, RefusesWhatItCannotTell) {
  const Refused all[] = {
      {R"({"model_type": "chatglm", "hidden_size": 4096})", "layout_not_covered", "share the type"},
      {R"({"model_type": "chatglm", "kv_channels": 128, "inner_hidden_size": 16384})",
       "layout_not_covered", "share the type"},
      {R"({"model_type": "chatglm", "kv_channels": 128, "rope_ratio": 16})", "layout_not_covered",
       "only the name in the file"},
      {R"({"model_type": "chatglm", "kv_channels": 128, "rope_ratio": 16,
           "_name_or_path": "chatglm2-to-chatglm3"})",
       "layout_not_covered", "only the name in the file"},
      {R"({"model_type": "chatglm", "kv_channels": 128, "rope_ratio": "16"})", "wrong_type",
       "rope_ratio must be a number above 0"},
      {R"({"model_type": "chatglm", "kv_channels": 128, "original_rope": false})",
       "layout_not_covered", "original_rope is false"},
      {R"({"model_type": "chatglm", "kv_channels": null, "seq_length": 8192})", "wrong_type",
       "null"},
      {R"({"model_type": "chatglm", "inner_hidden_size": 64, "hidden_size": 36,
           "num_attention_heads": 6})",
       "partial_out_of_range", "two axes share the head"},
      {R"({"model_type": "qwen", "kv_channels": 128})", "missing_key", "seq_length"},
      {R"({"model_type": "qwen", "seq_length": 8192, "kv_channels": 64})", "wrong_type",
       "32 heads of 64 channels"},
      {R"({"model_type": "qwen", "seq_length": 8192, "n_embd": 4096})", "layout_not_covered",
       "n_embd"},
      {R"({"model_type": "baichuan", "max_position_embeddings": 4096, "hidden_size": 5120})",
       "layout_not_covered", "ALiBi (13B)"},
      {R"({"model_type": "baichuan", "model_max_length": 4096, "hidden_size": 4096})",
       "layout_not_covered", "ALiBi (13B)"},
      {R"({"model_type": "internlm", "max_position_embeddings": 2048})", "layout_not_covered",
       "other keys"},
      {R"({"model_type": "internlm", "rope_theta": 10000,
           "rotary": {"base": 10000, "type": "dynamic"}})",
       "layout_not_covered", "other keys"},
      {R"({"model_type": "internlm", "rotary": {"base": 10000, "type": "linear"}})",
       "unknown_rope_type", "origin, dynamic"},
      {R"({"model_type": "internlm", "rotary": {"type": "dynamic"}})", "missing_key", "base"},
      {R"({"model_type": "internlm", "rope_scaling": {"type": "linear", "factor": 2.0}})",
       "unknown_rope_type", "only dynamic"},
      {R"({"model_type": "internlm2", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})",
       "missing_key", "rope_type is not read"},
      {R"({"model_type": "internlm2", "rope_scaling": {"type": "yarn", "factor": 2.0}})",
       "unknown_rope_type", "linear, dynamic"},
      {R"({"model_type": "internlm2", "rope_scaling": {"type": "dynamic", "factor": 0.5}})",
       "factor_below_one", "factor"},
      {R"({"model_type": "internlm2", "rope_scaling": {"type": "dynamic", "factor": 2}})",
       "wrong_type", "with a point"},
      {R"({"model_type": "internlm2",
           "rope_scaling": {"type": "dynamic", "factor": 2.0, "more": 1}})",
       "wrong_type", "nothing else"},
      {R"({"model_type": "internlm2", "rope_pos_id_version": "v2pe_fix"})", "layout_not_covered",
       "V2PE"},
      {R"({"model_type": "deepseek", "num_hidden_layers": 28})", "missing_key", "hidden_size"},
      {R"({"model_type": "deepseek", "hidden_size": 64, "num_attention_heads": 4,
           "num_hidden_layers": 1, "rope_scaling": {"type": "yarn", "factor": 2.0}})",
       "unknown_rope_type", "linear, dynamic"},
      {R"({"model_type": "kimi_k2", "rope_scaling": {"rope_type": "yarn", "factor": 2.0}})",
       "missing_key", "rope_type is not read"},
      {R"({"model_type": "kimi_k2", "rope_scaling": {"type": "yarn"}})", "missing_key", "factor"},
      {R"({"model_type": "phi3_v", "hidden_size": 8, "num_attention_heads": 2,
           "rope_scaling": {"type": "yarn", "short_factor": [1, 1], "long_factor": [1, 1]}})",
       "unknown_rope_type", "only su"},
      {R"({"model_type": "phi3_v", "hidden_size": 8, "num_attention_heads": 2, "rope_scaling":
           {"type": "su", "short_factor": [1, 1], "long_factor": [1, 1], "factor": 2}})",
       "wrong_type", "must have 3 entries"},
      {R"({"model_type": "phi3_v", "hidden_size": 8, "num_attention_heads": 2,
           "rope_scaling": {"type": "su", "short_factor": [1, 1, 1], "long_factor": [1, 1]}})",
       "list_length", "short_factor"},
      {R"({"model_type": "minimax_text_01", "num_hidden_layers": 2})", "missing_key",
       "attn_type_list"},
      {R"({"model_type": "minimax_text_01", "num_hidden_layers": 2, "attn_type_list": [1]})",
       "layer_types_length", "each of the 2 layers"},
      {R"({"model_type": "nemotron-nas", "num_hidden_layers": 1})", "missing_key", "block_configs"},
      {R"({"model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": {}})",
       "wrong_type", "block_configs"},
      {R"({"model_type": "nemotron-nas", "num_hidden_layers": 1, "block_configs": [{"ffn": {}}]})",
       "wrong_type", "attention"},
      {R"({"model_type": "nemotron-nas", "num_hidden_layers": 1,
           "block_configs": [{"attention": {"n_heads_in_group": 8, "window_length": 64}}]})",
       "layout_not_covered", "window_length"},
      {R"({"model_type": "minimax_text_01", "num_hidden_layers": 1, "attn_type_list": ["full"]})",
       "wrong_type", "must hold numbers"},
      {R"({"model_type": "minimax_text_01", "num_hidden_layers": 1, "attn_type_list": [1],
           "rotary_dim": 256})",
       "partial_out_of_range", "256"},
      {R"({"model_type": "minimax_text_01", "num_hidden_layers": 1, "attn_type_list": [1],
           "rotary_dim": "64"})",
       "wrong_type", "rotary_dim"},
      {R"({"model_type": "minimax_text_01", "num_hidden_layers": 1, "attn_type_list": [1],
           "rotary_dim": null})",
       "missing_key", "rotary_dim is null"},
      {R"({"model_type": "new", "rope_scaling": {"type": "linear", "factor": 2.0}})",
       "unknown_rope_type", "only ntk"},
      {R"({"model_type": "new", "rope_scaling": {"type": "ntk"}})", "missing_key", "factor"},
      {R"({"model_type": "new", "rope_scaling": {"type": "ntk", "factor": 0.5}})",
       "factor_below_one", "1 or more"},
      {R"({"model_type": "new", "rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0}})",
       "wrong_type", "mixed_b"},
      {R"({"model_type": "new", "logn_attention_scale": true})", "layout_not_covered", "logarithm"},
      {R"({"model_type": "new", "position_embedding_type": "alibi"})", "wrong_type",
       "one of rope, absolute"},
      {R"({"model_type": "bailing_moe", "rope_scaling": {"type": "ntk", "factor": 2.0}})",
       "unknown_rope_type", "linear, dynamic, yarn"},
      {R"({"model_type": "minicpmo", "version": "3.0"})", "layout_not_covered", "two kinds"},
      {R"({"model_type": "minicpmv", "hidden_size": 3584})", "layout_not_covered", "five kinds"},
      {R"({"model_type": "llada", "d_model": 64})", "layout_not_covered", "without rope"},
      {R"({"model_type": "jais", "position_embedding_type": "rotary"})", "layout_not_covered",
       "neither alibi nor learned"},
      {R"({"model_type": "codeshell", "position_embedding_type": "alibi"})", "wrong_type",
       "one of rope, learned_absolute"},
      {R"({"model_type": "phi3small", "rope_position_scale": 2.0})", "layout_not_covered",
       "rope_position_scale"},
      {R"({"model_type": "internvl_chat", "vision_config": {"image_size": 448}})",
       "unknown_model_type", "llm_config has no model_type"},
      {R"({"model_type": "internvl_chat", "llm_config": {"model_type": "nobody"}})",
       "unknown_model_type", "nobody"},
  };
  for (const Refused& r : all) {
    const ModelSpec spec = read(r.config);
    EXPECT_TRUE(spec.has_error()) << r.config;
    const Finding* f = finding(spec, r.code, r.part);
    EXPECT_TRUE(f && f->severity == Severity::error) << r.config << "\n" << errors_of(spec);
    EXPECT_TRUE(f == nullptr || !f->fix.empty()) << r.config;
  }
}

// The softmax scale of DeepSeek's code has mscale_all_dim, whatever the type.
TEST(RemoteCode, LogitsOfKimiK2) {
  const auto factor = [](const std::string& scaling) {
    const ModelSpec spec = read(R"({"model_type": "kimi_k2", "rope_scaling": )" + scaling + "}");
    EXPECT_FALSE(spec.has_error()) << scaling << errors_of(spec);
    return first(spec).rotary->logit_factor();
  };
  const double m = 0.1 * std::log(32.0) + 1;
  EXPECT_EQ(factor("null"), 1);
  EXPECT_NEAR(factor(R"({"type": "yarn", "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0})"),
              m * m, 1e-12);
  EXPECT_NEAR(factor(R"({"type": "yarn", "factor": 32.0, "mscale_all_dim": 1.0})"), m * m, 1e-12);
  EXPECT_EQ(factor(R"({"type": "yarn", "factor": 32.0, "mscale": 0.5})"), 1);
}

// The fixes of the refusals do what they say.
TEST(RemoteCode, AssumptionsDecide) {
  const std::string ratio =
      R"({"model_type": "chatglm", "kv_channels": 128, "seq_length": 64, "rope_ratio": 16})";
  const auto base_of = [](const ModelSpec& spec) { return first(spec).field("base")->value; };
  const ModelSpec divided = read(ratio, {{"/_name_or_path", "chatglm2"}});
  ASSERT_FALSE(divided.has_error()) << errors_of(divided);
  EXPECT_EQ(first(divided).rotary->blocks[0].spectrum.frequency[0], 1.0 / 16);
  const ModelSpec multiplied = read(ratio, {{"/_name_or_path", "chatglm3"}});
  ASSERT_FALSE(multiplied.has_error()) << errors_of(multiplied);
  EXPECT_EQ(base_of(multiplied), Json(160000.0));
  EXPECT_EQ(first(multiplied).field("base")->origin, Origin::derived);
  const std::string bare = R"({"model_type": "internlm", "max_position_embeddings": 2048})";
  const ModelSpec dynamic = read(bare, {{"/rotary", R"({"base": 500, "type": "dynamic"})"}});
  ASSERT_FALSE(dynamic.has_error()) << errors_of(dynamic);
  EXPECT_EQ(base_of(dynamic), Json(500));
  EXPECT_EQ(first(dynamic).field("base")->origin, Origin::user);
  const ModelSpec plain = read(bare, {{"/rope_theta", "10000"}});
  ASSERT_FALSE(plain.has_error()) << errors_of(plain);
  const ModelSpec xverse = read(R"({"model_type": "xverse"})", {{"/rope_theta", "500000"}});
  ASSERT_FALSE(xverse.has_error()) << errors_of(xverse);
  EXPECT_EQ(base_of(xverse), Json(500000));
  for (const auto& [version, norms] : {std::pair{"2.6", 0}, {"4.0", 0}, {"4.5", 1}}) {
    const ModelSpec text = read(R"({"model_type": "minicpmv"})", {{"/version", version}});
    ASSERT_FALSE(text.has_error()) << errors_of(text);
    EXPECT_EQ(explain_json(text).dump().find("qk_norm") != std::string::npos, norms == 1)
        << version;
  }
}

// The sections of Keye's three axes are the file's.
TEST(RemoteCode, SectionsOfKeye) {
  const ModelSpec spec = read(R"({"model_type": "Keye", "rope_theta": 1000000, "rope_scaling":
      {"type": "mrope", "mrope_section": [8, 28, 28]}})");
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  const Spectrum& s = first(spec).rotary->blocks.at(0).spectrum;
  ASSERT_EQ(s.axes, 3);
  for (Index pair : {0, 7, 8, 35, 36, 63})
    for (Index axis = 0; axis < 3; ++axis)
      EXPECT_EQ(s.frequency[static_cast<std::size_t>(axis * s.pairs() + pair)] != 0,
                axis == (pair < 8    ? 0
                         : pair < 36 ? 1
                                     : 2));
}

// Keys of other code are named, not obeyed.
TEST(RemoteCode, NamesWhatIsNotRead) {
  const auto base_of = [](const std::string& text) {
    const ModelSpec spec = read(text);
    EXPECT_FALSE(spec.has_error()) << errors_of(spec);
    return first(spec).field("base")->value.as_number();
  };
  const std::string glm =
      R"({"model_type": "chatglm", "kv_channels": 128, "seq_length": 64, "rope_theta": 5e5})";
  EXPECT_EQ(base_of(glm), 10000);
  EXPECT_TRUE(finding(read(glm), "key_ignored", "rope_theta"));
  const std::string qwen = R"({"model_type": "qwen", "seq_length": 64, "rope_theta": 5e5})";
  EXPECT_EQ(base_of(qwen), 10000);
  EXPECT_TRUE(finding(read(qwen), "alias_not_read", "rotary_emb_base"));
  EXPECT_TRUE(finding(read(qwen), "missing_key", "no rotary_emb_base"));
  const std::string factor = R"({"model_type": "internlm", "max_position_embeddings": 64,
      "rotary": {"base": 10000, "type": "dynamic", "factor": 2}})";
  const ModelSpec spec = read(factor);
  EXPECT_TRUE(finding(spec, "key_ignored", "factor is not read"));
  EXPECT_EQ(first(spec).field("dynamic.factor")->value, Json(1.0));
  // num_hidden_layers is not ChatGLM's name
  const ModelSpec layers = read(R"({"model_type": "chatglm", "kv_channels": 128, "num_layers": 3,
                                    "num_hidden_layers": 5, "hidden_size": 4096})");
  EXPECT_EQ(layers.layers.size(), 3u);
}

// The code takes null as Python does; so it is where a file with it would run.
TEST(RemoteCode, TakesNullWhereTheCodeDoes) {
  const ModelSpec qwen = read(R"({"model_type": "qwen", "seq_length": 64, "use_dynamic_ntk": null,
      "use_logn_attn": null, "max_position_embeddings": null})");
  ASSERT_FALSE(qwen.has_error()) << errors_of(qwen);
  EXPECT_FALSE(first(qwen).query_temperature);
  EXPECT_FALSE(first(qwen).field("qwen_dynamic.trained_length"));
  const ModelSpec glm = read(R"({"model_type": "chatglm", "kv_channels": 128,
      "multi_query_attention": null, "multi_query_group_num": null})");
  ASSERT_FALSE(glm.has_error()) << errors_of(glm);
  const ModelSpec first_glm = read(R"({"model_type": "chatglm", "inner_hidden_size": 16384,
      "max_sequence_length": null, "position_encoding_2d": null})");
  ASSERT_FALSE(first_glm.has_error()) << errors_of(first_glm);
  EXPECT_EQ(first(first_glm).rotary->blocks.size(), 1u);
}

// log(p + 1) to the base seq_length, from there on; off where the file says so.
TEST(RemoteCode, QueriesOfQwenGrowWithTheLogarithm) {
  const std::string text = R"({"model_type": "qwen", "seq_length": 64, "use_logn_attn": )";
  const ModelSpec on = read(text + "true}");
  ASSERT_FALSE(on.has_error()) << errors_of(on);
  ASSERT_TRUE(first(on).query_temperature);
  EXPECT_EQ(first(on).query_temperature->form, TemperatureForm::log_n);
  EXPECT_EQ(first(on).query_temperature->period, 64);
  EXPECT_EQ(first(on).field("query_temperature.period")->where, "config.json#/seq_length");
  EXPECT_FALSE(first(read(text + "false}")).query_temperature);
}

}  // namespace
}  // namespace posenc
