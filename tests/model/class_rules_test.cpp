// SPDX-License-Identifier: Apache-2.0
// Rules of single classes, against what transformers 5.23 did with the same file: its rotary module
// was built, and where it says so a model of that class ran. The numbers are float32 there.
#include <set>

#include "class_rules.h"

namespace posenc {
namespace {

using namespace test;

// Number of pairs, second and last frequency of the first layer that turns.
void expect_spectrum(const std::string& text, std::size_t pairs, double second, double last) {
  const ModelSpec spec = read(text);
  ASSERT_FALSE(spec.has_error()) << text << errors_of(spec);
  for (const auto& layer : spec.layers) {
    if (!layer.rotary) continue;
    const auto f = frequencies(layer);
    ASSERT_EQ(f.size(), pairs) << text;
    EXPECT_NEAR(f[1], second, 2e-7 * second) << text;
    EXPECT_NEAR(f.back(), last, 1e-6 * last) << text;
    return;
  }
  FAIL() << text;
}

// The class keeps one dictionary: what stands by layer type is lost, layer_types or not, and the
// model is built with the class's theta. Qwen2, which has layer types, cannot be built (KeyError).
TEST(ClassRules, AThetaByLayerTypeIsLostAloud) {
  const std::string nested =
      R"("rope_parameters":{"full_attention":{"rope_type":"linear","factor":2.0,"rope_theta":500000.0}})";
  for (const std::string& types :
       {std::string(), std::string(R"("layer_types":["full_attention"],)")}) {
    const std::string text =
        R"({"model_type":"llama","num_hidden_layers":1,)" + types + nested + "}";
    expect_spectrum(text, 64, 0.8659643530845642, 0.00011547819303814322);
    const ModelSpec spec = read(text);
    const Finding* f = finding(spec, "theta_lost_v5");
    ASSERT_TRUE(f && f->severity == Severity::warning) << text;
    EXPECT_EQ(f->value, 10000.0);
    EXPECT_NE(f->message.find("500000"), std::string::npos) << f->message;
    EXPECT_NE(f->where.find("/rope_parameters/full_attention/rope_theta"), std::string::npos);
  }
  expect_refused(R"({"model_type":"qwen2","num_hidden_layers":1,)" + nested + "}", "wrong_type");
}

// rope_scaling is put into rope_parameters' entry, which must be there (KeyError).
TEST(ClassRules, AScalingNeedsTheEntryItGoesTo) {
  for (const char* type : {"gemma3_text", "gemma3n_text", "olmo3", "t5gemma2_text"}) {
    const std::string begin = std::string("{\"model_type\":\"") + type + "\",";
    expect_refused(
        begin + R"("rope_parameters":{"rope_type":"linear","factor":2.0,"rope_theta":500000.0},)"
                R"("rope_scaling":{"rope_type":"linear","factor":4.0}})",
        "missing_key");
    EXPECT_FALSE(
        read(begin + R"("rope_scaling":{"rope_type":"linear","factor":4.0}})").has_error());
  }
}

// GLM-4-MoE-Lite: head_dim is another name of qk_rope_head_dim and wins. DeepSeek-V3.2 overwrites
// it. DeepSeek-V3, Youtu, A.X-K1 and LongCat-Flash: the table follows it and the attention does
// not.
TEST(ClassRules, HeadDimOfLatentAttention) {
  expect_spectrum(R"({"model_type":"glm4_moe_lite","head_dim":32})", 16, 0.5623413324356079,
                  0.00017782794020604342);
  expect_spectrum(R"({"model_type":"glm4_moe_lite","head_dim":32,"qk_rope_head_dim":16})", 16,
                  0.5623413324356079, 0.00017782794020604342);
  expect_spectrum(R"({"model_type":"glm4_moe_lite","qk_rope_head_dim":16})", 8, 0.3162277638912201,
                  0.0003162277862429619);
  expect_spectrum(R"({"model_type":"deepseek_v32","head_dim":32})", 32, 0.7498942017555237,
                  0.0001333521504420787);
  for (const char* type : {"deepseek_v3", "youtu", "axk1", "longcat_flash"}) {
    const std::string begin = std::string("{\"model_type\":\"") + type + "\",\"head_dim\":";
    expect_refused(begin + "32}", "partial_conflict");
    EXPECT_TRUE(read(begin + "null}").has_error())
        << type;  // hidden_size // heads is another width
    EXPECT_FALSE(read(begin + "64}").has_error()) << type;
  }
}

// int(64 * 0.3) = 19 channels: ten pairs with exponents over 19, twenty channels turn where the
// class splits heads by its table (run); Phi, StableLM, Persimmon fail, and so does YaRN's ramp.
TEST(ClassRules, OddWidths) {
  for (const char* type :
       {"gpt_neox", "glm", "glm4", "glm4_moe", "nemotron", "phi3", "qwen3_next"}) {
    const std::string size =
        R"(,"hidden_size":768,"num_attention_heads":12,"head_dim":64,"rotary_pct":0.3,"partial_rotary_factor":0.3})";
    const std::string text = std::string("{\"model_type\":\"") + type + "\"" + size;
    expect_spectrum(text, 10, 0.3792690336704254, 0.00016237763338722289);
    for (const auto& layer : read(text).layers)
      if (layer.rotary) {
        EXPECT_EQ(layer.rotary->blocks.front().width(), 20) << type;
      }
  }
  for (const char* type : {"phi", "stablelm", "persimmon", "gpt_neox_japanese"})
    expect_refused(
        std::string("{\"model_type\":\"") + type +
            R"(","hidden_size":768,"num_attention_heads":12,"rotary_pct":0.3,"partial_rotary_factor":0.3})",
        "partial_out_of_range");
  expect_refused(R"({"model_type":"glm","head_dim":64,"partial_rotary_factor":0.3,"rope_scaling":)"
                 R"({"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32}})",
                 "partial_out_of_range");
}

