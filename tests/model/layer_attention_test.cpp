// SPDX-License-Identifier: Apache-2.0
// A layer as a call of attention: what is handed on and what is refused. Whole layers are in the
// suite model_attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/model/layer_attention.h"
#include "posenc/model/read.h"
#include "posenc/positions.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::DoubleEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

ModelSpec tiny_attention_model(const std::string& name) {
  return read_model(POSENC_SOURCE_DIR "/conformance/model_attention/models/" + name);
}

TEST(LayerAttention, HandsOnWhatTheLayerSays) {
  const ModelSpec gemma = tiny_attention_model("gemma2");
  const LayerAttention local = layer_attention(gemma.layers[0], arange(5, 3), 5);
  EXPECT_EQ(local.rotary, &*gemma.layers[0].rotary);
  EXPECT_EQ(local.window_left, 4);
  EXPECT_EQ(local.window_right, 0);
  EXPECT_TRUE(local.schemes.empty());
  const ModelSpec llama4 = tiny_attention_model("llama4");
  const LayerAttention chunked = layer_attention(llama4.layers[0], arange(5, 3), 5);
  EXPECT_EQ(chunked.chunk, 7);
  ASSERT_EQ(chunked.stages.size(), 2u);
  EXPECT_EQ(chunked.stages[1].kind, StageKind::rms);
  const LayerAttention plain = layer_attention(llama4.layers[1], arange(5, 3), 5);
  ASSERT_EQ(plain.query_factors.size(), 3u);
  EXPECT_EQ(plain.query_factors[0], query_factor(*llama4.layers[1].query_temperature, 5));
  const ModelSpec roformer = tiny_attention_model("roformer_value");
  EXPECT_TRUE(layer_attention(roformer.layers[0], arange(0, 1), 0).stages.at(0).value);
  EXPECT_EQ(
      layer_attention(tiny_attention_model("bloom").layers[0], arange(0, 1), 0).schemes.size(), 1u);
}

// Ministral 3 and Mistral 4 multiply q by a function of position_ids, Llama 4 and Qwen-1 by one of the
// column (modeling_ministral3, modeling_mistral4 and modeling_llama4 of transformers 5.23), llama.cpp
// by the position of the batch.
TEST(LayerAttention, CountsTheTemperatureByPositionOrByOrder) {
  LayerSpec layer = tiny_attention_model("llama").layers[0];
  layer.query_temperature = {TemperatureForm::ministral, 0.25, 6, TemperatureIndex::position};
  const std::vector<Index> two_rows{6, 7, 0, 13};
  Positions at = positions(tensor(two_rows.data(), {2, 2}));
  const LayerAttention by_position = layer_attention(layer, at, 100);
  const double once = 1 + 0.25 * std::log1p(1.0), twice = 1 + 0.25 * std::log1p(2.0);
  EXPECT_THAT(by_position.query_factors,
              Pointwise(DoubleEq(), std::vector<double>{once, once, 1, twice}));
  const ConstTensorView view = by_position.query_factor();
  EXPECT_EQ(view.rank, 2);
  EXPECT_EQ(view.shape[0], 2);
  EXPECT_EQ(view.shape[1], 2);
  layer.query_temperature->by = TemperatureIndex::order;
  const LayerAttention by_order = layer_attention(layer, at, 5);
  EXPECT_THAT(by_order.query_factors, Pointwise(DoubleEq(), std::vector<double>{1, once}));
  EXPECT_EQ(by_order.query_factor().shape[0], 1);
  layer.query_temperature->by = TemperatureIndex::position;
  at.data = nullptr;  // the orders are the positions
  EXPECT_THAT(layer_attention(layer, at, 5).query_factors,
              Pointwise(DoubleEq(), std::vector<double>{1, once}));
  at.type = DType::u8;
  EXPECT_THAT(refusal([&] { layer_attention(layer, at, 5); }),
              HasSubstr("[layer] query_positions must be i64, i32 or f64"));
  EXPECT_TRUE(layer_attention(tiny_attention_model("llama").layers[0], arange(0, 3), 0)
                  .query_factor()
                  .empty());
}

// transformers 5.23, modeling_inkling: tau.
TEST(LayerAttention, GrowsWithTheLogarithmAboveAFloor) {
  const QueryTemperature t{TemperatureForm::log_floor, 0.25, 6, TemperatureIndex::order};
  EXPECT_EQ(query_factor(t, 5), 1);
  EXPECT_DOUBLE_EQ(query_factor(t, 23), 1 + 0.25 * std::log(4.0));
  EXPECT_THAT(
      refusal([&] {
        (void)query_factor({TemperatureForm{9}, 0.25, 6}, 5);
      }),
      HasSubstr("[query_temperature] form must be llama4, ministral, log_n or log_floor, got 9"));
}

TEST(LayerAttention, RefusesSinksOfEachQuery) {
  LayerSpec layer = tiny_attention_model("llama").layers[0];
  layer.query_sinks = "layers.0.self_attn.sink_proj.weight";
  EXPECT_THAT(
      refusal([&] { layer_attention(layer, arange(0, 3), 0); }),
      HasSubstr("[layer] the call must not have sinks of each query, and each query of layer "
                "0 has one a head, a projection of its hidden state "
                "(layers.0.self_attn.sink_proj.weight)"));
}

TEST(LayerAttention, EachClassCountsAsItsProgramDoes) {
  const auto by = [](const std::string& config) {
    const ModelSpec spec = read_hugging_face(parse_config(config, "config.json"), "config.json");
    for (const LayerSpec& layer : spec.layers)
      if (layer.query_temperature) return layer.query_temperature->by;
    ADD_FAILURE() << config;
    return TemperatureIndex::order;
  };
  EXPECT_EQ(by(R"({"model_type": "ministral3"})"), TemperatureIndex::position);
  EXPECT_EQ(by(R"({"model_type": "mistral4"})"), TemperatureIndex::position);
  EXPECT_EQ(by(R"({"model_type": "llama4_text"})"), TemperatureIndex::order);
}

TEST(LayerAttention, RefusesWhatItCannotSay) {
  LayerSpec layer;  // of a scheme known by name alone
  layer.index = 3;
  layer.scheme = "made_up";
  EXPECT_THAT(
      refusal([&] { layer_attention(layer, arange(0, 1), 0); }),
      HasSubstr("the scheme made_up of layer 3 has fields that the model's file does not say"));
  EXPECT_NO_THROW(layer_attention(layer, arange(0, 1), 0, UnreadScheme::caller_adds));
  LayerSpec other = tiny_attention_model("llama").layers[0];
  other.unrotates_output = true;
  EXPECT_THAT(refusal([&] { layer_attention(other, arange(0, 1), 0); }), HasSubstr("rotated back"));
  other.unrotates_output = false;
  QkNorm weighted;
  weighted.after_rotation = true;
  weighted.eps = 1e-6;
  other.qk_norm = weighted;
  EXPECT_THAT(refusal([&] { layer_attention(other, arange(0, 1), 0); }),
              HasSubstr("norm after the rotation"));
  other.qk_norm.reset();
  other.attention.kind = AttentionKind::linear;
  EXPECT_THAT(refusal([&] { layer_attention(other, arange(0, 1), 0); }),
              HasSubstr("layer 0 must have softmax attention; it has linear"));
}

}  // namespace
}  // namespace posenc
