// SPDX-License-Identifier: Apache-2.0
// Frequencies that other programs computed (conformance/), from a scheme of ours each.
#include "posenc/core/array_lookup.h"
#include "posenc/io/json.h"
#include "posenc/registry.h"
#include "scaling/support.h"
#include "support/suite.h"

namespace posenc {
namespace {

struct Row {
  const char* array;   // "case/array"
  const char* scheme;  // of ours
  Index length = 0;
  double gain = 1;
};

// theta of each pair, whatever stream it follows.
std::vector<double> frequencies(const RotarySpec& spec) {
  std::vector<double> all;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i) {
      double sum = 0;
      for (Index a = 0; a < b.spectrum.axes; ++a)
        sum += b.spectrum.frequency[static_cast<std::size_t>(a * b.pairs() + i)];
      all.push_back(sum);
    }
  return all;
}

void expect_rows(const char* suite_name, std::span<const Row> rows, double relative,
                 const ArrayLookup& arrays = {}) {
  const support::Suite suite(suite_name);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.array);
    const RotarySpec spec = resolve(parse_encoding(row.scheme, arrays), Context{row.length});
    test::expect_frequencies(frequencies(spec), suite.array(row.array).value, relative);
    EXPECT_NEAR(spec.blocks.front().spectrum.gain, row.gain, 1e-15);
  }
}

#define HALF128 "rope head_dim=128 pairing=half_split "

TEST(HuggingFace, FrequenciesInDouble) {
  const Row rows[] = {
      {"spectrum_llama_7b/inv_freq_f64", HALF128},
      {"spectrum_llama_2_7b/inv_freq_f64", HALF128 "base=10000"},
      {"spectrum_llama_3_70b/inv_freq_f64", HALF128 "base=500000"},
      {"spectrum_llama_3_1_8b/inv_freq_f64",
       HALF128 "base=500000 + llama3 factor=8 low_freq_factor=1 high_freq_factor=4 "
               "original_context=8192"},
      {"spectrum_llama_3_2_1b/inv_freq_f64",
       "rope head_dim=64 pairing=half_split base=500000 + llama3 factor=32 low_freq_factor=1 "
       "high_freq_factor=4 original_context=8192"},
      {"spectrum_llama_4_scout/inv_freq_f64",
       "rope head_dim=128 pairing=interleaved base=500000 + llama3 factor=16 low_freq_factor=1 "
       "high_freq_factor=1 original_context=8192"},
      {"spectrum_exaone_4_32b/inv_freq_f64",
       HALF128 "base=1e6 + llama3 factor=16 low_freq_factor=1 high_freq_factor=4 "
               "original_context=8192"},
      {"spectrum_mixtral_8x7b/inv_freq_f64", HALF128 "base=1e6"},
      {"spectrum_qwen2_5_7b_yarn/inv_freq_f64",
       HALF128 "base=1e6 + yarn factor=4 original_context=32768", 0, 1.138629436111989},
      {"spectrum_qwen3_next_80b/inv_freq_f64",
       "rope head_dim=256 rotary_dim=64 pairing=half_split base=1e7"},
      {"spectrum_qwen2_vl_2b/inv_freq_f64",
       "mrope head_dim=128 pairing=half_split base=1e6 sections=[16,24,24] layout=chunked"},
      {"spectrum_qwen3_vl_32b/inv_freq_f64",
       "mrope head_dim=128 pairing=half_split base=5e6 sections=[24,20,20] layout=interleaved"},
      {"spectrum_gemma_7b/inv_freq_f64", "rope head_dim=256 pairing=half_split"},
      {"spectrum_gemma_3_1b/inv_freq_full_attention_f64",
       "rope head_dim=256 pairing=half_split base=1e6"},
      {"spectrum_gemma_4_26b/inv_freq_full_attention_f64",
       "rope head_dim=512 pairing=half_split base=1e6 + proportional fraction=0.25"},
      {"spectrum_phi_1/inv_freq_f64", "rope head_dim=64 rotary_dim=32 pairing=half_split"},
      {"spectrum_gpt_neox_20b/inv_freq_f64", "rope head_dim=96 rotary_dim=24 pairing=half_split"},
      {"spectrum_stablelm_3b_4e1t/inv_freq_f64",
       "rope head_dim=80 rotary_dim=20 pairing=half_split"},
      {"spectrum_glm_4_9b/inv_freq_f64", "rope head_dim=128 rotary_dim=64 pairing=interleaved"},
      {"spectrum_deepseek_v2_lite/inv_freq_f64",
       "rope head_dim=192 offset=128 pairing=interleaved + yarn factor=40 original_context=4096 "
       "mscale=0.707 mscale_all_dim=0.707 logit_from_mscale=true"},
      {"spectrum_deepseek_v3/inv_freq_f64",
       "rope head_dim=192 offset=128 pairing=interleaved output_order=even_then_odd + yarn "
       "factor=40 original_context=4096 mscale=1 mscale_all_dim=1 logit_from_mscale=true"},
      {"spectrum_gpt_oss_20b/inv_freq_f64",
       "rope head_dim=64 pairing=half_split base=150000 + yarn factor=32 original_context=4096 "
       "truncate=false",
       0, 1.3465735902799727},
      {"spectrum_olmo_3_1_32b/inv_freq_full_attention_f64",
       HALF128 "base=500000 + yarn factor=8 original_context=8192 "
               "attention_factor=1.2079441541679836",
       0, 1.2079441541679836},
      {"spectrum_chinese_alpaca_2_13b_16k/inv_freq_f64", HALF128 "+ linear factor=4"},
      {"spectrum_hy_mt2_1_8b/inv_freq_f64", HALF128 "+ ntk factor=1000 formula=alpha"},
      {"spectrum_minimax_m2_5/inv_freq_f64",
       "rope head_dim=128 rotary_dim=64 pairing=half_split base=5e6"},
      {"spectrum_modernbert_base/inv_freq_full_attention_f64",
       "rope head_dim=64 pairing=half_split base=160000"},
  };
  expect_rows("rotary_hugging_face", rows, 1e-14);
}

