// SPDX-License-Identifier: Apache-2.0
// What acts in the score as the reader finds it: definitions, tensors, scale, soft cap and sinks.
// Numbers are those of the classes of transformers 5.23.0; whole layers with their weights run in
// the suite model_attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "model_folder.h"
#include "posenc/attention/plan.h"
#include "posenc/model/layer_attention.h"
#include "posenc/model/read.h"
#include "posenc/model/weights.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

ModelSpec score_model(const std::string& text) {
  return read_hugging_face(parse_config(text, "config.json"), "config.json");
}
std::string score_text(const ModelSpec& m, std::size_t layer = 0, std::size_t n = 0) {
  EXPECT_FALSE(m.has_error()) << (m.findings.empty() ? "" : m.findings.front().message);
  return to_text(m.layers.at(layer).encodings.at(n).value);
}
std::string tensor_of(const ModelSpec& m, std::size_t layer, const std::string& parameter,
                      std::size_t n = 0) {
  for (const auto& [name, tensor] : m.layers.at(layer).encodings.at(n).tensors)
    if (name == parameter) return tensor;
  return "";
}
std::string first_error(const ModelSpec& m) {
  for (const Finding& f : m.findings)
    if (f.severity == Severity::error) return f.message;
  return "";
}

template <class F>
std::string problem_of(const F& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "none";
}

TEST(ScoreSide, EncodersAndDecodersOfT5) {
  const ModelSpec t5 = score_model(R"({"model_type": "t5", "num_layers": 3})");
  EXPECT_EQ(score_text(t5), "t5 bidirectional=false");
  EXPECT_EQ(tensor_of(t5, 2, "table"),
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
  const LayerSpec& encoder = t5.towers.at(0).layers.at(2);
  EXPECT_EQ(to_text(encoder.encodings.at(0).value), "t5 bidirectional=true");
  EXPECT_THAT(encoder.encodings[0].tensors.at(0).second, HasSubstr("encoder.block.0."));
  EXPECT_EQ(t5.layers[0].scale, (ContentScale{1, 0}));
  const ModelSpec umt5 = score_model(R"({"model_type": "umt5"})");
  EXPECT_THAT(tensor_of(umt5, 2, "table"), HasSubstr("decoder.block.2."));  // a table each
}

TEST(ScoreSide, LongT5SeesAWindowAroundEachToken) {
  const ModelSpec local = score_model(R"({"model_type": "longt5", "local_radius": 5})");
  const LayerSpec& encoder = local.towers.at(0).layers.at(0);
  EXPECT_EQ(encoder.attention.left, 5);
  EXPECT_EQ(encoder.attention.right, 5);
  EXPECT_FALSE(local.layers.at(0).attention.left.has_value());  // of the decoder
  const ModelSpec global =
      score_model(R"({"model_type": "longt5", "encoder_attention_type": "transient-global"})");
  const LayerSpec& layer = global.towers.at(0).layers.at(0);
  EXPECT_EQ(to_text(layer.encodings.at(0).value), "longt5");
  EXPECT_THAT(layer.encodings[0].tensors.at(1).second, HasSubstr("global_relative"));
  EXPECT_THAT(problem_of([&] { layer_attention(layer, arange(0, 1), 0); }), HasSubstr("summaries"));
  EXPECT_EQ(score_text(global), "t5 bidirectional=false");
}

TEST(ScoreSide, DebertaOfAllVersions) {
  const ModelSpec v3 = score_model(
      R"({"model_type": "deberta-v2", "relative_attention": true, "pos_att_type": "p2c|c2p",
          "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": true,
          "max_relative_positions": -1, "max_position_embeddings": 512})");
  EXPECT_EQ(score_text(v3), "deberta");
  EXPECT_EQ(tensor_of(v3, 5, "w_k"), "encoder.layer.5.attention.self.key_proj.weight");
  EXPECT_EQ(tensor_of(v3, 5, "w_pos_k"), "");  // no such parameter
  EXPECT_NEAR(v3.layers[0].scale->at(64), 1 / std::sqrt(3 * 64.0), 1e-16);
  const ModelSpec v1 = score_model(
      R"({"model_type": "deberta", "relative_attention": true, "pos_att_type": ["c2p", "p2c"]})");
  const Deberta d = std::get<Deberta>(v1.layers.at(0).encodings.at(0).value.scheme);
  EXPECT_EQ(d.projection, DebertaProjection::own);
  EXPECT_EQ(d.position_buckets, 0);
  EXPECT_EQ(d.max_relative_positions, 512);
  EXPECT_FALSE(d.norm || d.key_bias);
  EXPECT_EQ(tensor_of(v1, 1, "w_pos_q"), "encoder.layer.1.attention.self.pos_q_proj.weight");
  // c2p alone: two terms in the scale.
  const ModelSpec one = score_model(
      R"({"model_type": "deberta-v2", "relative_attention": true, "pos_att_type": ["c2p"]})");
  EXPECT_NEAR(one.layers[0].scale->at(64), 1 / std::sqrt(2 * 64.0), 1e-16);
  const ModelSpec none = score_model(R"({"model_type": "deberta-v2"})");
  EXPECT_EQ(none.layers[0].scheme, "none");
  EXPECT_EQ(none.layers[0].scale->at(64), 0.125);
}

