// SPDX-License-Identifier: Apache-2.0
// Classes whose score the reader finds: Funnel, Inkling, LeViT, Gemma 3n's audio, classes that
// transformers no longer has, a decoder that is a tower, and tables of each axis on the grid of a
// call. The attention of the first four, run by transformers, is in the suite model_attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/model/read.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

ModelSpec class_model(const std::string& text, const ReadOptions& options = {}) {
  return read_hugging_face(parse_config(text, "config.json"), "config.json", options);
}
std::string class_error(const ModelSpec& m) {
  for (const Finding& f : m.findings)
    if (f.severity == Severity::error) return f.message;
  return "";
}
std::string class_scheme(const ModelSpec& m, std::size_t layer = 0) {
  EXPECT_EQ(class_error(m), "");
  return to_text(m.layers.at(layer).encodings.at(0).value);
}
std::string class_tensor(const ModelSpec& m, std::size_t layer, const std::string& parameter) {
  for (const auto& [name, tensor] : m.layers.at(layer).encodings.at(0).tensors)
    if (name == parameter) return tensor;
  return "";
}

// Funnel: blocks of layers, each with names of its own.
TEST(ScoreClasses, FunnelIsXlNetWithAClassToken) {
  const ModelSpec m = class_model(R"({"model_type": "funnel", "block_sizes": [2, 3]})");
  ASSERT_EQ(m.layers.size(), 5u);
  EXPECT_EQ(class_scheme(m, 3),
            "xlnet d_model=768 segments=3 class_token=true segment_rows=differs_first "
            "shared_segment=2");
  EXPECT_EQ(class_tensor(m, 3, "w_kr"), "encoder.blocks.1.1.attention.r_kernel");
  EXPECT_EQ(class_tensor(m, 1, "seg_embed"), "encoder.blocks.0.1.attention.seg_embed");
  const ModelSpec apart = class_model(R"({"model_type": "funnel", "separate_cls": false})");
  EXPECT_THAT(class_scheme(apart), HasSubstr("segments=3 segment_rows=differs_first"));
}

TEST(ScoreClasses, ClassesThatTransformersNoLongerHas) {
  const ModelSpec nezha = class_model(R"({"model_type": "nezha", "max_relative_position": 8})");
  EXPECT_EQ(class_scheme(nezha, 11), "shaw left=8 right=8 values=shared table=sinusoid");
  EXPECT_TRUE(nezha.layers[0].encodings[0].tensors.empty());
  const ModelSpec xl = class_model(R"({"model_type": "transfo-xl", "clamp_len": 400})");
  EXPECT_EQ(class_scheme(xl, 17), "transformer_xl d_model=1024 clamp_len=400");
  EXPECT_EQ(class_tensor(xl, 2, "w_kr"), "layers.2.dec_attn.r_net.weight");
  EXPECT_EQ(class_scheme(class_model(R"({"model_type": "transfo-xl"})")),
            "transformer_xl d_model=1024 clamp_len=1000");
  EXPECT_EQ(class_scheme(class_model(R"({"model_type": "transfo-xl", "clamp_len": -1})")),
            "transformer_xl d_model=1024");
}

TEST(ScoreClasses, TheDecoderOfFastSpeech2IsATower) {
  const ModelSpec m = class_model(
      R"({"model_type": "fastspeech2_conformer", "encoder_layers": 2, "decoder_layers": 3})");
  EXPECT_EQ(m.layers.size(), 2u);
  ASSERT_EQ(m.towers.size(), 1u);
  EXPECT_EQ(m.towers[0].name, "decoder");
  ASSERT_EQ(m.towers[0].layers.size(), 3u);
  const LayerEncoding& e = m.towers[0].layers[2].encodings.at(0);
  EXPECT_EQ(to_text(e.value), "conformer d_model=384");
  EXPECT_EQ(e.tensors.at(0).second, "decoder.conformer_layers.2.self_attn.linear_pos.weight");
}

std::string requirement(const ModelSpec& m, std::size_t layer, const std::string& what) {
  for (const Requirement& r : must_honour(m.layers.at(layer)))
    if (r.what == what) return r.text;
  return "";
}

