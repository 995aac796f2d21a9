// SPDX-License-Identifier: Apache-2.0
// Which keys each layer sees. masks.json has what small models of transformers 5.23 do, by the gradient of
// each output of a layer by all inputs (tools/model_table/run_masks.py --record).
#include <gmock/gmock.h>

#include "class_rules.h"
#include "model/hugging_face_suite.h"

namespace posenc {
namespace {

using namespace test;
using ::testing::HasSubstr;

const std::vector<LayerSpec>* masks_part(const ModelSpec& spec, const std::string& name) {
  if (name.empty()) return &spec.layers;
  for (const Tower& tower : spec.towers)
    if (tower.name == name) return &tower.layers;
  return nullptr;
}

// Of tokens without types no token sees later ones by its type.
AttentionSpec without_types(AttentionSpec a) {
  if (std::exchange(a.by_token_type, std::nullopt)) a.right = 0;
  return a;
}

std::string masks_row(const AttentionSpec& a, const std::vector<Index>& types, Index i, Index n) {
  const std::vector<Index> blocks =
      a.by_token_type ? token_blocks(*a.by_token_type, types) : std::vector<Index>();
  std::string row;
  for (Index j = 0; j < n; ++j) row += sees(a, blocks, i, j) ? '1' : '.';
  return row;
}

TEST(Masks, AreThoseOfTheModelsThatWereRun) {
  const Json file =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / "masks.json");
  int layers = 0;
  for (const Json& c : file.at("cases").as_array()) {
    const ModelSpec spec = read_hugging_face(c.at("config"), "config.json");
    const std::string who = c.at("config").dump() + "\n";
    EXPECT_FALSE(spec.has_error()) << who << errors_of(spec);
    std::vector<Index> types;
    if (c.at("types").is_array())
      for (const Json& type : c.at("types").as_array()) types.push_back(type.as_integer());
    for (const auto& [name, rows] : c.at("parts").as_object()) {
      const auto* part = masks_part(spec, name);
      ASSERT_TRUE(part && part->size() == rows.as_array().size()) << who << name;
      for (std::size_t l = 0; l < part->size(); ++l) {
        const Json::Array& want = rows.as_array()[l].as_array();
        const AttentionSpec& told = (*part)[l].attention;
        const AttentionSpec a = types.empty() ? without_types(told) : told;
        for (std::size_t i = 0; i < want.size(); ++i)
          EXPECT_EQ(masks_row(a, types, static_cast<Index>(i), static_cast<Index>(want.size())),
                    want[i].as_string())
              << who << name << " layer " << l << " token " << i;
        layers += want.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GE(layers, 60);
}

std::string small_config(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type +
         R"(", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
             "max_position_embeddings": 64)" +
         (more.empty() ? "" : ", " + more) + "}";
}
std::string finding_of(const ModelSpec& spec, const std::string& code) {
  const Finding* f = test::finding(spec, code);
  return f ? f->message : "";
}

// huggingface/transformers#43705.
TEST(Masks, IsCausalOfFalseShowsADecoderTheLaterKeys) {
  const ModelSpec spec =
      read(small_config("mistral", R"("sliding_window": 3, "is_causal": false)"));
  const LayerSpec& layer = spec.layers.at(0);
  EXPECT_EQ(layer.attention.left, 3);
  EXPECT_EQ(layer.attention.right, 3);
  EXPECT_EQ(layer.field("causal")->value, Json(false));
  EXPECT_EQ(layer.field("causal")->where, "config.json#/is_causal");
  EXPECT_EQ(must_honour(layer).at(0).text,
            "mask keys but the query's own, 3 before and 3 after it");
  EXPECT_THAT(finding_of(spec, "bidirectional_decoder"), HasSubstr("is_causal is false"));
  const ModelSpec true_one =
      read(small_config("mistral", R"("sliding_window": 3, "is_causal": true)"));
  EXPECT_EQ(true_one.layers.at(0).attention.right, 0);
  EXPECT_EQ(test::finding(true_one, "bidirectional_decoder"), nullptr);
}

TEST(Masks, APersonMaySayIsCausal) {
  ReadOptions options;
  options.assume = {{"is_causal", "false"}};
  const ModelSpec spec = read_hugging_face(parse_config(small_config("llama", ""), "config.json"),
                                           "config.json", options);
  EXPECT_FALSE(spec.has_error()) << errors_of(spec);
  EXPECT_EQ(spec.layers.at(0).attention.right, std::nullopt);
  EXPECT_EQ(spec.layers.at(0).field("causal")->origin, Origin::user);
}

TEST(Masks, ClassesThatDoNotObeyIsCausalSayWhatTheyDo) {
  const auto read_type = [](const std::string& type) {
    return read(small_config(type, R"("is_causal": false)"));
  };
  const ModelSpec ignored = read_type("openai-gpt"), kernel = read_type("stablelm");
  EXPECT_EQ(ignored.layers.at(0).attention.right, 0);
  EXPECT_THAT(finding_of(ignored, "key_ignored"), HasSubstr("hides the keys after a query"));
  EXPECT_EQ(kernel.layers.at(0).attention.right, 0);
  EXPECT_THAT(finding_of(kernel, "one_kernel"), HasSubstr("eager kernel only"));
  EXPECT_THAT(errors_of(read_type("mpt")), HasSubstr("fails on the first token"));
  EXPECT_THAT(errors_of(read(small_config("llama", R"("is_causal": null)"))),
              HasSubstr("is_causal is null"));
  // Code of the model's own repository makes masks of its own.
  EXPECT_THAT(finding_of(read(small_config("exaone", R"("is_causal": false, "num_layers": 1)")),
                         "key_ignored"),
              HasSubstr("is_causal is false"));
}

// Run: its attention says is_causal, which SDPA takes where it gets no mask.
TEST(Masks, PatchesOfPhi4DependOnTheKernel) {
  const ModelSpec spec = read(R"({"model_type": "phi4_multimodal_vision"})");
  EXPECT_EQ(spec.layers.at(0).attention.right, std::nullopt);
  EXPECT_THAT(finding_of(spec, "one_kernel"), HasSubstr("a patch does not see later ones"));
}

// A key of the class around the text: run, of LLaVA-NeXT and Aya Vision.
TEST(Masks, IsCausalAtTheTopLevelCountsWhereTheClassPassesItOn) {
  const std::string text =
      R"("is_causal": false, "text_config": )" + small_config("llama", "") + "}";
  const ModelSpec passed = read(R"({"model_type": "llava_next", )" + text);
  EXPECT_EQ(passed.layers.at(0).attention.right, std::nullopt);
  EXPECT_EQ(passed.layers.at(0).field("causal")->where, "config.json#/is_causal");
  const ModelSpec lost = read(R"({"model_type": "llava", )" + text);
  EXPECT_EQ(lost.layers.at(0).attention.right, 0);
  EXPECT_THAT(finding_of(lost, "one_kernel"), HasSubstr("is_causal is false at the top level"));
}

TEST(Masks, UseBidirectionalAttentionIsTheClasss) {
  const std::string key = R"("use_bidirectional_attention": true, "sliding_window": 8)";
  const ModelSpec gemma3 = read(small_config("gemma3_text", key));
  EXPECT_EQ(gemma3.layers.at(0).attention.left, 4);
  EXPECT_EQ(gemma3.layers.at(0).attention.right, 4);
  const ModelSpec gemma2 = read(small_config("gemma2", key));
  EXPECT_EQ(gemma2.layers.at(0).attention.left, 7);
  EXPECT_EQ(gemma2.layers.at(0).attention.right, 0);
  EXPECT_THAT(finding_of(gemma2, "key_ignored"), HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(finding_of(read(small_config("gemma", R"("use_bidirectional_attention": true)")),
                         "one_kernel"),
              HasSubstr("sdpa"));
}

// (W + 1) // 2 - 1 keys before and W // 2 after: run with 3 and 4.
TEST(Masks, WindowsOfT5Gemma2sEncoderAreCutInHalves) {
  for (const auto& [window, left, right] :
       {std::tuple<Index, Index, Index>{3, 1, 1}, {4, 1, 2}, {4096, 2047, 2048}}) {
    const std::string text = small_config(
        "t5gemma2_text",
        R"("layer_types": ["sliding_attention"], "sliding_window": )" + std::to_string(window));
    const ModelSpec alone =
        read(R"({"model_type": "t5gemma2_encoder", "text_config": )" + text + "}");
    EXPECT_EQ(alone.layers.at(0).attention.left, left);
    EXPECT_EQ(alone.layers.at(0).attention.right, right);
    const ModelSpec whole = read(
        R"({"model_type": "t5gemma2", "encoder": {"model_type": "t5gemma2_encoder", "text_config": )" +
        text + R"(}, "decoder": )" +
        small_config("t5gemma2_decoder", R"("layer_types": ["sliding_attention"])") + "}");
    ASSERT_EQ(whole.towers.size(), 1u);
    EXPECT_EQ(whole.towers[0].name, "encoder");
    EXPECT_EQ(whole.towers[0].layers.at(0).attention.right, right);
    EXPECT_EQ(whole.layers.at(0).attention.right, 0);
  }
}

TEST(Masks, ConvolutionsOfAVisionTowerAreNoAttention) {
  const ModelSpec spec = read(
      R"({"model_type": "lfm3_vl", "vision_config": {"num_hidden_layers": 4}, "text_config": )" +
      small_config("lfm3", "") + "}");
  ASSERT_EQ(spec.towers.size(), 1u);
  std::string kinds;  // layer 0, 1 and every odd one
  for (const LayerSpec& layer : spec.towers[0].layers)
    kinds += std::string(enum_text(layer.attention.kind)) + " ";
  EXPECT_EQ(kinds, "none none full none ");
}

TEST(Masks, TokensOfAnImageSeeEachOther) {
  const ModelSpec spec =
      read(R"({"model_type": "gemma3", "text_config": )" +
           small_config("gemma3_text",
                        R"("sliding_window": 1024, "layer_types": ["sliding_attention"])") +
           "}");
  const LayerSpec& layer = spec.layers.at(0);
  EXPECT_EQ(layer.attention.left, 1023);
  EXPECT_EQ(layer.attention.right, std::nullopt);
  const std::vector<Requirement> all = must_honour(layer);
  const auto told = std::ranges::find(all, "mask_by_token_type", &Requirement::what);
  ASSERT_NE(told, all.end());
  EXPECT_EQ(
      told->value.dump(),
      R"({"tokens": "images", "input": "token_type_ids", "types": [1], "blocks": "runs", "left": 1023, "right": null})");
  EXPECT_EQ(told->text,
            "except that tokens of images see each other, later ones too (token_type_ids 1, each "
            "run of them by itself), but no key more than 1023 before the query");
  // The text alone has no images.
  const ModelSpec text = read(small_config("gemma3_text", ""));
  EXPECT_EQ(text.layers.at(0).attention.right, 0);
}

}  // namespace
}  // namespace posenc
