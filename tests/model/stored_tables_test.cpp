// SPDX-License-Identifier: Apache-2.0
// Tables of positions in the weights beside a config: found, read, and what the doctor says of
// them.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "core/convert.h"
#include "model_folder.h"
#include "posenc/model/weights.h"

namespace posenc {
namespace {

using namespace test;

Array table(Index rows, Index width, DType dtype = DType::f32, Index zero_from = -1) {
  Array a = make_array(DType::f32, {rows, width});
  auto* v = reinterpret_cast<float*>(a.bytes.data());
  for (Index i = 0; i < rows * width; ++i)
    v[i] = zero_from >= 0 && i / width >= zero_from ? 0.0f : 0.01f * static_cast<float>(i % 97 + 1);
  if (dtype == DType::f32) return a;
  Array other = make_array(DType::bf16, {rows, width});
  const std::vector<double> d = a.doubles();
  for (std::size_t i = 0; i < d.size(); ++i) {
    const std::uint16_t bits = bf16_from(d[i]);
    std::memcpy(other.bytes.data() + 2 * i, &bits, 2);
  }
  return other;
}

Json small(const char* type, Index rows) {
  Json c = with(with(bert(), "model_type", type), "max_position_embeddings", rows);
  return with(with(with(c, "hidden_size", 8), "num_attention_heads", 2), "pad_token_id", 1);
}
const char* const kName = "roberta.embeddings.position_embeddings.weight";

TEST(StoredTables, SoundOnesAreSilent) {
  Array sound = table(18, 8);
  std::fill(sound.bytes.begin(), sound.bytes.begin() + 64, std::byte{0});  // row 1: padding
  const Folder f("posenc_sound", small("roberta", 18), {{kName, sound}});
  for (const char* code : {"table_missing", "table_shape", "table_zero", "table_constant",
                           "not_finite", "padding_row", "weights_unreadable"})
    EXPECT_EQ(severity_of(f.findings(), code), "none") << code;
  EXPECT_FALSE(read_model(f.path()).has_error());
}

TEST(StoredTables, WhatIsWrongWithThem) {
  const Json c = small("roberta", 18);
  const auto says = [&](const Arrays& weights, const char* code) {
    return severity_of(Folder("posenc_wrong", c, weights).findings(), code);
  };
  EXPECT_EQ(says({{"roberta.word_embeddings.weight", table(4, 8)}}, "table_missing"), "warning");
  EXPECT_EQ(says({{"position_embeddings.weight", table(18, 8)}}, "table_missing"), "warning");
  EXPECT_EQ(says({{kName, table(16, 8)}}, "table_shape"), "error");
  EXPECT_EQ(says({{kName, table(20, 8)}}, "table_shape"), "error");
  EXPECT_EQ(says({{kName, table(18, 4)}}, "table_shape"), "error");
  EXPECT_EQ(says({{kName, table(18, 8, DType::f32, 0)}}, "table_zero"), "error");
  EXPECT_EQ(says({{kName, table(18, 8, DType::f32, 12)}}, "table_zero"), "warning");
  EXPECT_EQ(says({{kName, table(18, 8)}}, "padding_row"), "note");
  Array same = table(18, 8);
  for (Index r = 1; r < 18; ++r)
    std::copy(same.bytes.begin(), same.bytes.begin() + 32, same.bytes.begin() + 32 * r);
  EXPECT_EQ(says({{kName, same}}, "table_constant"), "warning");
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    Array broken = table(18, 8);
    std::memcpy(broken.bytes.data() + 4 * 47, &bad, 4);
    const auto all = Folder("posenc_wrong", c, {{kName, broken}}).findings();
    EXPECT_EQ(severity_of(all, "not_finite"), "error");
    EXPECT_EQ(find(all, "not_finite")->value, 5.0);  // 47 / 8
  }
  // What the first row of the message says can be done.
  const auto all = Folder("posenc_wrong", c, {{kName, table(16, 8)}}).findings();
  EXPECT_NE(find(all, "table_shape")->fix.find("max_position_embeddings 16"), std::string::npos);
  EXPECT_NE(find(all, "table_shape")->fix.find("--prefix 2 --to 18"), std::string::npos);
  // A context beyond the config, and a table that is long enough.
  const Folder longer("posenc_wrong", c, {{kName, table(40, 8)}});
  const auto beyond = [&](Index context) {
    ReadOptions options;
    options.context = context;
    const auto found = doctor(read_model(longer.path(), options));
    return find(found, "context_beyond_table")->fix;
  };
  EXPECT_NE(beyond(38).find("has 40 rows, which is enough"), std::string::npos);
  EXPECT_NE(beyond(39).find("--prefix 2 --to 41"), std::string::npos);
  EXPECT_NE(beyond(39).find("keeps the first 38 "), std::string::npos);
  // Of an image too, and with an axis of one in front.
  const Json vit = config(R"({"model_type": "vit", "hidden_size": 8, "num_attention_heads": 2,
    "num_hidden_layers": 1, "image_size": 64, "patch_size": 16})");
  Array grid = table(26, 8);
  grid.shape = {1, 26, 8};
  const Folder larger("posenc_wrong_vit", vit, {{"embeddings.position_embeddings", grid}});
  ReadOptions options;
  options.context = 26;
  const auto image = doctor(read_model(larger.path(), options));
  EXPECT_NE(find(image, "context_beyond_table")->fix.find("has 26 rows, which is enough"),
            std::string::npos);
  options.context = 27;
  const auto more = doctor(read_model(larger.path(), options));
  EXPECT_NE(find(more, "context_beyond_table")->fix.find("--to 6x6"), std::string::npos);
  // Both sides of an encoder and decoder.
  const Json bart = config(R"({"model_type": "bart", "d_model": 8, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "max_position_embeddings": 16})");
  const auto two = Folder("posenc_wrong", bart,
                          {{"model.encoder.embed_positions.weight", table(16, 8)},
                           {"model.decoder.embed_positions.weight", table(18, 8)}})
                       .findings();
  ASSERT_TRUE(find(two, "table_shape"));
  EXPECT_NE(find(two, "table_shape")->where.find("encoder"), std::string::npos);
  EXPECT_EQ(severity_of(two, "table_missing"), "none");
}

