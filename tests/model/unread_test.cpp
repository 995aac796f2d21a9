// SPDX-License-Identifier: Apache-2.0
// Position keys that the class of a file does not read: each is a finding, unless it says what the
// class does anyway. Which class reads what: the configuration and modeling files of transformers
// 5.23; what a key cache does: run there.
#include "hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec with(const std::string& type, const std::string& more) {
  return read_hugging_face(
      parse_json(R"({"model_type":")" + type + R"(","num_hidden_layers":2,)" + more + "}",
                 "config.json"),
      "config.json");
}
// The warning that a key, the first of `more`, is not read; none: null.
const Finding* unread(const ModelSpec& spec, const std::string& place) {
  for (const auto& f : spec.findings)
    if ((f.code == "key_ignored" || f.code == "alias_not_read") &&
        f.where == "config.json#" + place)
      return &f;
  return nullptr;
}
std::string place_of(const std::string& more) {
  return "/" + more.substr(1, more.find('"', 1) - 1);
}

// OpenAI's files have n_ctx beside n_positions, and GPT2Config reads the latter.
TEST(Unread, ALengthThatDoesNotCountIsAFinding) {
  for (const char* type : {"gpt2", "openai-gpt", "gptj", "codegen"}) {
    EXPECT_EQ(unread(with(type, R"("n_ctx":1024,"n_positions":1024)"), "/n_ctx"), nullptr) << type;
    EXPECT_NE(unread(with(type, R"("n_ctx":4096,"n_positions":1024)"), "/n_ctx"), nullptr) << type;
  }
  EXPECT_EQ(unread(with("bloom", R"("n_ctx":4096)"), "/n_ctx"), nullptr);
}

TEST(Unread, AKeyOfAnotherClassIsAFinding) {
  for (const char* more : {R"("sliding_window":128)",
                           R"("sliding_window_size":128)",
                           R"("attention_window":128)",
                           R"("local_attention":128)",
                           R"("attention_chunk_size":128)",
                           R"("use_sliding_window":true)",
                           R"("max_window_layers":1,"use_sliding_window":true)",
                           R"("sliding_window_pattern":6)",
                           R"("global_attn_every_n_layers":3)",
                           R"("theta":500000.0)",
                           R"("swa_rope_theta":777.0)",
                           R"("global_rope_theta":160000.0)",
                           R"("rope_percentage":0.5)",
                           R"("rope_percent":0.5)",
                           R"("rotary_dim":64)",
                           R"("no_rope_layer_interval":4)",
                           R"("layer_rope_theta":[1.0,2.0])",
                           R"("attn_temperature_tuning":true)",
                           R"("floor_scale":8192)",
                           R"("attn_scale":0.1)",
                           R"("llama_4_scaling":{"beta":0.1})",
                           R"("xdrope_section":[16,16,16,16])",
                           R"("mrope_interleaved":true)",
                           R"("rope_interleave":true)",
                           R"("use_mem_rope":true)",
                           R"("original_max_position_embeddings":1024)",
                           R"("rotary_emb_interleaved":true)"}) {
    const ModelSpec spec = with("llama", more);
    EXPECT_FALSE(spec.has_error()) << more << errors_of(spec);
    const Finding* f = unread(spec, place_of(more));
    ASSERT_TRUE(f) << more;
    EXPECT_EQ(f->severity, Severity::warning) << more;
    EXPECT_NE(f->message.find("not read by LlamaConfig"), std::string::npos) << f->message;
    EXPECT_FALSE(f->fix.empty()) << more;
  }
  EXPECT_TRUE(unread(with("llama", R"("attn_config":{"rope_theta":5e5},"rope_theta":1e4)"),
                     "/attn_config/rope_theta"));
  EXPECT_TRUE(unread(with("nemotron", R"("rope_percentage":0.25)"), "/rope_percentage"));
  EXPECT_TRUE(unread(with("bert", R"("attention_window":128)"), "/attention_window"));
}

TEST(Unread, WhatTheClassDoesAnywayIsNone) {
  for (const auto& [type, more] : std::initializer_list<std::pair<const char*, const char*>>{
           {"llama", R"("sliding_window":null)"},
           {"llama", R"("use_sliding_window":false,"max_window_layers":28)"},
           {"llama", R"("sliding_window":2048,"max_position_embeddings":2048)"},
           {"llama", R"("global_rope_theta":10000.0)"},
           {"llama", R"("attn_config":{"rope_theta":10000})"},
           {"llama", R"("original_max_position_embeddings":2048)"},
           {"nemotron", R"("rope_percentage":0.5)"},
           {"deepseek_v2", R"("rope_interleave":true)"},
           {"gemma2", R"("sliding_window_size":4096)"},
           {"qwen2", R"("max_window_layers":28,"use_sliding_window":false)"},
           {"qwen3_vl_text", R"("mrope_interleaved":true)"},
           {"smollm3", R"("no_rope_layer_interval":4,"no_rope_layers":[1,1])"},
           {"longformer", R"("attention_window":512)"},
           {"phimoe", R"("original_max_position_embeddings":1024)"},
           {"mistral_large4_text", R"("no_rope_layer_interval":4,"no_rope_layers":[1,1])"}}) {
    const ModelSpec spec = with(type, more);
    for (const auto& f : spec.findings)
      EXPECT_TRUE(f.code != "key_ignored" && f.code != "alias_not_read") << type << f.message;
  }
}