// A string is true and null is off, as Python takes them; both are said.
TEST(ClassRules, TruncateIsTakenAsPythonTakesIt) {
  const auto at = [](const std::string& value) {
    const ModelSpec spec = read(
        R"({"model_type":"llama","max_position_embeddings":163840,"rope_scaling":{"rope_type":"yarn",)"
        R"("factor":40.0,"original_max_position_embeddings":4096,"truncate":)" +
        value + "}}");
    EXPECT_EQ(finding(spec, "wrong_type") != nullptr, value != "true" && value != "false") << value;
    return frequencies(spec.layers.at(0)).at(24);
  };
  for (const char* value : {"true", "\"false\"", "1"})
    EXPECT_NEAR(at(value), 0.026879360899329185, 4e-9) << value;
  for (const char* value : {"false", "null", "0"})
    EXPECT_NEAR(at(value), 0.02771085873246193, 4e-9) << value;
}

// GPT-Neo's lists are repeated (transformers: attention_layers of the config), and a local layer
// sees window_size keys, its own included.
TEST(ClassRules, GptNeoRepeatsItsListsOfLayers) {
  const ModelSpec spec = read(R"({"model_type":"gpt_neo","num_layers":5,"window_size":128,)"
                              R"("attention_types":[[["global","local"],2],[["global"],1]]})");
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  ASSERT_EQ(spec.layers.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    EXPECT_EQ(a.kind, i % 2 != 0 ? AttentionKind::sliding : AttentionKind::full) << i;
    EXPECT_EQ(a.left, i % 2 != 0 ? std::optional<Index>(127) : std::nullopt) << i;
    EXPECT_EQ(a.right, Index{0});
  }
  const ModelSpec held = read(R"({"model_type":"gpt_neo"})");
  ASSERT_EQ(held.layers.size(), 24u);
  EXPECT_EQ(held.layers[23].attention.left, Index{255});
  expect_refused(R"({"model_type":"gpt_neo","num_layers":12})", "layer_types_length");
  expect_refused(R"({"model_type":"gpt_neo","attention_types":[[["global","x"],12]]})",
                 "wrong_type");
  expect_refused(R"({"model_type":"gpt_neo","attention_types":[["global",24]]})", "wrong_type");
  expect_refused(R"({"model_type":"gpt_neo","attention_types":"global"})", "wrong_type");
}

// GPT-NeoX takes theta and fraction from keys of its own: 55 and 0.25 of 96 channels count here.
TEST(ClassRules, CommonNamesThatGptNeoXDoesNotRead) {
  for (const char* type : {"gpt_neox", "gpt_neox_japanese"}) {
    const ModelSpec spec = read(Json::object({{"model_type", type},
                                              {"num_hidden_layers", 1},
                                              {"rotary_emb_base", 55},
                                              {"rope_theta", 777.0},
                                              {"partial_rotary_factor", 0.5}})
                                    .dump());
    ASSERT_FALSE(spec.has_error()) << errors_of(spec);
    EXPECT_EQ(spec.layers.front().field("base")->value, Json(55));
    std::set<std::string> places;
    for (const auto& f : spec.findings)
      if (f.code == "alias_not_read") places.insert(f.where);
    EXPECT_EQ(places, (std::set<std::string>{"config.json#/rope_theta",
                                             "config.json#/partial_rotary_factor"}));
  }
  EXPECT_FALSE(finding(read(R"({"model_type":"gpt_neox","rotary_emb_base":55,"rope_theta":55})"),
                       "alias_not_read"));
}