TEST(StoredTables, FilesThatAreNone) {
  const Folder f("posenc_pointer", small("roberta", 18), {});
  EXPECT_EQ(severity_of(f.findings(), "weights_unreadable"), "none");
  std::ofstream(f.path() / "model.safetensors") << "version https://git-lfs.github.com/spec/v1\n";
  EXPECT_EQ(severity_of(f.findings(), "weights_unreadable"), "warning");
  for (const char* index :
       {R"({"weight_map": {"x": "../elsewhere.safetensors"}})", R"({"weight_map": 3})",
        R"({"weight_map": {"roberta.embeddings.position_embeddings.weight": "gone.safetensors"}})",
        "{"}) {
    std::ofstream(f.path() / "model.safetensors.index.json") << index;
    EXPECT_EQ(severity_of(f.findings(), "weights_unreadable"), "warning") << index;
  }
}

TEST(StoredTables, ShardsAndNames) {
  const Folder f("posenc_shards", small("roberta", 18), {});
  write_safetensors(f.path() / "a.safetensors", {{"roberta.x", table(2, 2)}});
  write_safetensors(f.path() / "b.safetensors",
                    {{kName, table(18, 8, DType::bf16)},
                     {"roberta.entity_embeddings.position_embeddings.weight", table(2, 2)}});
  std::ofstream(f.path() / "model.safetensors.index.json")
      << R"({"weight_map": {"roberta.x": "a.safetensors", ")" << kName
      << R"(": "b.safetensors", "roberta.entity_embeddings.position_embeddings.weight": "b.safetensors"}})";
  const ModelSpec spec = read_model(f.path());
  ModelWeights weights(spec.weights);
  EXPECT_TRUE(weights.any());
  EXPECT_EQ(weights.find("embeddings.position_embeddings.weight").size(), 1u);
  const auto tables = read_tables(weights, spec.input.at(0));
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].tensor.name, kName);
  EXPECT_EQ(tables[0].tensor.dtype, "BF16");
  EXPECT_NEAR(tables[0].values[8 * 3 + 1], 0.26, 0.26 / 256);
  EXPECT_FALSE(ModelWeights("").any());
  EXPECT_FALSE(ModelWeights("/nowhere/at/all").any());
}

// A sinusoid that was stored (Whisper's encoder) is held against the formula.
TEST(StoredTables, SinusoidsAreHeldAgainstTheFormula) {
  const Json c = config(R"({"model_type": "whisper", "d_model": 8, "encoder_layers": 1,
    "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "max_source_positions": 30, "max_target_positions": 10})");
  Array rows = make_array(DType::f32, {30, 8});
  auto* v = reinterpret_cast<float*>(rows.bytes.data());
  for (int p = 0; p < 30; ++p)
    for (int m = 0; m < 4; ++m) {
      const double angle = p * std::pow(10000.0, -m / 3.0);
      v[8 * p + m] = static_cast<float>(std::sin(angle));
      v[8 * p + 4 + m] = static_cast<float>(std::cos(angle));
    }
  Arrays weights{{"model.encoder.embed_positions.weight", rows},
                 {"model.decoder.embed_positions.weight", table(10, 8)}};
  EXPECT_EQ(severity_of(Folder("posenc_whisper", c, weights).findings(), "table_differs"), "none");
  v[8 * 7 + 1] += 0.05f;
  weights["model.encoder.embed_positions.weight"] = rows;
  EXPECT_EQ(severity_of(Folder("posenc_whisper", c, weights).findings(), "table_differs"),
            "warning");
}