TEST(HuggingFace, DynamicByLength) {
  constexpr const char* kScheme =
      HALF128 "+ dynamic factor=2 trained_length=4096 length_rule=per_call";
  const Row rows[] = {
      {"spectrum_llama_2_7b_dynamic/inv_freq_at_4096_f64", kScheme, 4096},
      {"spectrum_llama_2_7b_dynamic/inv_freq_at_4097_f64", kScheme, 4097},
      {"spectrum_llama_2_7b_dynamic/inv_freq_at_5120_f64", kScheme, 5120},
      {"spectrum_llama_2_7b_dynamic/inv_freq_at_8192_f64", kScheme, 8192},
      {"spectrum_llama_2_7b_dynamic/inv_freq_at_16384_f64", kScheme, 16384},
  };
  expect_rows("rotary_hugging_face", rows, 1e-14);
}

TEST(HuggingFace, OneModuleOverSeveralCalls) {
  const support::Suite suite("rotary_hugging_face");
  const std::vector<double> want = suite.array("state_dynamic_ntk/inv_freq_f64").value;
  const Encoding e = parse_encoding(
      "rope head_dim=8 pairing=half_split + dynamic factor=2 trained_length=64 "
      "length_rule=per_call");
  const Index lengths[] = {10, 64, 65, 100, 80, 64, 63, 70, 128, 5};
  Index held = 64;
  for (std::size_t call = 0; call < 10; ++call) {
    held = hugging_face_held_length(held, lengths[call], 64);
    const std::vector<double> got = frequencies(resolve(e, Context{held}));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(got[i], want[call * 4 + i], 1e-14 * want[call * 4 + i]) << call;
  }
  const std::vector<double> phi = suite.array("state_longrope/inv_freq_f64").value;
  const Encoding l = parse_encoding(
      "rope head_dim=8 pairing=half_split + longrope short_factor=[1,1.1,1.2,1.3] "
      "long_factor=[1,2.5,8,16] original_context=32 switch_rule=per_call factor=128");
  const Index calls[] = {10, 32, 33, 100, 32, 31};
  for (std::size_t call = 0; call < 6; ++call) {
    const std::vector<double> got = frequencies(resolve(l, Context{calls[call]}));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(got[i], phi[call * 4 + i], 1e-14 * phi[call * 4 + i]) << call;
  }
}

TEST(HuggingFace, LongRopeListsOfPublishedFiles) {
  for (const auto& [model, head, width, original, gain] :
       {std::tuple{"phi_3_mini_128k", 96, 96, Index{4096}, 1.1902380714238083},
        std::tuple{"phi_4_mini", 128, 96, Index{4096}, 1.1902380714238083},
        std::tuple{"minicpm3_4b", 32, 32, Index{32768}, 1.0}}) {
    const Json config =
        read_json(std::string(POSENC_SOURCE_DIR) + "/conformance/rotary_hugging_face/configs/" +
                  model + "/config.json");
    const ArrayLookup lists = [&](std::string_view name) {
      std::vector<double> v;
      for (const Json& x : config.find("rope_scaling")->find(name)->as_array())
        v.push_back(x.as_number());
      return v;
    };
    const double f =
        config.find("max_position_embeddings")->as_number() / static_cast<double>(original);
    const std::string scheme = "rope head_dim=" + std::to_string(head) +
                               " rotary_dim=" + std::to_string(width) +
                               " pairing=half_split + longrope short_factor=@short_factor "
                               "long_factor=@long_factor switch_rule=per_call factor=" +
                               number_text(f) + " original_context=" + std::to_string(original);
    const std::string name = std::string("spectrum_") + model + "/inv_freq_at_";
    for (const Index length : {original, original + 1}) {
      const std::string array = name + std::to_string(length) + "_f64";
      const Row row[] = {{array.c_str(), scheme.c_str(), length, gain}};
      expect_rows("rotary_hugging_face", row, 1e-14, lists);
    }
  }
}