// HunYuan-VL reads its sections under two names, and wants the half of the head of them.
TEST(ClassRules, SectionsOfHunYuan) {
  const auto file = [](const std::string& inside) {
    return R"({"model_type":"hunyuan_vl","text_config":{"head_dim":128,"rope_theta":10000.0,)"
           R"("rope_scaling":{"type":"xdrope","alpha":1000.0,)" +
           inside + "}}}";
  };
  for (const char* name : {"xdrope_section", "mrope_section"}) {
    const ModelSpec spec = read(file("\"factor\":1.0,\"" + std::string(name) + "\":[16,16,16,16]"));
    ASSERT_FALSE(spec.has_error()) << errors_of(spec);
    EXPECT_FALSE(finding(spec, "key_ignored")) << finding(spec, "key_ignored")->message;
  }
  const ModelSpec more = read(file(R"("factor":1.0,"beta_fast":32)"));
  ASSERT_TRUE(finding(more, "key_ignored"));
  EXPECT_EQ(finding(more, "key_ignored")->message, "beta_fast is not read with rope_type dynamic");
  // ValueError: Illegal mrope partition; ... but they differ; KeyError: factor.
  expect_refused(file(R"("factor":1.0,"xdrope_section":[16,16,16,15])"), "sections_sum");
  expect_refused(file(R"("factor":1.0,"xdrope_section":[16,16,16,16],"mrope_section":[16,16,32])"),
                 "both_spellings");
  expect_refused(file(R"("xdrope_section":[16,16,16,16])"), "missing_key");
}

TEST(ClassRules, ValuesThatTurnAreAField) {
  const ModelSpec spec = read(R"({"model_type":"roformer","rotary_value":true})");
  EXPECT_TRUE(spec.layers.front().rotates_value);
  EXPECT_EQ(spec.layers.front().field("rotates_value")->where, "config.json#/rotary_value");
  EXPECT_EQ(read(R"({"model_type":"roformer"})").layers.front().field("rotates_value")->value,
            Json(false));
}

TEST(ClassRules, AdviceOnAnUnknownTypeFitsTheFile) {
  const auto fix = [](const std::string& more) {
    const ModelSpec spec = read(R"({"model_type":"nobody_knows")" + more + "}");
    const Finding* f = finding(spec, "unknown_model_type");
    return f ? f->fix : "";
  };
  EXPECT_NE(fix(R"(,"rope_theta":10000.0)").find("Llama"), std::string::npos);
  EXPECT_NE(fix(R"(,"text_config":{"rope_scaling":{"type":"yarn"}})").find("Llama"),
            std::string::npos);
  EXPECT_NE(fix(R"(,"alibi":true)").find("ALiBi"), std::string::npos);
  EXPECT_NE(fix(R"(,"relative_attention_num_buckets":32)").find("T5"), std::string::npos);
  EXPECT_EQ(fix(R"(,"hidden_size":64)").find("Llama"), std::string::npos);
}

// null replaces the class's fraction and is dropped: the whole head turns. Inside a
// dictionary, or under GPT-NeoX's own name, it stays and nothing can be built.
TEST(ClassRules, ANullFraction) {
  expect_spectrum(R"({"model_type":"phi","partial_rotary_factor":null})", 32, 0.7498942093324559,
                  0.00013335214321633243);
  expect_spectrum(R"({"model_type":"stablelm","partial_rotary_factor":null})", 40,
                  0.7943282347242815, 0.0001258925411794167);
  expect_spectrum(R"({"model_type":"phi"})", 16, 0.5623413251903491, 0.00017782794100389227);
  expect_refused(R"({"model_type":"gpt_neox","rotary_pct":null})", "wrong_type");
  expect_refused(R"({"model_type":"llama","rope_scaling":{"type":"yarn","factor":2.0,)"
                 R"("original_max_position_embeddings":512,"partial_rotary_factor":null}})",
                 "wrong_type");
}

// UltraBERT's published files: a theta and a window a layer.
TEST(ClassRules, ListsOfUltraBert) {
  const ModelSpec spec =
      read(R"({"model_type":"ultrabert","num_hidden_layers":3,"attention_windows":[64,0,0],)"
           R"("rope_theta":[10000.0,20000.0,160000.0]})");
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  ASSERT_EQ(spec.layers.size(), 3u);
  EXPECT_EQ(spec.layers[0].attention.left, 64);
  EXPECT_EQ(spec.layers[0].field("base")->value, Json(10000.0));
  for (std::size_t i : {1u, 2u}) {
    EXPECT_EQ(spec.layers[i].attention.kind, AttentionKind::full);
    EXPECT_EQ(spec.layers[i].field("base")->value, Json(160000.0));
  }
  // A theta beside rope_parameters reaches no dictionary that lacks one.
  EXPECT_EQ(read(R"({"model_type":"ultrabert","num_hidden_layers":1,"rope_theta":1000000.0,)"
                 R"("rope_parameters":{"sliding_attention":{"rope_type":"default"}}})")
                .layers.front()
                .field("base")
                ->value,
            Json(10000.0));
  expect_refused(R"({"model_type":"ultrabert","rope_theta":1000000.0})", "wrong_type");
  expect_refused(R"({"model_type":"ultrabert","num_hidden_layers":3,"attention_windows":[64,0]})",
                 "layer_types_length");
}