// InklingTextConfig: every sixth layer is `hybrid`, without a window.
TEST(ScoreClasses, InklingByTheKindOfTheLayer) {
  const ModelSpec m = class_model(R"({"model_type": "inkling_text", "num_hidden_layers": 12})");
  EXPECT_EQ(class_scheme(m),
            "relative_projection max_distance=512 width=6144 projection_bias=false");
  EXPECT_EQ(class_scheme(m, 5),
            "relative_projection max_distance=1024 width=6144 projection_bias=false");
  EXPECT_EQ(class_tensor(m, 3, "distance_bank"), "layers.3.self_attn.rel_logits_proj.proj");
  EXPECT_EQ(class_tensor(m, 3, "w_r"), "layers.3.self_attn.r_proj.weight");
  EXPECT_EQ(m.layers[0].attention.left, 511);
  EXPECT_EQ(m.layers[5].attention.left, std::nullopt);
  EXPECT_EQ(m.layers[5].attention.right, 0);
  EXPECT_EQ(m.layers[0].scale->at(128), 1.0 / 128);
  EXPECT_EQ(m.layers[0].cached_key_channels->value, 16 * 128);
  EXPECT_EQ(m.layers[5].cached_key_channels->value, 8 * 128);
  for (const LayerSpec& layer : m.layers) EXPECT_FALSE(layer.query_temperature);
  EXPECT_TRUE(std::any_of(m.findings.begin(), m.findings.end(), [](const Finding& f) {
    return f.message.starts_with("k and v pass a causal convolution of sconv_kernel_size tokens");
  }));
  EXPECT_EQ(requirement(m, 3, "convolution"),
            "after their projections, add to k and v their causal convolution over 4 tokens, each "
            "channel by itself, padding as zeros (layers.3.self_attn.k_sconv, "
            "layers.3.self_attn.v_sconv)");
  EXPECT_EQ(must_honour(m.layers[3]).at(0).what, "convolution");
  const ModelSpec own = class_model(R"({"model_type": "inkling_text", "num_hidden_layers": 3,
    "local_layer_ids": [2, 7], "log_scaling_n_floor": 4096, "sliding_window_size": 64,
    "swa_head_dim": 64, "rel_extent": 99, "d_rel": 4})");
  EXPECT_EQ(class_scheme(own, 1),
            "relative_projection basis=4 max_distance=99 width=6144 projection_bias=false "
            "log_scaling_n_floor=4096 log_scaling_by=order");
  EXPECT_EQ(class_scheme(own, 2),
            "relative_projection basis=4 max_distance=64 width=6144 projection_bias=false");
  EXPECT_EQ(own.layers[1].query_temperature,
            (QueryTemperature{TemperatureForm::log_floor, 0.1, 4096, TemperatureIndex::order}));
  EXPECT_FALSE(own.layers[2].query_temperature);
  EXPECT_EQ(own.layers[2].cached_key_channels->value, 16 * 64);
  EXPECT_EQ(requirement(own, 1, "query_temperature"),
            "multiply query p of the row, padding counted and whatever its position, by 1 + 0.1 "
            "ln(max(1, (p + 1) / 4096))");
}

// What Inkling2ScaledL2Clip and sink_proj do has words of its own; q grows by position_ids.
TEST(ScoreClasses, Inkling2LimitsNormsAndProjectsItsSinks) {
  const ModelSpec m = class_model(R"({"model_type": "inkling2_text", "num_hidden_layers": 6})");
  EXPECT_EQ(class_scheme(m, 5),
            "relative_projection max_distance=1024 width=4608 projection_bias=false "
            "log_scaling_n_floor=128000 l2_clip=8");
  EXPECT_EQ(class_scheme(m),
            "relative_projection max_distance=1024 width=4608 projection_bias=false l2_clip=8");
  EXPECT_EQ(class_tensor(m, 5, "clip_scale"), "layers.5.self_attn.rel_l2_clip.scale");
  EXPECT_EQ(m.layers[5].query_temperature, (QueryTemperature{TemperatureForm::log_floor, 0.1,
                                                             128000, TemperatureIndex::position}));
  EXPECT_EQ(m.layers[0].query_sinks, "layers.0.self_attn.sink_proj.weight");
  EXPECT_TRUE(m.layers[0].sinks.empty());
  EXPECT_EQ(requirement(m, 0, "qk_norm"),
            "normalise q and k: a limit of the L2 norm over each head, no weights, at most "
            "22.627416997969522, eps 1e-06; q is multiplied by q_l2_clip.scale [heads, head_dim] "
            "before it");
  EXPECT_THAT(requirement(m, 0, "query_sinks"), HasSubstr("layers.0.self_attn.sink_proj.weight"));
  // Inkling2ShortConvolution divides by the root of 4 + 1, Inkling2DynamicShortConvolution of 2 4 + 1.
  EXPECT_THAT(requirement(m, 0, "convolution"),
              HasSubstr("v_sconv), and divide by 2.2360679774997"));
  EXPECT_THAT(requirement(m, 5, "convolution"),
              HasSubstr("with weights that weight_proj makes of the token's hidden state added to "
                        "those of the channel, and divide by 3"));
  const ModelSpec longer = class_model(
      R"({"model_type": "inkling2_text", "num_hidden_layers": 1, "sconv_kernel_size": 8})");
  EXPECT_THAT(requirement(longer, 0, "convolution"), HasSubstr("over 8 tokens"));
  EXPECT_THAT(
      class_error(class_model(R"({"model_type": "inkling2_text", "sconv_kernel_size": 0})")),
      HasSubstr("sconv_kernel_size"));
  EXPECT_THAT(
      class_error(class_model(R"({"model_type": "inkling2_text", "rel_l2_clip_threshold": 0})")),
      HasSubstr("rel_l2_clip_threshold must be a positive number, got 0"));
}

