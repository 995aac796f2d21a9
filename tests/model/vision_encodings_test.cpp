// SPDX-License-Identifier: Apache-2.0
// Tables of positions of images, video and spectrograms against models that transformers 5.23 built
// (vision_encodings.json, written by tools/model_table/run_vision.py): rows, widths and names of
// tables, rows of sinusoids as numbers, layers whose score has a relative table, sizes that cannot
// be built.
#include <numbers>

#include "hugging_face_suite.h"
#include "input_rows.h"

namespace posenc {
namespace {

using namespace test;

ModelSpec read(const std::string& text) {
  return read_hugging_face(parse_json(text, "config.json"), "config.json");
}

// The encoding whose tensor has the name of a parameter of the model.
const InputEncoding* holder_of(const ModelSpec& spec, const std::string& name) {
  for (const InputEncoding& e : spec.input)
    for (const std::string& t : e.tensors)
      if (!t.empty() && name.ends_with(t)) return &e;
  return nullptr;
}

void check_table(const ModelSpec& spec, const Json& want, const std::string& who) {
  const InputEncoding* found = holder_of(spec, want.at("name").as_string());
  ASSERT_NE(found, nullptr) << who << want.dump();
  const Index rows = want.at("rows").as_integer(), width = want.at("width").as_integer();
  if (const auto* axes = std::get_if<LearnedAxes>(&found->value.scheme)) {
    EXPECT_EQ(axes->shape, (std::vector<Index>{rows, rows})) << who;
    EXPECT_EQ(axes->width, axes->widths.empty() ? width : 2 * width) << who;
    return;
  }
  const auto* table = std::get_if<Learned>(&found->value.scheme);
  ASSERT_NE(table, nullptr) << who << to_text(found->value);
  EXPECT_EQ(table->rows, rows) << who;
  EXPECT_EQ(table->width, width) << who;
}

// Coordinates are within [-1, 1] and turn by 2 pi times a frequency: rows, then columns.
void check_frequencies(const ModelSpec& spec, const Json& want, const std::string& who) {
  for (const LayerSpec& layer : spec.layers) {
    ASSERT_TRUE(layer.rotary) << who;
    const RotaryBlock& block = layer.rotary->blocks.front();
    const auto each = static_cast<Index>(want.as_array().size());
    ASSERT_EQ(block.pairs(), 2 * each) << who;
    for (Index axis = 0; axis < 2; ++axis)
      for (Index i = 0; i < each; ++i)
        EXPECT_NEAR(
            block.spectrum.frequency[static_cast<std::size_t>(axis * 2 * each + axis * each + i)],
            2 * std::numbers::pi * want.as_array()[static_cast<std::size_t>(i)].as_number(), 1e-6)
            << who;
  }
}

TEST(VisionEncodings, AsTransformersBuildsThem) {
  const Json cases = read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" /
                               "vision_encodings.json");
  int tables = 0, sines = 0, scores = 0, refused = 0;
  for (const Json& c : cases.at("cases").as_array()) {
    const std::string who = c.at("config").dump() + "\n";
    const ModelSpec spec = read_hugging_face(c.at("config"), "config.json");
    if (c.find("refused")) {
      EXPECT_TRUE(spec.has_error()) << who;
      ++refused;
      continue;
    }
    ASSERT_FALSE(spec.has_error()) << who << errors_of(spec);
    for (const Json& want : c.at("tables").as_array()) check_table(spec, want, who), ++tables;
    if (const Json* order = c.find("order")) {  // of the axes, half of the channels each
      const auto* axes = std::get_if<LearnedAxes>(&spec.input.at(0).value.scheme);
      ASSERT_NE(axes, nullptr) << who;
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_EQ(axes->order.at(i), order->as_array()[i].as_integer()) << who;
    }
    std::size_t named = 0;
    for (const InputEncoding& e : spec.input) named += e.tensors.size();
    EXPECT_EQ(named, c.at("tables").as_array().size()) << who;
    if (const Json* values = c.find("values")) {
      ASSERT_EQ(spec.input.size(), 1u) << who;
      std::vector<double> grid{0, 0, 1, 0, 1, 1};
      if (const Json* at = c.find("at")) {
        grid.clear();
        for (const Json& axis : at->as_array())
          for (const Json& place : axis.as_array()) grid.push_back(place.as_number());
      }
      check_rows(spec.input.front().value, *values, who, grid);
      if (const auto n = spec.input.front().positions) {
        EXPECT_EQ(*n, c.at("positions").as_integer()) << who;
      }
      ++sines;
    }
    if (const Json* inv_freq = c.find("inv_freq")) check_frequencies(spec, *inv_freq, who);
    std::int64_t acts = 0;
    for (const LayerSpec& layer : spec.layers) acts += layer.scheme != "none";
    EXPECT_EQ(acts, c.at("scores").as_integer()) << who;
    scores += acts > 0;
  }
  EXPECT_GE(tables, 200);
  EXPECT_GE(sines, 28);
  EXPECT_GE(scores, 25);
  EXPECT_GE(refused, 50);
}

// A backbone holds the positions of a model of images: facebook/dpt-dinov2-small-nyu and
// Intel/dpt-hybrid-midas as they are published, sizes shortened; rows counted on the built models.
TEST(VisionEncodings, Backbones) {
  const ModelSpec dpt = read(R"({"model_type":"dpt","is_hybrid":false,"image_size":null,
      "hidden_size":768,"backbone_config":{"model_type":"dinov2","image_size":518,"patch_size":14,
      "hidden_size":384,"num_attention_heads":6,"num_hidden_layers":12}})");
  ASSERT_FALSE(dpt.has_error()) << errors_of(dpt);
  ASSERT_EQ(dpt.input.size(), 1u);
  EXPECT_EQ(to_text(dpt.input[0].value), "learned width=384 rows=1370");
  const ModelSpec hybrid = read(R"({"model_type":"dpt","is_hybrid":true,"image_size":384,
      "patch_size":16,"backbone_config":{"model_type":"bit","depths":[3,4,9]}})");
  ASSERT_FALSE(hybrid.has_error()) << errors_of(hybrid);
  EXPECT_EQ(to_text(hybrid.input.at(0).value), "learned width=768 rows=577");
  ASSERT_EQ(hybrid.towers.size(), 1u);
  EXPECT_EQ(hybrid.towers[0].layers.size(), 16u);
  EXPECT_EQ(hybrid.towers[0].layers[0].attention.kind, AttentionKind::none);
  const ModelSpec depth = read(R"({"model_type":"depth_anything"})");
  ASSERT_FALSE(depth.has_error()) << errors_of(depth);
  EXPECT_EQ(to_text(depth.input.at(0).value), "learned width=384 rows=1370");
}

