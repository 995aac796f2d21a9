// SPDX-License-Identifier: Apache-2.0
// Towers that add a learned table and turn q and k besides, against towers that transformers 5.23
// built and ran (tower_tables.json, written by tools/model_table/run_towers.py): shapes and names
// of tables in a file, the rows that the patches of an image get, frames, refusals.
#include "input_configs.h"
#include "posenc/absolute/extend.h"
#include "posenc/absolute/plan.h"
#include "posenc/positions/view.h"
#include "posenc/registry.h"

namespace posenc {
namespace {

using namespace test;

const Json& facts() {
  static const Json all =
      read_json(std::filesystem::path(POSENC_SOURCE_DIR) / "tests" / "model" / "tower_tables.json");
  return all;
}

const Tower* vision_of(const ModelSpec& spec) {
  for (const Tower& t : spec.towers)
    if (t.name == "vision") return &t;
  return nullptr;
}

// A model around a tower; Inkling-2's text has no words here, and its tower is read alone.
ModelSpec around(const Json& c) {
  if (c.at("model_type") != Json("inkling2")) return read(c);
  ModelSpec spec = read(with(c.at("vision_config"), "model_type", "inkling2_vision"));
  spec.towers.push_back({"vision", spec.layers, spec.input});
  return spec;
}
ModelSpec with_default_tower(const std::string& type) {
  return around(with(with(config("{}"), "model_type", type), "vision_config", config("{}")));
}

std::vector<double> numbers_of(const Json& rows) {
  std::vector<double> out;
  for (const Json& row : rows.as_array())
    for (const Json& v : row.as_array()) out.push_back(v.as_number());
  return out;
}

// The encoding whose tensor has the name that a file has.
const InputEncoding* holder_of(const Tower& tower, const std::string& name) {
  for (const InputEncoding& e : tower.input)
    for (const std::string& t : e.tensors)
      if (name == t || name.ends_with("." + t)) return &e;
  return nullptr;
}

void check_table(const Tower& tower, const Json& want, const std::string& who) {
  const std::string name = want.at("name").as_string();
  if (name.ends_with("cls_position_embedding")) return;  // Inkling-2: said by a note
  const InputEncoding* found = holder_of(tower, name);
  ASSERT_NE(found, nullptr) << who << name;
  const Json::Array& shape = want.at("shape").as_array();
  Index stored = 1, meant = 0;
  for (const Json& n : shape) stored *= n.as_integer();
  std::visit(
      [&](const auto& s) {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>)
          for (const Parameter& p : s.parameters()) {
            meant += p.shape[0] * p.shape[1];
            EXPECT_EQ(p.shape[1], shape.back().as_integer()) << who;
          }
      },
      found->value.scheme);
  EXPECT_EQ(meant, stored) << who;
}

TEST(TowerTables, AsTransformersBuildsThem) {
  int tables = 0, plain = 0, refused = 0;
  for (const Json& c : facts().at("cases").as_array()) {
    const std::string who = c.at("config").dump() + "\n";
    const ModelSpec spec = around(c.at("config"));
    const Tower* tower = vision_of(spec);
    ASSERT_NE(tower, nullptr) << who << errors_of(spec);
    if (c.find("refused")) {
      EXPECT_TRUE(tower->input.empty()) << who;
      EXPECT_NE(severity_of(spec.findings, "wrong_type"), "none") << who;
      ++refused;
      continue;
    }
    // LFM3-VL: convolutions between, run with a layer of each kind (tools/model_table/run_masks.py).
    for (const LayerSpec& layer : tower->layers)
      EXPECT_EQ(layer.rotary.has_value(), layer.attention.attends()) << who << layer.index;
    for (const Json& want : c.at("tables").as_array()) check_table(*tower, want, who), ++tables;
    if (!c.at("tables").as_array().empty()) continue;
    EXPECT_TRUE(tower->input.empty()) << who;
    ++plain;
  }
  EXPECT_GE(tables, 60);
  EXPECT_GE(plain, 12);
  EXPECT_GE(refused, 6);
}

// The note says how the table is fitted to an image: its options give the numbers of the tower.
Extension told_by(const ModelSpec& spec) {
  Extension out;
  for (const Finding& f : spec.findings) {
    const auto at = f.message.find("posenc extend --how ");
    if (f.code != "encoding_not_covered" || at == std::string::npos) continue;
    const std::string options = f.message.substr(at + 20, f.message.find(')', at) - at - 20);
    out.how = options.starts_with("bicubic") ? ExtendHow::bicubic : ExtendHow::bilinear;
    out.align_corners = options.find("--align-corners") != std::string::npos;
  }
  return out;
}

TEST(TowerTables, FittedToAnImageAsTheNoteSays) {
  ASSERT_EQ(facts().at("fitted").as_array().size(), 12u);
  for (const Json& c : facts().at("fitted").as_array()) {
    const std::string type = c.at("model_type").as_string();
    const Extension how = told_by(with_default_tower(type));
    ASSERT_NE(how.how, ExtendHow::linear) << type;
    const Json::Array& grid = c.at("grid").as_array();
    const Index h = grid[0].as_integer(), w = grid[1].as_integer();
    const std::vector<double> table = numbers_of(c.at("table")), want = numbers_of(c.at("rows"));
    std::vector<double> got(want.size());
    extend_table(tensor(table.data(), {16, 2}), {4, 4}, tensor(got.data(), {h * w, 2}), {h, w},
                 how);
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 4e-6) << type << " place " << i;  // float32 there
  }
}

