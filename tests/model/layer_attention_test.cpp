// SPDX-License-Identifier: Apache-2.0
// A layer as a call of attention: what is handed on and what is refused. Whole layers are in the
// suite model_attention.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/model/layer_attention.h"
#include "posenc/model/read.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

ModelSpec tiny_attention_model(const std::string& name) {
  return read_model(POSENC_SOURCE_DIR "/conformance/model_attention/models/" + name);
}

TEST(LayerAttention, HandsOnWhatTheLayerSays) {
  const ModelSpec gemma = tiny_attention_model("gemma2");
  const LayerAttention local = layer_attention(gemma.layers[0], 3, 5);
  EXPECT_EQ(local.rotary, &*gemma.layers[0].rotary);
  EXPECT_EQ(local.window_left, 4);
  EXPECT_EQ(local.window_right, 0);
  EXPECT_TRUE(local.schemes.empty());
  const ModelSpec llama4 = tiny_attention_model("llama4");
  const LayerAttention chunked = layer_attention(llama4.layers[0], 3, 5);
  EXPECT_EQ(chunked.chunk, 7);
  ASSERT_EQ(chunked.stages.size(), 2u);
  EXPECT_EQ(chunked.stages[1].kind, StageKind::rms);
  const LayerAttention plain = layer_attention(llama4.layers[1], 3, 5);
  ASSERT_EQ(plain.query_factors.size(), 3u);
  EXPECT_EQ(plain.query_factors[0], query_factor(*llama4.layers[1].query_temperature, 5));
  const ModelSpec roformer = tiny_attention_model("roformer_value");
  EXPECT_TRUE(layer_attention(roformer.layers[0], 1, 0).stages.at(0).value);
  EXPECT_EQ(layer_attention(tiny_attention_model("bloom").layers[0], 1, 0).schemes.size(), 1u);
}

TEST(LayerAttention, RefusesWhatItCannotSay) {
  const ModelSpec funnel = read_hugging_face(
      parse_config(R"({"model_type": "funnel", "vocab_size": 9})", "config.json"), "config.json");
  const LayerSpec& layer = funnel.layers.at(0);
  EXPECT_THAT(refusal([&] { layer_attention(layer, 1, 0); }), HasSubstr("funnel"));
  EXPECT_NO_THROW(layer_attention(layer, 1, 0, UnreadScheme::caller_adds));
  LayerSpec other = tiny_attention_model("llama").layers[0];
  other.unrotates_output = true;
  EXPECT_THAT(refusal([&] { layer_attention(other, 1, 0); }), HasSubstr("rotated back"));
  other.unrotates_output = false;
  QkNorm weighted;
  weighted.after_rotation = true;
  weighted.eps = 1e-6;
  other.qk_norm = weighted;
  EXPECT_THAT(refusal([&] { layer_attention(other, 1, 0); }), HasSubstr("norm after the rotation"));
  other.qk_norm.reset();
  other.attention.kind = AttentionKind::linear;
  EXPECT_THAT(refusal([&] { layer_attention(other, 1, 0); }), HasSubstr("softmax attention"));
}

}  // namespace
}  // namespace posenc