// Convolutions alone have no positions and no attention; SegFormer's attention has no positions.
TEST(VisionEncodings, NoPositions) {
  const ModelSpec resnet = read(R"({"model_type":"resnet","depths":[2,2,2,2]})");
  ASSERT_FALSE(resnet.has_error()) << errors_of(resnet);
  EXPECT_EQ(resnet.layers.size(), 8u);
  for (const LayerSpec& layer : resnet.layers) {
    EXPECT_EQ(layer.attention.kind, AttentionKind::none);
    EXPECT_EQ(layer.scheme, "none");
  }
  const ModelSpec segformer = read(R"({"model_type":"segformer","depths":[3,6,40,3]})");
  ASSERT_FALSE(segformer.has_error()) << errors_of(segformer);
  EXPECT_EQ(segformer.layers.size(), 52u);
  EXPECT_EQ(segformer.layers[0].attention.kind, AttentionKind::full);
  EXPECT_TRUE(segformer.input.empty());
  const ModelSpec linear = read(R"({"model_type":"mobilevitv2"})");  // attention linear in patches
  ASSERT_EQ(linear.layers.size(), 9u) << errors_of(linear);
  EXPECT_EQ(linear.layers[0].attention.kind, AttentionKind::linear);
  EXPECT_EQ(read(R"({"model_type":"pp_ocrv5_server_rec","depth":3})").layers.size(), 3u);
  EXPECT_FALSE(read(R"({"model_type":"uvdoc"})").has_error());
  // Without a backbone_config all four build PPLCNetV4Config, of convolutions alone.
  for (const auto& [type, layers] : {std::pair<const char*, std::size_t>{"pp_ocrv6_small_rec", 2},
                                     {"pp_ocrv6_small_det", 0},
                                     {"pp_ocrv6_medium_det", 0},
                                     {"pp_ocrv6_tiny_rec", 0}}) {
    const ModelSpec model = read(std::string(R"({"model_type":")") + type + R"("})");
    EXPECT_FALSE(model.has_error()) << type << errors_of(model);
    EXPECT_EQ(model.layers.size(), layers) << type;
  }
}

// Where and what the rows of DETR and similar models meet; bases that differ; a mechanism without a scheme.
TEST(VisionEncodings, AtTheQueriesAndKeys) {
  const ModelSpec detr = read(R"({"model_type":"detr"})");
  ASSERT_FALSE(detr.has_error()) << errors_of(detr);
  EXPECT_EQ(detr.input.at(0).where, "DetrConfig, at q and k of its layers");
  EXPECT_EQ(detr.input.at(0).counts, PositionRule::mask);
  EXPECT_EQ(detr.layers.size(), 6u);
  EXPECT_EQ(read(R"({"model_type":"deformable_detr"})").input.at(0).where,
            "DeformableDetrConfig, at q of its layers");
  // facebook/mask2former-swin-base-coco-panoptic states both counts: the pixel decoder has 6
  const ModelSpec masks =
      read(R"({"model_type":"mask2former","encoder_layers":6,"decoder_layers":10,
      "num_hidden_layers":10,"hidden_dim":256,"feature_size":256})");
  ASSERT_FALSE(masks.has_error()) << errors_of(masks);
  EXPECT_EQ(masks.layers.size(), 6u);
  for (const Finding& f : masks.findings) EXPECT_NE(f.severity, Severity::warning) << f.message;
  EXPECT_EQ(read(R"({"model_type":"rt_detr","num_hidden_layers":6})").layers.size(), 1u);
  EXPECT_TRUE(read(R"({"model_type":"dab-detr","temperature_width":0})").has_error());
  const ModelSpec sam2 = read(R"({"model_type":"sam2"})");
  ASSERT_TRUE(sam2.has_error());
  EXPECT_EQ(sam2.findings.front().code, "layout_not_covered");
  EXPECT_NE(sam2.findings.front().message.find("pos_embed_window"), std::string::npos);
  EXPECT_TRUE(read(R"({"model_type":"efficientnet"})").layers.empty());
}

// A tower of a composite, as HuggingFaceTB/SmolVLM-256M-Instruct states it: 1024 rows of 32 x 32
// cells.
TEST(VisionEncodings, TowerOfAComposite) {
  const ModelSpec spec = read(R"({"model_type":"idefics3","text_config":{"model_type":"llama"},
      "vision_config":{"model_type":"idefics3_vision","hidden_size":768,"image_size":512,
      "patch_size":16,"num_attention_heads":12,"num_hidden_layers":12}})");
  ASSERT_FALSE(spec.has_error()) << errors_of(spec);
  ASSERT_EQ(spec.towers.size(), 1u);
  EXPECT_EQ(to_text(spec.towers[0].input.at(0).value), "learned width=768 rows=1024");
}

}  // namespace
}  // namespace posenc