// Files with something wrong in them: the arithmetic is still transformers'. float32 of the peer.
TEST(HuggingFace, WhatOddFilesMean) {
  const Row rows[] = {
      {"doctor_yarn_fast_below_slow/inv_freq",
       "rope head_dim=16 pairing=half_split + yarn factor=4 original_context=1024 beta_fast=1 "
       "beta_slow=32",
       0, 1.138629436111989},
      {"doctor_yarn_range_reversed/inv_freq",
       "rope head_dim=16 pairing=half_split + yarn factor=4 original_context=1", 0,
       1.138629436111989},
      {"doctor_yarn_attention_factor_integer/inv_freq",
       "rope head_dim=16 pairing=half_split + yarn factor=4 original_context=1024 "
       "attention_factor=1"},
      {"doctor_yarn_mscale_without_all_dim/inv_freq",
       "rope head_dim=16 pairing=half_split + yarn factor=4 original_context=1024 mscale=0.707", 0,
       1.138629436111989},
      {"doctor_yarn_truncate_false/inv_freq",
       "rope head_dim=16 pairing=half_split base=500000 + yarn factor=4 original_context=1024 "
       "truncate=false",
       0, 1.138629436111989},
      {"doctor_llama3_high_not_above_low/inv_freq",
       "rope head_dim=16 pairing=half_split + llama3 factor=8 low_freq_factor=4 "
       "high_freq_factor=1 original_context=1024"},
      {"doctor_llama3_original_not_below_max/inv_freq",
       "rope head_dim=16 pairing=half_split + llama3 factor=8 low_freq_factor=1 "
       "high_freq_factor=4 original_context=8192"},
  };
  expect_rows("rotary_hugging_face", rows, 5e-7);
}

#define HALF16 "rope head_dim=16 pairing=half_split "

TEST(Engines, VllmInDouble) {
  const Row rows[] = {
      {"vllm_ntk_fixed/inv_freq_f64", HALF16 "+ ntk factor=4 formula=fixed"},
      {"vllm_yarn_qwen3/inv_freq_f64", HALF128 "base=1e6 + yarn factor=4 original_context=32768", 0,
       1.138629436111989},
      {"vllm_yarn_gpt_oss/inv_freq_f64",
       "rope head_dim=64 pairing=half_split base=150000 + yarn factor=32 original_context=4096 "
       "truncate=false",
       0, 1.3465735902799727},
      {"vllm_yarn_attention_factor/inv_freq_f64",
       "rope head_dim=32 pairing=half_split + yarn factor=8 original_context=512 "
       "attention_factor=1.4",
       0, 1.4},
      {"vllm_yarn_mscale_ratio/inv_freq_f64",
       "rope head_dim=32 pairing=interleaved + yarn factor=8 original_context=512 mscale=1 "
       "mscale_all_dim=0.5",
       0, 1.094179988101349},
      {"vllm_deepseek_v4/inv_freq_f64",
       "rope head_dim=24 offset=8 pairing=interleaved base=160000 + yarn factor=16 "
       "original_context=4096 mscale=0 mscale_all_dim=0"},
      {"vllm_llama3/inv_freq_f64",
       HALF128 "base=500000 + llama3 factor=8 low_freq_factor=1 high_freq_factor=4 "
               "original_context=8192"},
      {"vllm_longrope_short/inv_freq_short_f64",
       HALF16 "+ longrope short_factor=[1,1.01,1.05,1.1,1.2,1.3,1.5,1.9] original_context=1024 "
              "switch_rule=declared declared_length=1024 attention_factor=1"},
      {"vllm_longrope_long/inv_freq_long_f64",
       HALF16 "+ longrope long_factor=[1,1.1,1.35,2,4.5,11,30.25,64] original_context=1024 "
              "switch_rule=declared declared_length=4096 attention_factor=1"},
      {"vllm_proportional_gemma4/inv_freq_f64",
       "rope head_dim=32 pairing=half_split base=1e6 + proportional fraction=0.25"},
      {"paper_longrope/inv_freq_f64",
       HALF16 "+ longrope long_factor=[1,1.1,1.35,2,4.5,11,30.25,64] original_context=256 "
              "switch_rule=always_long factor=8",
       0, 1.1726039399558574},
      {"paper_longrope_number/inv_freq_f64",
       HALF16 "+ longrope long_factor=[1,1.02,1.2,1.7,3.5,9,20,31.5] original_context=1024 "
              "switch_rule=always_long attention_factor=1.25",
       0, 1.25},
      {"paper_gpt_oss/inv_freq",
       "rope head_dim=64 pairing=half_split base=150000 + yarn factor=32 original_context=4096 "
       "truncate=false",
       0, 1.3465735902799727},
      {"paper_llama31_scaling/scaled_f64",
       HALF128 "base=500000 + llama3 factor=8 low_freq_factor=1 high_freq_factor=4 "
               "original_context=8192"},
      {"lr_pixel/freqs", "axial head_dim=8 axes_dim=[8] pairing=interleaved spacing=linear last=5"},
      {"lr_axial_pixel/freqs",
       "axial head_dim=8 axes_dim=[8] pairing=interleaved spacing=linear last=8"},
      {"lr_constant/freqs", "axial head_dim=8 axes_dim=[6] pairing=interleaved spacing=constant"},
  };
  expect_rows("rotary_engines", rows, 1e-13);
}

