// SPDX-License-Identifier: Apache-2.0
// What single layers do, by architecture: which turn, how far they see, what acts in the score or
// on q. From files made on the spot; what is expected is what llama.cpp (0c1e57098) does.
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
TEST(GgufLayers, NopePatternsAreKnownByName) {
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

TEST(GgufLayers, WindowPatterns) {
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

TEST(GgufLayers, WindowWidths) {
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

TEST(GgufLayers, SlidingLayersTurnByTheirOwnBase) {
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

TEST(GgufLayers, LayersWithoutSoftmaxAttention) {
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

TEST(GgufLayers, BiasesAndTables) {
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

TEST(GgufLayers, Temperatures) {
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

TEST(GgufLayers, DeepSeek4TurnsTheOutputBack) {
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

TEST(GgufLayers, EqualOnesShareTheirRotary) {
  const ModelSpec m = Writer("llama").read();
  EXPECT_EQ(&*m.layers.front().rotary, &*m.layers.back().rotary);
}

}  // namespace
}  // namespace posenc
