// SPDX-License-Identifier: Apache-2.0
// Architectures and keys that the suite's files do not have, from files made on the spot. What is
// expected is what llama.cpp (0c1e57098) does; the numbers are worked out by hand here.
#include <gtest/gtest.h>

#include <cmath>

#include "suite.h"

namespace posenc {
namespace {

using namespace test;

std::string turned(const ModelSpec& m) {
  std::string s;
  for (const LayerSpec& l : m.layers) s += l.rotary ? 'R' : '-';
  return s;
}
std::string windows(const ModelSpec& m) {
  std::string s;
  for (const LayerSpec& l : m.layers)
    s += l.attention.kind == AttentionKind::full      ? 'f'
         : l.attention.kind == AttentionKind::sliding ? 's'
         : l.attention.kind == AttentionKind::chunked ? 'c'
         : l.attention.kind == AttentionKind::linear  ? 'l'
                                                      : 'n';
  return s;
}
const Spectrum& spectrum(const ModelSpec& m, std::size_t layer = 0) {
  return m.layers.at(layer).rotary->blocks.at(0).spectrum;
}
void expect_error(const ModelSpec& m, const std::string& code, const std::string& where) {
  ASSERT_TRUE(refused(m));
  const Finding* f = finding(m, code);
  ASSERT_NE(f, nullptr) << report(m);
  EXPECT_EQ(f->severity, Severity::error);
  EXPECT_EQ(f->where, where);
}

TEST(GgufModels, NopePatternsAreKnownByName) {
  EXPECT_EQ(turned(Writer("smollm3").read()), "RRR-RRR-RRR-");
  EXPECT_EQ(turned(Writer("afmoe").read()), "RRR-RRR-RRR-");
  EXPECT_EQ(turned(Writer("llama4").read()), "RRR-RRR-RRR-");
  // "always rope", but the step is the number of layers: the last one has none
  EXPECT_EQ(turned(Writer("llama4").set("attention.sliding_window", 0u).read()), "RRRRRRRRRRR-");
  EXPECT_EQ(turned(Writer("smallthinker").set("attention.sliding_window", 512u).read()),
            "-RRR-RRR-RRR");
  EXPECT_EQ(turned(Writer("smallthinker").read()), "RRRRRRRRRRRR");
  EXPECT_EQ(turned(Writer("cohere2").set("attention.sliding_window", 512u).read()), "RRR-RRR-RRR-");
  EXPECT_EQ(turned(Writer("exaone4").read()), "RRRRRRRRRRRR");  // no window unless 64 layers
  EXPECT_EQ(turned(Writer("cohere2moe")
                       .set("attention.sliding_window", 512u)
                       .set("leading_dense_block_count", 1u)
                       .read()),
            "RRRR-RRR-RRR");
  EXPECT_EQ(turned(Writer("granite").read()), "RRRRRRRRRRRR");
  EXPECT_EQ(turned(Writer("granite").set("rope.scaling.finetuned", false).read()), "------------");
  EXPECT_EQ(turned(Writer("granitemoe").set("rope.scaling.finetuned", false).read()),
            "RRRRRRRRRRRR");
  EXPECT_EQ(turned(Writer("starcoder").read()), "------------");
  EXPECT_EQ(turned(Writer("nemotron_h").set("attention.head_count_kv", 8u).read()), "------------");
}

TEST(GgufModels, WindowPatterns) {
  const auto w = [](const char* arch) {
    return windows(Writer(arch).set("attention.sliding_window", 512u).read());
  };
  EXPECT_EQ(w("gemma3"), "sssssfsssssf");
  EXPECT_EQ(w("gemma2"), "sfsfsfsfsfsf");
  EXPECT_EQ(w("gpt-oss"), "sfsfsfsfsfsf");
  EXPECT_EQ(w("modern-bert"), "fssfssfssfss");
  EXPECT_EQ(w("laguna"), "fsssfsssfsss");
  EXPECT_EQ(w("plamo3"), "sssssssfssss");
  EXPECT_EQ(w("qwen2"), "ffffffffffff");  // not read there
  EXPECT_EQ(w("llama4"), "cccfcccfcccf");
  EXPECT_EQ(windows(Writer("gemma2").read()), "sfsfsfsfsfsf");  // 4096 by default
  EXPECT_EQ(windows(Writer("gemma3").read()), "ffffffffffff");
  const ModelSpec list = Writer("gemma4")
                             .set("attention.sliding_window", 512u)
                             .set("attention.sliding_window_pattern",
                                  std::vector<std::int32_t>{1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0})
                             .read();
  EXPECT_EQ(windows(list), "ssfssfssfssf");
  const ModelSpec number = Writer("gemma3")
                               .set("attention.sliding_window", 512u)
                               .set("attention.sliding_window_pattern", 3u)
                               .read();
  EXPECT_EQ(windows(number), "ssfssfssfssf");
  expect_error(Writer("gpt-oss").read(), "missing_key", "gpt-oss.attention.sliding_window");
}

TEST(GgufModels, WindowWidths) {
  const ModelSpec causal = Writer("gemma3").set("attention.sliding_window", 512u).read();
  EXPECT_EQ(causal.layers[0].attention.left, 511);
  EXPECT_EQ(causal.layers[0].attention.right, 0);
  const ModelSpec both = Writer("gemma-embedding").set("attention.sliding_window", 512u).read();
  EXPECT_EQ(both.layers[0].attention.left, 256);
  EXPECT_EQ(both.layers[0].attention.right, 256);
  EXPECT_FALSE(both.layers[5].attention.right);
  const ModelSpec chunks = Writer("llama4").read();
  EXPECT_EQ(chunks.layers[0].attention.chunk, 8192);
  EXPECT_NE(finding(Writer("phi3").set("attention.sliding_window", 2047u).read(), "key_ignored"),
            nullptr);
}

TEST(GgufModels, SlidingLayersTurnByTheirOwnBase) {
  Writer file("gemma3");
  file.set("attention.sliding_window", 512u).set("rope.freq_base", 1e6f);
  file.set("rope.scaling.type", std::string("linear")).set("rope.scaling.factor", 8.0f);
  const ModelSpec m = file.read();
  EXPECT_EQ(field(m.layers[0], "base")->value.as_number(), 10000);
  EXPECT_EQ(field(m.layers[0], "base")->origin, Origin::class_default);
  EXPECT_EQ(field(m.layers[5], "base")->where, "gemma3.rope.freq_base");
  EXPECT_EQ(spectrum(m, 0).frequency[0], 1.0);
  EXPECT_EQ(spectrum(m, 5).frequency[0], 0.125);
  file.set("rope.freq_base_swa", 5000.0f);
  EXPECT_EQ(field(file.read().layers[0], "base")->value.as_number(), 5000);
  // gemma2's sliding layers scale as the others do
  Writer two("gemma2");
  two.set("rope.scaling.type", std::string("linear")).set("rope.scaling.factor", 8.0f);
  EXPECT_EQ(spectrum(two.read(), 0).frequency[0], 0.125);
  // olmo2 (OLMo-3) leaves sliding layers unscaled, YaRN on the others
  Writer olmo("olmo2");
  olmo.set("attention.sliding_window", 512u).set("rope.freq_base", 500000.0f);
  olmo.set("rope.scaling.type", std::string("yarn")).set("rope.scaling.factor", 8.0f);
  olmo.set("rope.scaling.original_context_length", 8192u);
  const ModelSpec o = olmo.read();
  EXPECT_EQ(spectrum(o, 0).gain, 1.0);
  EXPECT_EQ(spectrum(o, 0).frequency.back(),
            spectrum(Writer("olmo2").set("rope.freq_base", 500000.0f).read()).frequency.back());
  EXPECT_NEAR(spectrum(o, 3).gain, 0.1 * std::log(8.0) + 1, 1e-15);
}

TEST(GgufModels, YarnAmplitudes) {
  const auto yarn = [](const char* arch) {
    Writer w(arch);
    w.set("rope.scaling.type", std::string("yarn")).set("rope.scaling.factor", 40.0f);
    w.set("rope.scaling.original_context_length", 4096u);
    return w;
  };
  const double g = 0.1 * std::log(40.0) + 1;
  EXPECT_NEAR(spectrum(yarn("qwen2").read()).gain, g, 1e-14);
  EXPECT_NEAR(spectrum(yarn("qwen2").set("rope.scaling.attn_factor", 0.5f).read()).gain, g / 2,
              1e-14);
  // An explicit yarn_attn_factor is overwritten, or not read at all.
  EXPECT_NEAR(spectrum(yarn("qwen2").set("rope.scaling.yarn_attn_factor", 3.0f).read()).gain, g,
              1e-14);
  EXPECT_NE(finding(yarn("qwen2").set("rope.scaling.yarn_beta_fast", 8.0f).read(), "key_ignored"),
            nullptr);
  EXPECT_EQ(finding(yarn("qwen2").set("rope.scaling.yarn_beta_fast", 32.0f).read(), "key_ignored"),
            nullptr);
  // DeepSeek-V2-Lite: m = 0.707 on both sides of the ratio, 1.5896 on the logits (reference 4.5).
  Writer lite = yarn("deepseek2");
  lite.set("attention.key_length_mla", 192u).set("rope.dimension_count", 64u);
  lite.set("attention.key_length", 576u).set("rope.scaling.yarn_log_multiplier", 0.0707f);
  const ModelSpec v2 = lite.read();
  EXPECT_NEAR(spectrum(v2).gain, 1, 1e-15);
  EXPECT_NEAR(v2.layers[0].rotary->logit_factor(), 1.5896261651208736, 1e-6);
  EXPECT_EQ(v2.layers[0].rotary->head_dim, 192);
  EXPECT_EQ(v2.layers[0].rotary->blocks[0].offset, 128);
  // mistral3 writes m itself.
  Writer mistral = yarn("mistral3");
  mistral.set("rope.scaling.yarn_log_multiplier", 1.0f);
  EXPECT_NEAR(spectrum(mistral.read()).gain, 1, 1e-15);
  // Another architecture of latent attention: the ratio is not 1, the logits get g(s, 1)^2.
  Writer other = yarn("deepseek32");
  other.set("attention.key_length_mla", 192u).set("rope.dimension_count", 64u);
  other.set("rope.scaling.yarn_log_multiplier", 0.05f);
  const double half = 0.05 * std::log(40.0) + 1;
  EXPECT_NEAR(spectrum(other.read()).gain, g / half, 1e-7);
  EXPECT_NEAR(other.read().layers[0].rotary->logit_factor(), g * g, 1e-7);
  // Grok reads its own keys.
  Writer grok = yarn("grok");
  grok.set("rope.scaling.yarn_ext_factor", 0.5f);
  const ModelSpec k = grok.read();
  EXPECT_EQ(field(k.layers[0], "yarn.beta_fast")->value.as_number(), 8);
  EXPECT_EQ(field(k.layers[0], "yarn.extrapolation")->value.as_number(), 0.5);
}

TEST(GgufModels, FactorTensors) {
  std::vector<float> divisors(64);
  for (std::size_t i = 0; i < 64; ++i) divisors[i] = 1.0f + static_cast<float>(i);
  const ModelSpec m = Writer("llama").tensor("rope_freqs.weight", divisors).read();
  EXPECT_NEAR(spectrum(m).frequency[3] * 4, std::pow(10000.0, -6.0 / 128), 1e-15);
  EXPECT_NE(finding(m, "gguf_factors_only"), nullptr);
  // Not used by qwen2.
  const ModelSpec q = Writer("qwen2").tensor("rope_freqs.weight", divisors).read();
  EXPECT_NE(finding(q, "key_ignored"), nullptr);
  EXPECT_EQ(spectrum(q).frequency[3], spectrum(Writer("qwen2").read()).frequency[3]);
  // rope_freqs wins over long and short.
  const ModelSpec both = Writer("phi3")
                             .tensor("rope_freqs.weight", divisors)
                             .tensor("rope_factors_long.weight", std::vector<float>(64, 9.0f))
                             .tensor("rope_factors_short.weight", std::vector<float>(64, 7.0f))
                             .read();
  EXPECT_EQ(spectrum(both).frequency[0], 1.0);
  // Gemma-4: global layers only, and as many as those have.
  const auto gemma = [&](std::size_t n) {
    return Writer("gemma4")
        .set("attention.sliding_window", 512u)
        .set("attention.sliding_window_pattern", std::vector<std::int32_t>(12, 0))
        .set("attention.key_length", 512u)
        .set("attention.key_length_swa", 256u)
        .set("rope.dimension_count", 512u)
        .set("rope.dimension_count_swa", 256u)
        .set("attention.sliding_window_pattern",
             std::vector<std::int32_t>{1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0})
        .tensor("rope_freqs.weight", std::vector<float>(n, 2.0f))
        .read();
  };
  const ModelSpec g = gemma(256);
  ASSERT_FALSE(refused(g)) << report(g);
  EXPECT_EQ(g.layers[0].rotary->head_dim, 256);
  EXPECT_EQ(g.layers[5].rotary->head_dim, 512);
  EXPECT_EQ(spectrum(g, 0).frequency[0], 1.0);
  EXPECT_EQ(spectrum(g, 5).frequency[0], 0.5);
  expect_error(gemma(128), "list_length", "rope_freqs.weight");
}

// ggml marks a pair that must not turn by a divisor of 1e30.
TEST(GgufModels, AHugeDivisorStopsAPair) {
  std::vector<float> divisors(64, 1.0f);
  divisors[63] = 1e30f;
  const ModelSpec m = Writer("llama").tensor("rope_freqs.weight", divisors).read();
  EXPECT_LT(spectrum(m).frequency[63], 1e-30);
}

TEST(GgufModels, LongRopeGoesByTheContext) {
  Writer w("phi3");
  w.set("context_length", 131072u).set("rope.scaling.original_context_length", 4096u);
  w.tensor("rope_factors_long.weight", std::vector<float>(64, 4.0f));
  w.tensor("rope_factors_short.weight", std::vector<float>(64, 2.0f));
  ReadOptions at;
  for (const auto& [context, first] :
       std::vector<std::pair<Index, double>>{{4096, 0.5}, {4097, 0.25}, {131072, 0.25}}) {
    at.context = context;
    EXPECT_EQ(spectrum(w.read(at)).frequency[0], first) << context;
  }
  EXPECT_EQ(spectrum(w.read()).frequency[0], 0.25);  // its own 131072
}

TEST(GgufModels, SectionsChooseTheLayout) {
  EXPECT_EQ(Writer("glm4").read().layers[0].rotary->blocks[0].pairing, Pairing::interleaved);
  const std::vector<std::int32_t> sections{16, 24, 24, 0};
  const ModelSpec v = Writer("glm4").set("rope.dimension_sections", sections).read();
  EXPECT_EQ(v.layers[0].rotary->blocks[0].pairing, Pairing::half_split);
  EXPECT_EQ(v.layers[0].rotary->axes(), 4);
  expect_error(Writer("qwen2vl").read(), "missing_key", "qwen2vl.rope.dimension_sections");
  // Qwen3-VL: two pairs follow the fourth stream.
  const ModelSpec q = Writer("qwen3vl")
                          .set("rope.dimension_sections", std::vector<std::int32_t>{24, 20, 20, 0})
                          .read();
  const Finding* f = finding(q, "pair_never_turns");
  ASSERT_NE(f, nullptr);
  EXPECT_EQ(f->value, 2.0);
  EXPECT_NE(f->message.find("61, 62"), std::string::npos);
}

TEST(GgufModels, Temperatures) {
  const ModelSpec llama = Writer("llama4").read();
  EXPECT_FALSE(llama.layers[0].query_temperature);
  ASSERT_TRUE(llama.layers[3].query_temperature);
  EXPECT_EQ(*llama.layers[3].query_temperature,
            (QueryTemperature{TemperatureForm::llama4, 0.1, 8192}));
  const ModelSpec mistral = Writer("mistral3")
                                .set("attention.temperature_scale", 0.25f)
                                .set("rope.scaling.original_context_length", 16384u)
                                .read();
  EXPECT_EQ(*mistral.layers[0].query_temperature,
            (QueryTemperature{TemperatureForm::ministral, 0.25, 16384}));
  EXPECT_NE(
      finding(Writer("qwen2").set("attention.temperature_scale", 0.25f).read(), "key_ignored"),
      nullptr);
}

TEST(GgufModels, DeepSeek4TurnsTheOutputBack) {
  Writer w("deepseek4");
  w.set("attention.key_length", 512u).set("rope.dimension_count", 64u);
  w.set("attention.sliding_window", 128u).set("attention.compress_rope_freq_base", 160000.0f);
  w.set("attention.compress_ratios",
        std::vector<std::int32_t>{0, 4, 128, 0, 4, 128, 0, 4, 128, 0, 4, 0});
  w.set("rope.scaling.type", std::string("yarn")).set("rope.scaling.factor", 16.0f);
  w.set("rope.scaling.original_context_length", 65536u);
  const ModelSpec m = w.read();
  ASSERT_FALSE(refused(m)) << report(m);
  EXPECT_TRUE(m.layers[0].unrotates_output);
  EXPECT_EQ(m.layers[0].rotary->blocks[0].offset, 448);
  EXPECT_EQ(field(m.layers[0], "base")->value.as_number(), 10000);
  EXPECT_EQ(field(m.layers[1], "base")->value.as_number(), 160000);
  EXPECT_EQ(spectrum(m, 1).gain, 1.0);
  EXPECT_NEAR(spectrum(m, 1).frequency.back() * 16, std::pow(160000.0, -62.0 / 64), 1e-12);
}

TEST(GgufModels, LayersWithoutSoftmaxAttention) {
  const ModelSpec next = Writer("qwen3next").read();
  EXPECT_EQ(windows(next), "lllflllflllf");
  EXPECT_EQ(turned(next), "---R---R---R");
  EXPECT_EQ(windows(Writer("qwen3next").set("full_attention_interval", 3u).read()), "llfllfllfllf");
  const ModelSpec jamba = Writer("jamba")
                              .set("attention.head_count_kv",
                                   std::vector<std::int32_t>{0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 0, 8})
                              .read();
  EXPECT_EQ(windows(jamba), "llfllfllfllf");
  EXPECT_EQ(windows(Writer("mamba2").drop("attention.head_count").read()), "llllllllllll");
}

TEST(GgufModels, BiasesAndTables) {
  const ModelSpec bloom = Writer("bloom").read();
  EXPECT_EQ(bloom.layers[0].scheme, "alibi");
  EXPECT_NE(finding(bloom, "gguf_lost"), nullptr);
  EXPECT_EQ(Writer("baichuan").set("block_count", 40u).read().layers[0].scheme, "alibi");
  EXPECT_EQ(Writer("baichuan").set("block_count", 32u).read().layers[0].scheme, "rope");
  EXPECT_EQ(Writer("baichuan").set("block_count", 30u).read().layers[0].scheme, "none");
  const ModelSpec t5 = Writer("t5").set("attention.relative_buckets_count", 32u).read();
  EXPECT_EQ(t5.layers[0].scheme, "t5");
  EXPECT_EQ(field(t5.layers[0], "max_distance")->value.as_integer(), 128);
  EXPECT_EQ(to_text(t5.layers[0].encodings.at(0).value), "t5 bidirectional=false");
  EXPECT_EQ(to_text(t5.towers.at(0).layers.at(0).encodings.at(0).value), "t5 bidirectional=true");
  EXPECT_EQ(to_text(bloom.layers[0].encodings.at(0).value), "alibi");
  const ModelSpec gpt2 = Writer("gpt2").read();
  EXPECT_EQ(gpt2.layers[0].scheme, "none");
  EXPECT_EQ(to_text(gpt2.input.at(0).value), "learned width=4096 rows=4096");
  EXPECT_TRUE(Writer("mpt").read().input.empty());
  EXPECT_TRUE(Writer("llama").read().input.empty());
}

TEST(GgufModels, HunYuanRaisesItsBaseByAlpha) {
  const ModelSpec m = Writer("hunyuan_vl").set("rope.scaling.alpha", 1000.0f).read();
  EXPECT_NEAR(spectrum(m).geometric->base, 11158839.92507748, 1e-3);  // reference 4.2
  EXPECT_NE(finding(Writer("llama").set("rope.scaling.alpha", 1000.0f).read(), "key_ignored"),
            nullptr);
}

TEST(GgufModels, OldAndZeroFactors) {
  EXPECT_EQ(spectrum(Writer("llama").set("rope.scale_linear", 2.0f).read()).frequency[0], 0.5);
  EXPECT_EQ(spectrum(Writer("llama").set("rope.scaling.factor", 0.0f).read()).frequency[0], 1.0);
  EXPECT_EQ(spectrum(Writer("llama")
                         .set("rope.scaling.factor", 4.0f)
                         .set("rope.scaling.type", std::string("none"))
                         .read())
                .frequency[0],
            1.0);
}

TEST(GgufModels, RefusesWhatItCannotMean) {
  expect_error(Writer("llama").drop("context_length").read(), "missing_key",
               "llama.context_length");
  expect_error(Writer("llama").drop("attention.head_count").read(), "missing_key",
               "llama.attention.head_count");
  expect_error(Writer("llama").set("block_count", 4000000000u).read(), "out_of_range",
               "llama.block_count");
  expect_error(Writer("llama").set("rope.dimension_count", 64u).read(), "partial_out_of_range",
               "llama.rope.dimension_count");
  expect_error(Writer("clip").read(), "unknown_model_type", "general.architecture");
  expect_error(Writer("qwen2").set("rope.freq_base", 10000u).read(), "wrong_type",
               "qwen2.rope.freq_base");
  ReadOptions transformers;
  transformers.reader = "transformers";
  EXPECT_TRUE(refused(Writer("llama").read(transformers)));
}

TEST(GgufModels, APersonMayDecide) {
  ReadOptions options;
  options.assume = {{"rope.freq_base", "500000"}, {"llama.context_length", "8192"}};
  const ModelSpec m = Writer("llama").drop("context_length").read(options);
  ASSERT_FALSE(refused(m)) << report(m);
  EXPECT_EQ(field(m.layers[0], "base")->value.as_number(), 500000);
  EXPECT_EQ(field(m.layers[0], "base")->origin, Origin::user);
  EXPECT_EQ(m.context.value, 8192);
  EXPECT_NE(finding(m, "assumed"), nullptr);
  options.assume["nonsense"] = "1";
  EXPECT_NE(finding(Writer("llama").read(options), "assume_unused"), nullptr);
  options.assume = {{"rope.freq_base", "fast"}};
  expect_error(Writer("llama").read(options), "wrong_type", "llama.rope.freq_base");
}

TEST(GgufModels, SaysWhatWasLost) {
  EXPECT_NE(finding(read_suite_file("pythia"), "gguf_lost"), nullptr);
  EXPECT_NE(finding(read_suite_file("t5"), "gguf_lost"), nullptr);
  EXPECT_NE(finding(read_suite_file("llama31"), "gguf_factors_only"), nullptr);
  EXPECT_EQ(finding(read_suite_file("llama2"), "gguf_lost"), nullptr);
  const ModelSpec oss = read_suite_file("gpt_oss");
  const Finding* f = finding(oss, "truncate_rounded");
  ASSERT_NE(f, nullptr);
  // reference 17.2: the frequencies of pair 17 are 0.567 of each other
  EXPECT_NEAR(*f->value, 1 - 0.567, 2e-3);
}

// Every architecture of the table can be read with the keys that it demands.
TEST(GgufModels, EveryArchitectureIsReadable) {
  const Json table = read_json(std::filesystem::path(POSENC_SOURCE_DIR) /
                               "src/model/data/gguf_architectures.json");
  int readable = 0, unsupported = 0;
  for (const auto& [name, facts] : table.at("architectures").as_object()) {
    Writer w(name);
    w.set("attention.sliding_window", 256u).set("rope.freq_base_swa", 10000.0f);
    w.set("attention.sliding_window_pattern", std::vector<std::int32_t>(12, 1));
    w.set("rope.dimension_sections", std::vector<std::int32_t>{24, 20, 20, 0});
    w.set("attention.relative_buckets_count", 32u);
    w.set("attention.compress_ratios", std::vector<std::int32_t>(12, 4));
    w.set("attention.compress_rope_freq_base", 160000.0f);
    const ModelSpec m = w.read();
    if (facts.find("unsupported") != nullptr) {
      EXPECT_TRUE(refused(m)) << name;
      ++unsupported;
      continue;
    }
    EXPECT_FALSE(refused(m)) << name << '\n' << report(m);
    EXPECT_EQ(m.layers.size(), 12u) << name;
    ++readable;
  }
  EXPECT_EQ(readable, 150);
  EXPECT_EQ(unsupported, 3);
}

}  // namespace
}  // namespace posenc