// Each frame of a video adds a row of a sinusoid, a single image none (Kimi K2.5).
TEST(TowerTables, FramesOfAVideo) {
  const ModelSpec spec = read(config(R"({"model_type":"kimi_k25","vision_config":{"hidden_size":16,
      "num_attention_heads":2,"pos_emb_time":4}})"));
  const Tower* tower = vision_of(spec);
  ASSERT_TRUE(tower) << errors_of(spec);
  ASSERT_EQ(tower->input.size(), 2u);
  const InputEncoding& frames = tower->input[1];
  EXPECT_EQ(to_text(frames.value), "sinusoidal width=16 layout=halves");
  EXPECT_EQ(frames.positions, Index{4});
  EXPECT_TRUE(frames.tensors.empty());
  for (const Json& c : facts().at("fitted").as_array()) {
    if (!c.find("frames")) continue;
    EXPECT_EQ(c.at("one_frame").as_number(), 0);
    const std::vector<double> want = numbers_of(c.at("frames"));
    LoweredInput low;
    std::get<Sinusoidal>(frames.value.scheme).lower({}, low);
    const std::vector<Index> line{0, 1, 2, 3};
    std::vector<double> got(want.size());
    InputPlan(low, DType::f64)
        .apply({}, positions(std::span<const Index>(line)), tensor(got.data(), {4, 16}));
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  }
}

// Gemma-4: the row of x, from the first table, and the row of y are summed.
TEST(TowerTables, RowsOfXAndYAreSummed) {
  const ModelSpec spec = read(config(R"({"model_type":"gemma4","vision_config":{"hidden_size":4,
      "num_attention_heads":1,"head_dim":4,"position_embedding_size":8}})"));
  const Tower* tower = vision_of(spec);
  ASSERT_TRUE(tower) << errors_of(spec);
  ASSERT_EQ(tower->input.size(), 1u);
  EXPECT_EQ(tower->input[0].tensors.at(0), tower->input[0].tensors.at(1));
  EXPECT_FALSE(tower->input[0].grid);  // whose cells would have y before x
  const Json& c = facts().at("summed");
  const std::vector<double> table = numbers_of(c.at("table")), want = numbers_of(c.at("rows"));
  const auto places = static_cast<Index>(c.at("at").as_array().size());
  std::vector<double> at;  // all x, then all y
  for (std::size_t axis = 0; axis < 2; ++axis)
    for (const Json& place : c.at("at").as_array())
      at.push_back(place.as_array()[axis].as_number());
  const ConstTensorView tables[] = {tensor(table.data(), {8, 4}),
                                    tensor(table.data() + 32, {8, 4})};
  LoweredInput low;
  std::get<LearnedAxes>(tower->input[0].value.scheme).lower(tables, low);
  std::vector<double> got(want.size());
  InputPlan(low, DType::f64)
      .apply({}, positions(tensor(at.data(), {2, 1, places})), tensor(got.data(), {places, 4}));
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
}

TEST(TowerTables, ClassTokens) {
  const Json& c = facts().at("class_token");
  EXPECT_EQ(c.at("class_token_at").as_integer(), c.at("rows").as_integer() - 1);
  const ModelSpec llama = with_default_tower("llama4");
  ASSERT_TRUE(vision_of(llama));
  EXPECT_EQ(to_text(vision_of(llama)->input.at(0).value), "learned width=768 rows=1025");
  EXPECT_FALSE(vision_of(llama)->input[0].image_prefix);  // it stands last
  const auto told = [](const ModelSpec& spec, const char* word) {
    for (const Finding& f : spec.findings)
      if (f.code == "encoding_not_covered" && f.message.find(word) != std::string::npos)
        return true;
    return false;
  };
  EXPECT_TRUE(told(llama, "last, one for the class token"));
  EXPECT_TRUE(told(with_default_tower("inkling2"), "cls_position_embedding"));
  EXPECT_TRUE(told(read(config(R"({"model_type":"mlcd"})")), "class_pos_emb"));
}

// Tables beside a rotary that have no words here are said by name.
TEST(TowerTables, WithoutWordsHere) {
  const std::pair<const char*, const char*> kNamed[] = {{"gemma4_unified", "pos_embedding"},
                                                        {"muse_glimmer", "sampled at every patch"},
                                                        {"sam3", "tiled over the image"}};
  for (const auto& [type, word] : kNamed) {
    const ModelSpec spec = with_default_tower(type);
    const Finding* f = find(spec.findings, "tower_not_covered");
    ASSERT_TRUE(f) << type;
    EXPECT_NE(f->message.find(word), std::string::npos) << f->message;
  }
}

// A number of cells that is no square, and sides that differ.
TEST(TowerTables, TablesThatAreNoSquare) {
  const ModelSpec cells =
      read(config(R"({"model_type":"qwen3_vl","vision_config":{"num_position_embeddings":70}})"));
  const Finding* f = find(cells.findings, "layout_not_covered");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->severity, Severity::warning);
  EXPECT_EQ(f->where, "config.json#/vision_config/num_position_embeddings");
  EXPECT_NE(f->message.find("first 64 rows"), std::string::npos) << f->message;
  EXPECT_EQ(to_text(vision_of(cells)->input.at(0).value), "learned width=1152 rows=70");
  const ModelSpec sides = read(config(
      R"({"model_type":"kimi_k25","vision_config":{"pos_emb_height":8,"pos_emb_width":16}})"));
  const Finding* other = find(sides.findings, "refused");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->severity, Severity::warning);  // the text is read all the same
  EXPECT_NE(other->message.find("8 x 16"), std::string::npos) << other->message;
  const ModelSpec none =
      read(config(R"({"model_type":"qwen3_vl","vision_config":{"num_position_embeddings":null}})"));
  EXPECT_NE(severity_of(none.findings, "wrong_type") + severity_of(none.findings, "missing_key"),
            "nonenone");
}

}  // namespace
}  // namespace posenc