TEST(ScoreSide, WindowsOfImages) {
  const ModelSpec swin =
      score_model(R"({"model_type": "swin", "depths": [2, 2], "window_size": 7})");
  EXPECT_EQ(score_text(swin, 3), "swin");
  EXPECT_EQ(tensor_of(swin, 3, "table"),
            "encoder.layers.1.blocks.1.attention.self.relative_position_bias_table");
  // 224 / 4 = 56 patches a side, halved by each stage: 56, 28, 14, 7.
  const ModelSpec v2 = score_model(
      R"({"model_type": "swinv2", "depths": [1, 1, 1, 1], "window_size": 16,
          "pretrained_window_sizes": [12, 12, 12, 6]})");
  EXPECT_EQ(score_text(v2, 1),
            "swin_v2 height=16 width=16 pretrained_height=12 pretrained_width=12");
  EXPECT_EQ(score_text(v2, 2),
            "swin_v2 height=14 width=14 pretrained_height=12 pretrained_width=12");
  EXPECT_EQ(score_text(v2, 3), "swin_v2 height=7 width=7 pretrained_height=6 pretrained_width=6");
  EXPECT_THAT(first_error(score_model(R"({"model_type": "swinv2", "depths": [1, 1],
                                          "pretrained_window_sizes": [12]})")),
              HasSubstr("pretrained_window_sizes"));
  const ModelSpec beit = score_model(
      R"({"model_type": "beit", "use_relative_position_bias": true,
          "use_shared_relative_position_bias": true, "image_size": 384, "patch_size": 16})");
  EXPECT_EQ(score_text(beit, 4), "beit height=24 width=24");
  EXPECT_THAT(tensor_of(beit, 4, "table", 0), HasSubstr("encoder.layer.4."));
  EXPECT_THAT(tensor_of(beit, 4, "table", 1), HasSubstr("encoder.relative_position_bias."));
}

TEST(ScoreSide, WindowsAndWholeImagesOfSam) {
  const ModelSpec sam = score_model(
      R"({"model_type": "sam_vision_model", "num_hidden_layers": 4, "global_attn_indexes": [1]})");
  EXPECT_EQ(score_text(sam, 0), "decomposed size=[14,14]");
  EXPECT_EQ(score_text(sam, 1), "decomposed size=[64,64]");
  EXPECT_EQ(tensor_of(sam, 1, "rel_pos_w"), "layers.1.attn.rel_pos_w");
  for (const char* list : {"\"x\"", "[1.5]", "3"})
    EXPECT_THAT(first_error(score_model(std::string(R"({"model_type": "sam_vision_model",)") +
                                        "\"global_attn_indexes\": " + list + "}")),
                HasSubstr("global_attn_indexes must be a list of layers"));
}

TEST(ScoreSide, Sounds) {
  EXPECT_EQ(score_text(score_model(R"({"model_type": "vits"})")),
            "shaw left=4 right=4 beyond=zero groups=1");
  const ModelSpec speech =
      score_model(R"({"model_type": "speecht5", "encoder_max_relative_position": 160})");
  EXPECT_EQ(to_text(speech.towers.at(0).layers.at(0).encodings.at(0).value),
            "shaw left=159 right=160 sign=query_minus_key values=none");
  EXPECT_EQ(score_text(score_model(R"({"model_type": "wav2vec2-bert"})")),
            "shaw left=64 right=8 values=none");
  EXPECT_EQ(score_text(score_model(R"({"model_type": "parakeet_encoder"})")),
            "conformer d_model=1024");
  const ModelSpec wavlm = score_model(R"({"model_type": "wavlm"})");
  EXPECT_EQ(score_text(wavlm, 3), "wavlm");
  EXPECT_THAT(tensor_of(wavlm, 3, "table"), HasSubstr("layers.0."));  // the first layer's
  EXPECT_THAT(tensor_of(wavlm, 3, "gate_bias"), HasSubstr("layers.3."));
}