// LevitConfig: stages of 14, 7 and 4 patches to a side; the last layer of the first two has fewer
// queries, and no residual module around it.
TEST(ScoreClasses, LevitShrinksBetweenItsStages) {
  const ModelSpec m = class_model(R"({"model_type": "levit"})");
  ASSERT_EQ(m.layers.size(), 14u);
  EXPECT_EQ(class_scheme(m, 0), "levit");
  EXPECT_EQ(class_scheme(m, 4), "levit");
  EXPECT_EQ(class_scheme(m, 5), "levit height=7 width=7");
  EXPECT_EQ(class_scheme(m, 13), "levit height=4 width=4");
  for (std::size_t i = 0; i < m.layers.size(); ++i)
    EXPECT_EQ(m.layers[i].query_step, i == 4 || i == 9 ? 2 : 1) << i;
  EXPECT_EQ(class_tensor(m, 3, "table"), "encoder.stages.0.layers.6.module.attention_biases");
  EXPECT_EQ(class_tensor(m, 4, "table"), "encoder.stages.0.layers.8.attention_biases");
  EXPECT_EQ(class_tensor(m, 10, "table"), "encoder.stages.2.layers.0.module.attention_biases");
  EXPECT_THAT(requirement(m, 4, "query_step"), HasSubstr("multiples of 2"));
  const ModelSpec bare = class_model(R"({"model_type": "levit", "depths": [2, 1, 1],
    "mlp_ratio": [0, 2, 2], "image_size": 80})");
  EXPECT_EQ(class_tensor(bare, 1, "table"), "encoder.stages.0.layers.1.module.attention_biases");
  EXPECT_EQ(class_tensor(bare, 2, "table"), "encoder.stages.0.layers.2.attention_biases");
  EXPECT_EQ(class_scheme(bare, 5), "levit height=2 width=2");
  EXPECT_THAT(class_error(class_model(R"({"model_type": "levit", "depths": [1, 1, 1, 1]})")),
              HasSubstr("depths must have at most 3 stages: LevitConfig knows no more, got 4"));
}