// Run: a whole text gives the numbers of the file without the key, a text read token by token
// others.
TEST(Unread, AWindowThatOnlyTheKeyCacheObeys) {
  const auto says = [](const std::string& type, const std::string& more) {
    const ModelSpec spec = with(type, more);
    const Finding* f = unread(spec, place_of(more));
    return f && f->message.find("DynamicCache") != std::string::npos;
  };
  for (const char* type : {"llama", "gemma", "phi", "gpt_neox", "bloom", "glm4_moe"}) {
    EXPECT_TRUE(says(type, R"("sliding_window":128)")) << type;
    EXPECT_TRUE(says(type, R"("sliding_window":128,"use_sliding_window":false)")) << type;
    EXPECT_TRUE(says(type, R"("attention_chunk_size":128)")) << type;
  }
  EXPECT_FALSE(says("bert", R"("sliding_window":128)"));
  EXPECT_FALSE(says("mistral", R"("attention_chunk_size":128)"));
  EXPECT_FALSE(says("qwen3_vl_moe_text", R"("sliding_window":128)"));
  const ModelSpec olmoe = with("olmoe", R"("sliding_window":128)");
  ASSERT_TRUE(unread(olmoe, "/sliding_window"));
  EXPECT_NE(unread(olmoe, "/sliding_window")->message.find("FlashAttention"), std::string::npos);
  EXPECT_TRUE(with("iquestcoder", R"("use_sliding_window":true)").has_error());
}

// transformers' yarn: mscale and mscale_all_dim count together, and beside attention_factor
// neither.
TEST(Unread, HalfOfAGain) {
  const auto yarn = [](const std::string& more) {
    return R"("rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":512,)" +
           more + "}";
  };
  for (const char* type : {"llama", "deepseek_v3"}) {
    const ModelSpec spec = with(type, yarn(R"("mscale_all_dim":1.0)"));
    const Finding* f = unread(spec, "/rope_scaling/mscale_all_dim");
    ASSERT_TRUE(f) << type;
    EXPECT_NEAR(f->value.value_or(0), 0.1 * std::log(4.0) + 1, 1e-12);
    EXPECT_NEAR(spec.layers[0].rotary->blocks[0].spectrum.gain, 0.1 * std::log(4.0) + 1, 1e-12);
    EXPECT_EQ(f->message.find("the softmax scale includes it") != std::string::npos,
              std::string(type) == "deepseek_v3");
  }
  EXPECT_TRUE(unread(with("llama", yarn(R"("mscale":1.0)")), "/rope_scaling/mscale"));
  const char* both = R"("mscale":1.0,"mscale_all_dim":1.0)";
  EXPECT_FALSE(unread(with("llama", yarn(both)), "/rope_scaling/mscale"));
  const std::string factor = R"(,"attention_factor":)";
  EXPECT_FALSE(unread(with("llama", yarn(both + factor + "1.0")), "/rope_scaling/mscale"));
  EXPECT_TRUE(unread(with("llama", yarn(both + factor + "1.5")), "/rope_scaling/mscale"));
}

// The layout of the axes is the class's: no file switches it.
TEST(Unread, InterleavedSections) {
  const auto mrope = [](const std::string& more) {
    return R"("rope_scaling":{"rope_type":"default","mrope_section":[16,24,24],)" + more + "}";
  };
  const std::string on = mrope(R"("mrope_interleaved":true)");
  EXPECT_TRUE(unread(with("qwen2_vl_text", on), "/rope_scaling/mrope_interleaved"));
  EXPECT_FALSE(unread(with("qwen3_vl_text", on), "/rope_scaling/mrope_interleaved"));
  const std::string off = mrope(R"("mrope_interleaved":false)");
  EXPECT_FALSE(unread(with("qwen2_vl_text", off), "/rope_scaling/mrope_interleaved"));
  EXPECT_TRUE(unread(with("qwen3_vl_text", off), "/rope_scaling/mrope_interleaved"));
}

}  // namespace
}  // namespace posenc