TEST(ScoreSide, PagesAndWords) {
  const ModelSpec v3 = score_model(R"({"model_type": "layoutlmv3"})");
  EXPECT_EQ(score_text(v3), "layoutlm heads_first=true");
  const ModelSpec order =
      score_model(R"({"model_type": "layoutlmv3", "has_spatial_attention_bias": false})");
  EXPECT_EQ(score_text(order), "t5 bidirectional=true bias_scale=0.125 heads_first=true");
  const ModelSpec boxes =
      score_model(R"({"model_type": "layoutlmv2", "has_relative_attention_bias": false})");
  EXPECT_TRUE(boxes.layers.at(0).encodings.empty());
  EXPECT_EQ(score_text(score_model(R"({"model_type": "bros"})")), "bros");
  EXPECT_THAT(first_error(score_model(R"({"model_type": "bros", "hidden_size": 100})")),
              HasSubstr("dim_bbox"));
  EXPECT_EQ(score_text(score_model(R"({"model_type": "xlnet", "clamp_len": 9})")),
            "xlnet d_model=1024 clamp_len=9 segments=2");
  EXPECT_EQ(score_model(R"({"model_type": "xlnet", "attn_type": "uni"})").layers[0].attention.right,
            0);
  EXPECT_THAT(first_error(score_model(R"({"model_type": "xlnet", "attn_type": "x"})")),
              HasSubstr("must be one of"));
  EXPECT_EQ(score_text(score_model(R"({"model_type": "cpmant"})")), "cpmant");
  const ModelSpec udop = score_model(
      R"({"model_type": "udop", "relative_bias_args": [{"type": "1d"}, {"type": "horizontal",
          "max_distance": 90}, {"type": "vertical", "relative_attention_num_buckets": 16}]})");
  EXPECT_EQ(to_text(udop.towers.at(0).layers.at(0).encodings.at(0).value),
            "udop horizontal_max_distance=90 vertical_buckets=16");
  EXPECT_THAT(
      first_error(score_model(R"({"model_type": "udop", "relative_bias_args": [{"type": "1d"}]})")),
      HasSubstr("relative_bias_args"));
  const ModelSpec mpnet =
      score_model(R"({"model_type": "mpnet", "relative_attention_num_buckets": 64})");
  EXPECT_EQ(score_text(mpnet), "t5 bidirectional=true");  // 32 whatever the file says
  EXPECT_TRUE(std::any_of(mpnet.findings.begin(), mpnet.findings.end(), [](const Finding& f) {
    return f.code == "key_ignored" && f.value == 64;
  }));
  const ModelSpec plain = score_model(R"({"model_type": "vits", "window_size": null})");
  EXPECT_EQ(plain.layers.at(0).scheme, "none");
}