TEST(Engines, Float32Peers) {
  const Row rows[] = {
      {"vllm_ntk_mixed/inv_freq", HALF16 "+ ntk factor=4 formula=mixed mixed_b=0.625"},
      {"paper_yarn_16x/inv_freq", HALF128 "+ yarn factor=16 original_context=4096", 0,
       1.2772588722239782},
      {"paper_yarn_attn_factor/inv_freq",
       "rope head_dim=64 pairing=half_split + yarn factor=8 original_context=2048 attn_factor=0.9 "
       "extrapolation=0.5",
       0, 1.0871497387511853},
      {"paper_yarn_clamped_range/inv_freq", HALF16 "+ yarn factor=4 original_context=64", 0,
       1.138629436111989},
      {"paper_ntk_alpha4/inv_freq", HALF128 "+ ntk factor=4 formula=alpha"},
      {"paper_part_ntk_4x/inv_freq",
       HALF128 "+ ntk_by_parts factor=4 original_context=2048 form=two_ramps"},
      {"paper_dynamic_ntk/inv_freq",
       "rope head_dim=32 pairing=half_split + dynamic factor=2 trained_length=256 "
       "length_rule=per_call",
       300},
      {"paper_dynamic_yarn/inv_freq",
       "rope head_dim=64 pairing=half_split + dynamic_yarn original_context=256 "
       "length_rule=per_call",
       700, 1.1005902890563841},
      {"paper_qwen1_dynamic/inv_freq_len_17",
       HALF16 "+ qwen_dynamic trained_length=16 length_rule=held", 17},
      {"paper_qwen1_dynamic/inv_freq_len_64",
       HALF16 "+ qwen_dynamic trained_length=16 length_rule=held", 64},
      {"lr_rescale/freqs", "rope head_dim=16 pairing=interleaved + ntk factor=4 formula=alpha"},
      {"xt_base_rescale/inv_freq",
       "rope head_dim=16 pairing=interleaved + ntk factor=8 formula=alpha"},
      {"vllm_llama4_vision/inv_freq", "axial head_dim=16 axes_dim=[8] pairing=interleaved"},
      {"timm_pixels/bands",
       "axial head_dim=16 axes_dim=[8] pairing=interleaved spacing=logarithmic last=112"},
      {"timm_pixels_linear/bands",
       "axial head_dim=16 axes_dim=[8] pairing=interleaved spacing=linear last=32"},
      {"timm_mrope/inv_freq",
       "mrope head_dim=16 pairing=interleaved sections=[2,3,3] layout=interleaved"},
  };
  expect_rows("rotary_engines", rows, 6e-7);
}

TEST(Engines, GgmlCorrectionDimensions) {
  const std::vector<double> want =
      support::Suite("rotary_engines").array("ggml_corr_dims/corr_dims").value;
  const double rows[12][5] = {
      {128, 4096, 10000, 32, 1},     {128, 32768, 1000000, 32, 1}, {64, 4096, 10000, 32, 1},
      {64, 4096, 150000, 32, 1},     {128, 8192, 500000, 32, 1},   {64, 64, 10000, 32, 1},
      {16, 256, 10000, 32, 1},       {8, 256, 10000, 32, 1},       {64, 65536, 1000000, 64, 1},
      {128, 131072, 1000000, 32, 1}, {96, 4096, 10000, 32, 1},     {128, 16384, 10000, 4, 1}};
  for (std::size_t i = 0; i < 12; ++i) {
    const auto& r = rows[i];
    const CorrectionRange range =
        correction_range({r[2], static_cast<Index>(r[0])}, r[1], r[3], r[4], true);
    EXPECT_EQ(range.low, want[2 * i]);
    EXPECT_EQ(range.high, want[2 * i + 1]);
  }
}

}  // namespace
}  // namespace posenc
