// SPDX-License-Identifier: Apache-2.0
// Architectures and keys that the suite's files do not have, from files made on the spot. What is
// expected is what llama.cpp (0c1e57098) does; the numbers are worked out by hand here.
#include <gtest/gtest.h>

#include <cmath>

#include "suite.h"

namespace posenc {
namespace {

using namespace test;

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

TEST(GgufModels, SectionsThatDoNotShareOutThePairs) {
  const auto with = [](const char* arch, std::vector<std::int32_t> sections) {
    return Writer(arch).set("rope.dimension_sections", sections).read();
  };
  for (const char* arch : {"qwen2vl", "qwen3vl"}) {
    EXPECT_EQ(finding(with(arch, {16, 24, 24, 0}), "sections_sum"), nullptr) << arch;
    for (const std::int32_t more : {-4, 8}) {
      const ModelSpec m = with(arch, {16, 24, 24 + more, 0});
      const Finding* f = finding(m, "sections_sum");
      ASSERT_NE(f, nullptr) << arch;
      EXPECT_EQ(f->severity, Severity::warning);
      EXPECT_EQ(f->value, 64.0 + more);
      EXPECT_NE(f->message.find("the pairs that rotate are 64"), std::string::npos) << f->message;
      EXPECT_TRUE(m.layers.at(0).rotary);
    }
    expect_error(with(arch, {0, 0, 0, 0}), "sections_sum",
                 std::string(arch) + ".rope.dimension_sections");
  }
}

TEST(GgufModels, ScalingKeysThatContradictEachOther) {
  const auto none = [](float factor) {
    return Writer("llama")
        .set("rope.scaling.type", std::string("none"))
        .set("rope.scaling.factor", factor)
        .read();
  };
  const ModelSpec ignored = none(4);
  EXPECT_EQ(spectrum(ignored).frequency[0], 1);
  ASSERT_NE(finding(ignored, "key_ignored"), nullptr) << report(ignored);
  EXPECT_EQ(finding(ignored, "key_ignored")->value, 4.0);
  EXPECT_EQ(finding(none(1), "key_ignored"), nullptr);
  const auto both = [](float old) {
    return Writer("llama").set("rope.scaling.factor", 2.0f).set("rope.scale_linear", old).read();
  };
  EXPECT_EQ(spectrum(both(4)).frequency[0], 0.5);
  ASSERT_NE(finding(both(4), "key_ignored"), nullptr);
  EXPECT_EQ(finding(both(4), "key_ignored")->where, "llama.rope.scale_linear");
  EXPECT_EQ(finding(both(2), "key_ignored"), nullptr);
  Writer longrope("phi3");
  longrope.set("rope.scaling.type", std::string("longrope"));
  ASSERT_NE(finding(longrope.read(), "missing_key"), nullptr);
  EXPECT_EQ(finding(longrope.read(), "missing_key")->severity, Severity::warning);
  longrope.tensor("rope_factors_long.weight", std::vector<float>(64, 4.0f));
  longrope.tensor("rope_factors_short.weight", std::vector<float>(64, 2.0f));
  EXPECT_EQ(finding(longrope.read(), "missing_key"), nullptr) << report(longrope.read());
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
  ReadOptions reader;
  reader.reader = "transformers";
  EXPECT_TRUE(finding(Writer("jais").read(reader), "reader_refused"));
  reader.reader = "vllm";
  EXPECT_THROW((void)Writer("llama").read(reader), std::invalid_argument);
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
  const ModelSpec odd = Writer("llama").read(options);
  ASSERT_NE(finding(odd, "assume_unused"), nullptr);
  EXPECT_EQ(finding(odd, "assume_unused")->fix,
            "name a GGUF key, with or without 'llama.', as --assume llama.rope.freq_base=10000");
  for (const char* key : {"rope.freq_bas", "llama.rope.freq_bas"}) {
    options.assume = {{key, "1"}};
    EXPECT_EQ(finding(Writer("llama").read(options), "assume_unused")->fix.substr(0, 28),
              "did you mean rope.freq_base?");
  }
  options.assume = {{"rope.freq_base", "fast"}};
  expect_error(Writer("llama").read(options), "wrong_type", "llama.rope.freq_base");
}

// The place of a finding is the key, whether the file or a person gave its value.
TEST(GgufModels, PlacesNameTheKey) {
  ReadOptions options;
  const auto read = [&](const char* key, const char* value) {
    options.assume = {{key, value}};
    return Writer("llama").read(options);
  };
  expect_error(read("rope.freq_base", "-1"), "theta_not_positive", "llama.rope.freq_base");
  expect_error(read("rope.scaling.factor", "-2"), "factor_not_positive",
               "llama.rope.scaling.factor");
  expect_error(read("rope.scaling.attn_factor", "0"), "factor_not_positive",
               "llama.rope.scaling.attn_factor");
  expect_error(read("rope.scaling.type", "odd"), "unknown_rope_type", "llama.rope.scaling.type");
  expect_error(read("block_count", "0"), "out_of_range", "llama.block_count");
  expect_error(read("rope.dimension_count", "7"), "partial_out_of_range",
               "llama.rope.dimension_count");
  const ModelSpec m = read("rope.freq_base", "500000");
  EXPECT_EQ(field(m.layers[0], "base")->where, "--assume llama.rope.freq_base");
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