TEST(ScoreNumbers, ScaleCapAndSinks) {
  const auto layer = [](const std::string& text, std::size_t n = 0) {
    const ModelSpec m = score_model(text);
    EXPECT_FALSE(m.has_error()) << text << "\n" << first_error(m);
    return m.layers.at(n);
  };
  const LayerSpec gemma = layer(
      R"({"model_type": "gemma2", "query_pre_attn_scalar": 144, "attn_logit_softcapping": 50.0,
          "head_dim": 128})");
  EXPECT_NEAR(gemma.scale->at(128), 1 / 12.0, 1e-16);
  EXPECT_EQ(gemma.softcap, 50);
  EXPECT_EQ(must_honour(gemma).at(0).what, "scale");
  EXPECT_EQ(must_honour(gemma).at(1).what, "softcap");
  EXPECT_EQ(layer(R"({"model_type": "gemma2", "attn_logit_softcapping": null})").softcap,
            std::nullopt);
  EXPECT_EQ(layer(R"({"model_type": "granite", "attention_multiplier": 0.0078125})").scale->at(64),
            0.0078125);
  // Where the file has none the class's own stands, else head_dim^-1/2.
  const LayerSpec plain = layer(R"({"model_type": "gemma2"})");
  EXPECT_EQ(plain.scale->at(128), 0.0625);
  EXPECT_EQ(plain.softcap, 50);
  EXPECT_EQ(layer(R"({"model_type": "granite"})").scale->at(64), 1);
  EXPECT_THAT(
      first_error(score_model(R"({"model_type": "granite", "attention_multiplier": null})")),
      HasSubstr("attention_multiplier"));
  EXPECT_EQ(layer(R"({"model_type": "mpt"})").scale->at(64), 0.125);
  EXPECT_EQ(layer(R"({"model_type": "mpt", "attn_config": {"softmax_scale": 0.5}})").scale->at(64),
            0.5);
  EXPECT_EQ(layer(R"({"model_type": "gpt_neo"})").scale->at(64), 1);
  EXPECT_EQ(
      layer(R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})", 3).scale->at(64),
      0.125 / 4);
  EXPECT_EQ(layer(R"({"model_type": "gpt2", "scale_attn_weights": false})").scale->at(64), 1);
  EXPECT_NEAR(layer(R"({"model_type": "zamba2"})", 6).scale->at(160), 1 / std::sqrt(80.0), 1e-15);
  EXPECT_EQ(layer(R"({"model_type": "gpt_oss"})", 2).sinks, "layers.2.self_attn.sinks");
  EXPECT_THAT(first_error(score_model(R"({"model_type": "granite", "attention_multiplier": "x"})")),
              HasSubstr("attention_multiplier"));
}

// TimesFmAttention and TimesFm2_5Attention: q softplus(scaling) 1.442695041 / sqrt(head_dim), and scaling=1.
// VideoPrismAttention has the usual scale; only its pooling head has a learned one.
TEST(ScoreNumbers, LearnedScaleOfTheQuery) {
  for (const char* type : {"timesfm", "timesfm2_5"}) {
    const ModelSpec all = score_model(R"({"model_type": ")" + std::string(type) + R"("})");
    const LayerSpec& l = all.layers.at(7);
    EXPECT_EQ(l.query_scale->tensor, "layers.7.self_attn.scaling");
    EXPECT_EQ(l.query_scale->factor, 1.442695041);
    EXPECT_EQ(l.scale->at(80), 1);
  }
  const ModelSpec m = score_model(R"({"model_type": "videoprism", "text_config": {},
    "vision_config": {}})");
  EXPECT_EQ(m.layers.at(0).scale->at(64), 0.125);
  EXPECT_EQ(m.towers.at(0).layers.at(0).scale->at(64), 0.125);
  EXPECT_EQ(m.layers.at(0).query_scale, std::nullopt);
}

TEST(ScoreNumbers, AUsualScaleIsNoRequirement) {
  const ModelSpec m = score_model(
      R"({"model_type": "gemma3_text", "query_pre_attn_scalar": 256, "head_dim": 256})");
  for (const Requirement& r : must_honour(m.layers.at(0))) EXPECT_NE(r.what, "scale");
}

std::string codes_of_tables(const ModelSpec& m) {
  std::string codes;
  for (const Finding& f : doctor(m))
    if (f.code.rfind("table_", 0) == 0 || f.code == "not_finite")
      codes += f.code + ": " + f.message + "\n";
  return codes;
}

// Every model of the suites was saved by its own class.
TEST(ScoreWeights, SavedModelsHaveWhatTheirLayersName) {
  std::size_t named = 0;
  for (const char* suite : {"model_attention/models", "tiny_models"})
    for (const auto& entry : std::filesystem::directory_iterator(
             std::string(POSENC_SOURCE_DIR "/conformance/") + suite)) {
      if (!entry.is_directory() || !exists(entry.path() / "config.json")) continue;
      const ModelSpec m = read_model(entry.path());
      EXPECT_EQ(codes_of_tables(m), "") << entry.path();
      for (const LayerSpec& layer : m.layers)
        for (const LayerEncoding& e : layer.encodings) named += e.tensors.size();
    }
  EXPECT_GT(named, 60u);
}