// Towers that turn q and k as well: a table in rows, a grid, two tables in one tensor.
TEST(StoredTables, OfTowers) {
  struct Case {
    const char *type, *vision, *tensor;
    std::vector<Index> shape;
    const char* fix;  // of a table with twice the rows
  };
  const Case kCases[] = {
      {"qwen3_vl",
       R"({"depth": 1, "hidden_size": 8, "num_heads": 2,
        "num_position_embeddings": 16})",
       "model.visual.pos_embed.weight",
       {16, 8},
       "num_position_embeddings"},
      {"kimi_k25",
       R"({"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "pos_emb_height": 4, "pos_emb_width": 4})",
       "vision_tower.patch_embed.pos_emb.weight",
       {4, 4, 8},
       "pos_emb_height and pos_emb_width"},
      {"llama4",
       R"({"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "image_size": 56, "patch_size": 14})",
       "vision_model.positional_embedding_vlm",
       {17, 8},
       "the sizes of the checkpoint"},
      {"gemma4",
       R"({"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "head_dim": 4, "position_embedding_size": 8})",
       "model.vision_tower.patch_embedder.position_embedding_table",
       {2, 8, 8},
       "the sizes of the checkpoint"},
  };
  for (const Case& c : kCases) {
    Index rows = 1;
    for (std::size_t i = 0; i + 1 < c.shape.size(); ++i) rows *= c.shape[i];
    const Json whole = with(config("{}"), "model_type", c.type);
    const Json file = with(whole, "vision_config", config(c.vision));
    const auto findings = [&](Index zero_from, Index times) {
      Array a = table(times * rows, 8, DType::f32, zero_from);
      a.shape = c.shape;
      a.shape[a.shape.size() - 2] *= times;
      return Folder("posenc_tower", file, {{c.tensor, a}}).findings();
    };
    const auto sound = findings(-1, 1);
    for (const char* code : {"table_missing", "table_shape", "table_zero", "table_constant"})
      EXPECT_EQ(severity_of(sound, code), "none") << c.type << " " << code;
    EXPECT_EQ(severity_of(findings(0, 1), "table_zero"), "error") << c.type;
    const auto half = findings(rows / 2, 1);
    ASSERT_EQ(severity_of(half, "table_zero"), "warning") << c.type;
    EXPECT_EQ(find(half, "table_zero")->value, static_cast<double>(rows - rows / 2)) << c.type;
    const auto wrong = findings(-1, 2);
    ASSERT_TRUE(find(wrong, "table_shape")) << c.type;
    EXPECT_NE(find(wrong, "table_shape")->fix.find(c.fix), std::string::npos)
        << find(wrong, "table_shape")->fix;
    const Folder without("posenc_tower", file, {{"model.other", table(2, 2)}});
    EXPECT_EQ(severity_of(without.findings(), "table_missing"), "warning") << c.type;
  }
}

// x and y of Gemma-4 lie behind each other in one tensor.
TEST(StoredTables, TwoInOneTensor) {
  const Json file = with(with(config("{}"), "model_type", "gemma4"), "vision_config",
                         config(R"({"num_hidden_layers": 1, "hidden_size": 8, "head_dim": 4,
                                    "num_attention_heads": 2, "position_embedding_size": 6})"));
  Array both = table(12, 8);
  both.shape = {2, 6, 8};
  const Folder f("posenc_stacked", file,
                 {{"model.vision_tower.patch_embedder.position_embedding_table", both}});
  const ModelSpec spec = read_model(f.path());
  ASSERT_EQ(spec.towers.size(), 1u);
  ModelWeights weights(spec.weights);
  const auto tables = read_tables(weights, spec.towers[0].input.at(0));
  ASSERT_EQ(tables.size(), 2u);
  const std::vector<double> all = both.doubles();
  for (std::size_t axis = 0; axis < 2; ++axis) {
    EXPECT_EQ(tables[axis].rows, 6);
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(axis) * 48;
    EXPECT_EQ(tables[axis].values, std::vector<double>(from, from + 48));
  }
}

// A pipe instead of the weights would wait for a writer.
TEST(StoredTables, PipesAreNotOpened) {
  const Folder f("posenc_pipe", small("roberta", 18), {});
  ASSERT_EQ(mkfifo((f.path() / "model.safetensors").c_str(), 0600), 0);
  const auto found = f.findings();
  const auto unread = std::find_if(found.begin(), found.end(), [](const Finding& x) {
    return x.code == "weights_unreadable" && x.severity == Severity::warning;
  });
  ASSERT_NE(unread, found.end());
  EXPECT_NE(unread->message.find("is not a regular file"), std::string::npos) << unread->message;
}

}  // namespace
}  // namespace posenc