TEST(ClassRules, LayersOfAFewClasses) {
  const ModelSpec hybrid = read(R"({"model_type":"olmo_hybrid","num_hidden_layers":3})");
  ASSERT_EQ(hybrid.layers.size(), 3u);  // one at least is full
  EXPECT_EQ(hybrid.layers[1].attention.kind, AttentionKind::linear);
  EXPECT_EQ(hybrid.layers[2].attention.kind, AttentionKind::full);
  // ModernBERT: sliding_window 64 sets local_attention 128.
  const ModelSpec sets = read(
      R"({"model_type":"modernbert","num_hidden_layers":2,"sliding_window":64,"local_attention":32})");
  EXPECT_EQ(sets.layers[1].attention.left, 64);
  EXPECT_EQ(sets.layers[1].attention.right, 64);
  EXPECT_TRUE(finding(sets, "both_spellings"));
}

// Run with windows of 4 and 12 tokens, one layer: no class falls back to full attention where a
// sliding layer has no window, all fail on the first token; SmolLM3's window counts without
// use_sliding_window where layer types say so, and sliding_window is over local_attention.
TEST(ClassRules, SlidingLayersWithoutAWindow) {
  const auto sliding = [](std::string type, const std::string& more) {
    return "{\"model_type\":\"" + type +
           "\",\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"]"
           "," +
           more + "}";
  };
  for (const char* type : {"afmoe", "cohere2", "exaone4", "gemma2", "gemma3_text", "gpt_oss",
                           "lfm3", "ministral", "olmo3", "qwen2", "qwen3", "smollm3", "vaultgemma"})
    expect_refused(sliding(type, "\"sliding_window\":null"), "missing_key");
  expect_refused(sliding("qwen3", "\"sliding_window\":64,\"use_sliding_window\":false"),
                 "missing_key");
  const ModelSpec smol =
      read(sliding("smollm3", "\"sliding_window\":4,\"use_sliding_window\":false"));
  ASSERT_FALSE(smol.has_error()) << errors_of(smol);
  EXPECT_EQ(smol.layers[1].attention.left, 3);
  EXPECT_EQ(smol.layers[0].attention.kind, AttentionKind::full);
  const ModelSpec bert =
      read(sliding("modernbert-decoder", "\"sliding_window\":4,\"local_attention\":64"));
  ASSERT_FALSE(bert.has_error()) << errors_of(bert);
  EXPECT_EQ(bert.layers[1].attention.left, 3);
  EXPECT_TRUE(read(sliding("modernbert-decoder", "\"sliding_window\":null")).has_error());
}

// Frequencies, windows and pairs are those of the classes, built and applied to random heads.
TEST(ClassRules, SoundWithARotary) {
  const ModelSpec dots = read(R"({"model_type":"dots3_note_audio_encoder"})");
  ASSERT_FALSE(dots.has_error()) << errors_of(dots);
  ASSERT_EQ(dots.layers.size(), 32u);
  EXPECT_EQ(dots.layers[0].rotary->head_dim, 64);
  EXPECT_EQ(dots.layers[0].rotary->blocks.front().width(), 32);
  EXPECT_EQ(dots.layers[0].rotary->blocks.front().pairing, Pairing::half_split);
  EXPECT_FALSE(dots.layers[0].attention.right);
  for (const char* type : {"pe_audio_encoder", "pe_video_encoder", "neucodec", "xcodec2",
                           "nemotron3_diarization_audio", "nemotron3_5_transcribe_asr_audio"})
    EXPECT_FALSE(read(Json::object({{"model_type", type}}).dump()).layers.at(0).attention.right)
        << type;
  expect_refused(R"({"model_type":"qwen2_5_omni_dit"})", "layout_not_covered");
  for (const char* type :
       {"pocket_tts_audio_tokenizer_encoder", "pocket_tts_audio_tokenizer_decoder"}) {
    const ModelSpec codec = read(Json::object({{"model_type", type}}).dump());
    ASSERT_FALSE(codec.has_error()) << errors_of(codec);
    ASSERT_EQ(codec.layers.size(), 2u);
    EXPECT_EQ(codec.layers[1].attention.left, 249);
    EXPECT_EQ(codec.layers[1].attention.right, 0);
    EXPECT_EQ(codec.layers[1].rotary->blocks.front().width(), 64);
  }
}

}  // namespace
}  // namespace posenc