TEST(ScoreWeights, WhatIsWrongWithThemIsFound) {
  const Json config = parse_config(
      R"({"model_type": "t5", "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2,
          "relative_attention_num_buckets": 8})",
      "config.json");
  const auto table = [](Index rows, float value) {
    Array a = make_array(DType::f32, {rows, 2});
    std::fill_n(reinterpret_cast<float*>(a.bytes.data()), rows * 2, value);
    return a;
  };
  const auto says = [&](Array encoder, bool decoder) {
    Arrays weights;
    const std::string rest = ".block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    weights.emplace("encoder" + rest, std::move(encoder));
    if (decoder) weights.emplace("decoder" + rest, table(8, 1));
    const test::Folder f("posenc_score_tables", config, weights);
    return codes_of_tables(read_model(f.path()));
  };
  EXPECT_EQ(says(table(8, 1), true), "");
  EXPECT_THAT(says(table(8, 1), false),
              HasSubstr("table_missing: the weights have no tensor decoder"));
  EXPECT_THAT(says(table(9, 1), true), HasSubstr("has shape [9, 2], table of t5 needs [8, heads]"));
  EXPECT_THAT(says(table(8, NAN), true), HasSubstr("not_finite"));
  EXPECT_THAT(says(table(8, 0), true), HasSubstr("table_zero"));
}

std::string severity_of_zero(const char* config, const std::string& tensor,
                             std::vector<Index> shape) {
  Arrays weights;
  weights.emplace(tensor, make_array(DType::f32, std::move(shape)));
  const test::Folder f("posenc_zero_tables", parse_config(config, "config.json"), weights);
  for (const Finding& found : check_tables(read_model(f.path())))
    if (found.code == "table_zero") return std::string(enum_text(found.severity));
  return "";
}

// Which start at zero: every class of the table with a table in its score was built by transformers
// 5.23. Biases are zero by right.
TEST(ScoreWeights, ZerosOfTablesThatStartAtRandom) {
  EXPECT_EQ(severity_of_zero(R"({"model_type":"mpnet","num_hidden_layers":1})",
                             "encoder.relative_attention_bias.weight", {32, 12}),
            "error");
  EXPECT_EQ(severity_of_zero(
                R"({"model_type":"deberta-v2","num_hidden_layers":1,"hidden_size":8,
                    "num_attention_heads":2,"relative_attention":true,"pos_att_type":["c2p","p2c"],
                    "position_buckets":4,"max_relative_positions":8,"share_att_key":true})",
                "encoder.rel_embeddings.weight", {8, 8}),
            "error");
  EXPECT_EQ(severity_of_zero(R"({"model_type":"xlnet","n_layer":1,"d_model":8,"n_head":2})",
                             "layer.0.rel_attn.r", {8, 2, 4}),
            "error");
  EXPECT_EQ(severity_of_zero(R"({"model_type":"xlnet","n_layer":1,"d_model":8,"n_head":2})",
                             "layer.0.rel_attn.r_w_bias", {2, 4}),
            "");
  EXPECT_EQ(severity_of_zero(
                R"({"model_type":"swin","depths":[1],"num_heads":[2],"window_size":2,"embed_dim":8,
                    "image_size":16,"patch_size":4})",
                "encoder.layers.0.blocks.0.attention.self.relative_position_bias_table", {9, 2}),
            "note");
}

TEST(ScoreWeights, ReadsByTheNamesOfTheLayer) {
  const ModelSpec t5 = read_model(POSENC_SOURCE_DIR "/conformance/model_attention/models/t5");
  ModelWeights weights(t5.weights);
  const LayerSpec& layer = t5.layers.at(1);
  const LayerAttention call = layer_attention(layer, arange(0, 1), 0);
  const AttentionPlan plan(call.schemes, {.heads = 3, .head_dim = 8});
  const auto found = read_parameters(weights, layer, plan.parameters());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "table");
  EXPECT_EQ(found[0].values.size(), static_cast<std::size_t>(found[0].shape[0] * 3));
  // Another number of heads: the tensor does not fit.
  const AttentionPlan other(call.schemes, {.heads = 5, .head_dim = 8});
  EXPECT_THAT(problem_of([&] { read_parameters(weights, layer, other.parameters()); }),
              HasSubstr("table needs"));
  ModelWeights nothing("");
  EXPECT_THAT(problem_of([&] { read_parameters(nothing, layer, plan.parameters()); }),
              HasSubstr("no weights"));
  EXPECT_THAT(problem_of([&] { read_sinks(weights, layer, 4); }), HasSubstr("sinks"));
}

}  // namespace
}  // namespace posenc