// Gemma3nAudioConfig, alone and as the tower of gemma3n.
TEST(ScoreClasses, AudioOfGemma3n) {
  const ModelSpec m =
      class_model(R"({"model_type": "gemma3n_audio", "conf_attention_context_right": 3})");
  ASSERT_EQ(m.layers.size(), 12u);
  EXPECT_EQ(class_scheme(m), "conformer d_model=1536 biases=false halves=true t2t=true");
  EXPECT_EQ(class_tensor(m, 2, "w_kr"),
            "conformer.2.attention.attn.relative_position_embedding.pos_proj.weight");
  const LayerSpec& layer = m.layers[0];
  EXPECT_EQ(layer.attention.left, 12);
  EXPECT_EQ(layer.attention.right, 3);
  EXPECT_EQ(layer.softcap, 50.0);
  EXPECT_TRUE(layer.softcap_after_terms);
  EXPECT_EQ(layer.scale->at(192), 1.0);
  EXPECT_EQ(layer.query_scale->tensor, "conformer.0.attention.attn.per_dim_scale");
  EXPECT_EQ(requirement(m, 0, "softcap"),
            "cap the scores, their position terms included, before the mask: 50 tanh(score / 50)");
  EXPECT_THAT(requirement(m, 0, "query_scale"), HasSubstr("1.4426950408889634 / sqrt(head_dim)"));
  const Json json = explain_json(m, 0).at("layers").as_array().at(0);
  EXPECT_TRUE(json.at("softcap_after_terms").as_bool());
  EXPECT_EQ(json.at("query_scale").at("tensor").as_string(), layer.query_scale->tensor);
  const ModelSpec whole = class_model(R"({"model_type": "gemma3n", "text_config": {},
    "audio_config": {"conf_num_hidden_layers": 2}, "vision_config": {}})");
  EXPECT_EQ(whole.towers.at(0).name, "audio");
  EXPECT_EQ(whole.towers.at(0).layers.size(), 2u);
  EXPECT_FALSE(whole.layers.at(0).softcap_after_terms);
}

// Gradients of the classes of transformers 5.23: of windows [8, 16], query 24 sees 20 to 28 and 16 to
// 32. The decoder of LED has no window.
TEST(ScoreClasses, WindowsOfLongformerAndLed) {
  const ModelSpec m = class_model(
      R"({"model_type": "longformer", "num_hidden_layers": 2, "attention_window": [8, 16]})");
  EXPECT_EQ(class_error(m), "");
  EXPECT_EQ(m.layers[0].attention.kind, AttentionKind::sliding);
  EXPECT_EQ(m.layers[0].attention.left, 4);
  EXPECT_EQ(m.layers[0].attention.right, 4);
  EXPECT_EQ(m.layers[1].attention.right, 8);
  EXPECT_EQ(m.layers[1].field("window")->where, "config.json#/attention_window/1 // 2");
  EXPECT_EQ(class_model(R"({"model_type": "longformer"})").layers[11].attention.left, 256);
  EXPECT_THAT(
      class_error(class_model(R"({"model_type": "longformer", "attention_window": 7})")),
      HasSubstr("attention_window must be a positive even number, or one for each layer, got 7"));
  const ModelSpec led = class_model(R"({"model_type": "led", "attention_window": 64})");
  EXPECT_EQ(class_error(led), "");
  EXPECT_EQ(led.towers.at(0).name, "encoder");
  EXPECT_EQ(led.towers.at(0).layers.at(3).attention.left, 32);
  EXPECT_EQ(led.layers.at(3).attention.left, std::nullopt);
  EXPECT_EQ(led.layers.at(3).attention.right, 0);
}

// The grid of the call is a person's to say: the tables stay those of the image.
TEST(ScoreClasses, GridOfTheCall) {
  const char* vitdet = R"({"model_type": "vitdet", "image_size": 16, "patch_size": 4,
    "use_relative_position_embeddings": true, "window_size": 2, "window_block_indices": [1]})";
  const auto read = [&](const std::string& text, const std::string& grid) {
    ReadOptions options;
    options.assume["grid"] = grid;
    return class_model(text, options);
  };
  EXPECT_EQ(class_scheme(class_model(vitdet)), "decomposed size=[4,4]");
  EXPECT_EQ(class_scheme(read(vitdet, "6x5")), "decomposed size=[6,5] table_rows=[7,7]");
  EXPECT_EQ(class_scheme(read(vitdet, "[6,5]")), "decomposed size=[6,5] table_rows=[7,7]");
  EXPECT_EQ(class_scheme(read(vitdet, "6x5"), 1), "decomposed size=[2,2]");  // a window
  for (const char* wrong : {"6", "6x", "0x5", "6x5x4", "[6]", "6x5000"})
    EXPECT_THAT(class_error(read(vitdet, wrong)), HasSubstr("grid must be HxW")) << wrong;
  const char* beit = R"({"model_type": "beit", "use_relative_position_bias": true})";
  EXPECT_FALSE(read(beit, "14x14").has_error());
  EXPECT_THAT(class_error(read(beit, "6x5")), HasSubstr("offsets of 14 x 14 patches"));
  EXPECT_THAT(class_error(read(R"({"model_type": "t5"})", "6x5")), HasSubstr("names nothing"));
}

}  // namespace
}  // namespace posenc
