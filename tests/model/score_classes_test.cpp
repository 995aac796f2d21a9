// SPDX-License-Identifier: Apache-2.0
// Classes whose score the reader finds: Funnel, classes that transformers no longer has, a decoder
// that is a tower, and tables of each axis on the grid of a call.
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
