// SPDX-License-Identifier: Apache-2.0
// What acts at the input by rows and columns of an image: ViT-MAE's tables and DETR's cells, what
// the weights hold of them, and what the doctor says. Numbers: small models and modules of
// transformers 5.23 in float32, their tables printed to seven digits (ViTMAEForPreTraining's by
// its initialize_weights, which from_config leaves at zero).
#include <algorithm>
#include <cstring>

#include "core/convert.h"
#include "model_folder.h"
#include "posenc/absolute/input_term.h"
#include "posenc/model/cells.h"
#include "posenc/model/weights.h"
#include "posenc/positions.h"

namespace posenc {
namespace {

using namespace test;
using Table = std::vector<std::vector<double>>;

Json vit_mae() {
  return config(R"({"model_type": "vit_mae", "hidden_size": 8, "num_attention_heads": 2,
    "num_hidden_layers": 1, "image_size": 24, "patch_size": 8, "decoder_hidden_size": 4,
    "decoder_num_attention_heads": 1, "decoder_num_hidden_layers": 3})");
}
// Sine and cosine of 0, 1 and 2 by frequencies 1 and 0.01: one axis of a table, 3 cells a side.
const Table kAxis = {{0, 0, 1, 1},
                     {0.841471, 0.009999833, 0.5403023, 0.99995},
                     {0.9092974, 0.01999867, -0.4161468, 0.9998}};
// transformers' table: the class token, then row by row; channels of the column come first.
Table mae_table() {
  Table out{std::vector<double>(8, 0.0)};
  for (const auto& row : kAxis)
    for (const auto& column : kAxis) {
      out.push_back(column);
      out.back().insert(out.back().end(), row.begin(), row.end());
    }
  return out;
}

Table rows_of(const InputEncoding& e, const ImageGrid& grid, Index count) {
  LoweredInput low;
  const auto& s = std::get<SinusoidalNd>(e.value.scheme);
  s.lower({}, low);
  const Index width = s.widths.at(0) + s.widths.at(1);
  std::vector<double> y(static_cast<std::size_t>(count * width));
  const OwnedPositions at = cells(grid, e.image_prefix.value_or(0), arange(0, count));
  apply_input({}, at, low, tensor(y.data(), {count, width}));
  Table out;
  for (auto from = y.begin(); from != y.end(); from += width) out.emplace_back(from, from + width);
  return out;
}

void expect_near(const Table& got, const Table& want, double allowed) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    ASSERT_EQ(got[r].size(), want[r].size()) << r;
    for (std::size_t c = 0; c < got[r].size(); ++c)
      EXPECT_NEAR(got[r][c], want[r][c], allowed) << r << " " << c;
  }
}

TEST(ImageGrids, TablesOfViTMAE) {
  const ModelSpec spec = read(vit_mae());
  ASSERT_FALSE(spec.has_error());
  ASSERT_EQ(spec.input.size(), 1u);
  const InputEncoding& e = spec.input[0];
  EXPECT_EQ(to_text(e.value),
            "sinusoidal_nd widths=[4,4] stream=[1,0] layout=halves zero_position=-1");
  EXPECT_EQ(e.positions, 10);
  EXPECT_EQ(e.image_prefix, 1);
  EXPECT_EQ(e.tensors, std::vector<std::string>{"embeddings.position_embeddings"});
  EXPECT_EQ(spec.trained_context, 10);
  ASSERT_TRUE(e.grid);
  EXPECT_EQ(e.grid->rows, 3);
  EXPECT_EQ(e.grid->columns, 3);
  expect_near(rows_of(e, *e.grid, 10), mae_table(), 1e-7);
  // The decoder of ViTMAEForPreTraining: of its own width, over the same patches.
  ASSERT_EQ(spec.towers.size(), 1u);
  EXPECT_EQ(spec.towers[0].name, "decoder");
  EXPECT_EQ(spec.towers[0].layers.size(), 3u);
  const InputEncoding& own = spec.towers[0].input.at(0);
  EXPECT_EQ(own.tensors, std::vector<std::string>{"decoder.decoder_pos_embed"});
  EXPECT_EQ(own.positions, 10);
  const Table got = rows_of(own, own.grid.value(), 10);
  expect_near(
      {got[0], got[6], got[7]},
      {{0, 0, 0, 0}, {0.9092974, -0.4161468, 0.841471, 0.5403023}, {0, 1, 0.9092974, -0.4161468}},
      1e-7);
}

TEST(ImageGrids, SizesOfTheDecoderOfViTMAE) {
  const auto decoder = [](const ModelSpec& spec) {
    return to_text(spec.towers.at(0).input.at(0).value);
  };
  Json plain = config(R"({"model_type": "vit_mae"})");
  EXPECT_EQ(decoder(read(plain)),
            "sinusoidal_nd widths=[256,256] stream=[1,0] layout=halves zero_position=-1");
  EXPECT_EQ(read(plain).towers.at(0).layers.size(), 8u);
  EXPECT_EQ(read(plain).input.at(0).positions, 197);
  // A person's decision for one of them is none for the other.
  ReadOptions o;
  o.assume = {{"hidden_size", "16"}, {"decoder_hidden_size", "12"}};
  const ModelSpec both = read_hugging_face(vit_mae(), "config.json", o);
  EXPECT_FALSE(both.has_error());
  EXPECT_NE(text_of(both).find("[8,8]"), std::string::npos);
  EXPECT_NE(decoder(both).find("[6,6]"), std::string::npos);
  o.assume = {{"hidden_size", "16"}};
  EXPECT_NE(decoder(read_hugging_face(vit_mae(), "config.json", o)).find("[2,2]"),
            std::string::npos);
  // A decoder that cannot be made leaves the encoder as it is: ViTMAEModel has none.
  const ModelSpec narrow = read(with(vit_mae(), "decoder_hidden_size", 6));
  EXPECT_FALSE(narrow.has_error());
  EXPECT_EQ(severity_of(narrow.findings, "refused"), "warning");
  EXPECT_NE(find(narrow.findings, "refused")->where.find("decoder_hidden_size"), std::string::npos);
  EXPECT_TRUE(narrow.towers.at(0).input.empty());
  // What is wrong with both is said once.
  const ModelSpec oblong = read(with(vit_mae(), "image_size", Json::array({24, 48})));
  EXPECT_TRUE(oblong.has_error());
  EXPECT_EQ(std::count_if(oblong.findings.begin(), oblong.findings.end(),
                          [](const Finding& f) { return f.code == "refused"; }),
            1);
  const ModelSpec none = read(with(vit_mae(), "image_size", 7));
  ASSERT_TRUE(none.has_error());
  EXPECT_NE(find(none.findings, "refused")->message.find("no patch fits"), std::string::npos);
}

// DetrSinePositionEmbedding(4, normalize=True) and its kin over 2 x 3 cells.
TEST(ImageGrids, CellsOfDETRAndItsKin) {
  const auto got = [](const char* text) {
    const ModelSpec spec = read(config(text));
    const InputEncoding& e = spec.input.at(0);
    ImageGrid grid = e.grid.value();
    EXPECT_FALSE(grid.of_model()) << text;
    EXPECT_FALSE(e.positions) << text;
    grid.rows = 2, grid.columns = 3;
    return rows_of(e, grid, 6);
  };
  const Table last = {
      {-2.686177e-06, 1, 0.06279049, 0.9980267, -0.8660247, -0.5000011, 0.04187564, 0.9991228},
      {-2.686177e-06, 1, 0.06279049, 0.9980267, -1.732503e-06, 1, 0.0627905, 0.9980267}};
  for (const char* text : {R"({"model_type": "detr", "d_model": 8})",
                           R"({"model_type": "conditional_detr", "d_model": 8})",
                           R"({"model_type": "table-transformer", "d_model": 8})",
                           R"({"model_type": "mask2former", "feature_size": 8})",
                           R"({"model_type": "oneformer", "conv_dim": 8})"}) {
    const Table all = got(text);
    expect_near({all[4], all[5]}, last, 2e-6);  // float32 angles near pi and 2 pi
  }
  const Table centred = got(R"({"model_type": "deformable_detr", "d_model": 8})");
  expect_near(
      {centred[0], centred[5]},
      {{1, 6.715443e-07, 0.01570731, 0.9998766, 0.8660252, 0.5000003, 0.01047178, 0.9999452},
       {-1, -1.895424e-06, 0.04710643, 0.9988899, -0.8660262, 0.4999987, 0.05233594, 0.9986295}},
      2e-6);
  const Table two = got(R"({"model_type": "dab-detr", "hidden_size": 8, "temperature_height": 20,
    "temperature_width": 400})");  // the rows' base, then the columns'
  expect_near(
      {two[4]},
      {{-2.686177e-06, 1, 0.986281, 0.165075, -0.8660247, -0.5000011, 0.2079116, 0.9781476}}, 2e-6);
  const Table plain = got(R"({"model_type": "rt_detr", "encoder_hidden_dim": 8})");
  for (std::size_t k = 0; k < 6; ++k) {
    std::vector<double> want = kAxis[k / 3];
    want.insert(want.end(), kAxis[k % 3].begin(), kAxis[k % 3].end());
    expect_near({plain[k]}, {want}, 1e-7);
  }
}

TEST(ImageGrids, CoordinatesOfCells) {
  const ImageGrid grid{2, 3, CellCoordinates::index};
  const auto of = [](const OwnedPositions& p) { return std::get<std::vector<Index>>(p.value); };
  EXPECT_EQ(of(cells(grid, 2, arange(0, 8))),
            (std::vector<Index>{-1, -1, 0, 0, 0, 1, 1, 1, -1, -1, 0, 1, 2, 0, 1, 2}));
  const ImageGrid pix2struct{2, 3, CellCoordinates::from_one};
  EXPECT_EQ(of(cells(pix2struct, 0, arange(4, 2))), (std::vector<Index>{2, 2, 2, 3}));
  // Rows of a batch, of any type.
  const OwnedPositions two = cells(grid, 0, explicit_positions(std::vector<double>{5, 0}, 2));
  EXPECT_EQ(two.batch, 2);
  EXPECT_EQ(of(two), (std::vector<Index>{1, 0, 2, 0}));
  const std::vector<std::int32_t> narrow{4};
  EXPECT_EQ(of(cells(grid, 0, positions(narrow))), (std::vector<Index>{1, 1}));
  const auto says = [](const ImageGrid& g, Index before, const OwnedPositions& p) {
    try {
      (void)cells(g, before, p);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("taken");
  };
  EXPECT_EQ(says(grid, 1, arange(7, 1)),
            "[cells] positions must be 0 to 6, 1 in front of the cells, then 2 x 3 cells row by "
            "row, got 7");
  EXPECT_EQ(says(grid, 0, arange(-1, 1)),
            "[cells] positions must be 0 to 5, 2 x 3 cells row by row, got -1");
  EXPECT_NE(says(grid, 0, explicit_positions({0.5})).find("got 0.5"), std::string::npos);
  EXPECT_NE(says(grid, 0, explicit_positions({6.0})).find("got 6"), std::string::npos);
  EXPECT_NE(says({}, 0, arange(0, 1)).find("must have rows"), std::string::npos);
  EXPECT_NE(says(grid, -1, arange(0, 1)).find("negative"), std::string::npos);
  EXPECT_NE(says(grid, 0, posenc::grid({2, 3})).find("one axis"), std::string::npos);
  EXPECT_NE(says({Index{1} << 40, Index{1} << 40, {}}, 0, arange(0, 1)).find("64 bits"),
            std::string::npos);
}

TEST(ImageGrids, ContextsBeyondTheTableOfViTMAE) {
  for (const Index fits : {1, 10})
    EXPECT_EQ(severity_of(doctor(read(vit_mae(), fits)), "context_beyond_table"), "none");
  const auto all = doctor(read(vit_mae(), 11));
  ASSERT_EQ(severity_of(all, "context_beyond_table"), "error");
  const Finding& f = *find(all, "context_beyond_table");
  EXPECT_EQ(f.value, 10.0);
  EXPECT_NE(f.message.find("the 10 positions of the model's table"), std::string::npos);
  EXPECT_NE(f.fix.find("--prefix 1 --to 4x4 --how bicubic"), std::string::npos);
  // Cells of each image have no end.
  const auto detr = doctor(read(config(R"({"model_type": "detr"})"), 100000));
  EXPECT_EQ(severity_of(detr, "context_beyond_table"), "none");
}

constexpr const char* kName = "vit.embeddings.position_embeddings";

Array stored(const Table& rows, DType dtype = DType::f32) {
  const auto n = static_cast<Index>(rows.size()), width = static_cast<Index>(rows.at(0).size());
  Array a = make_array(dtype, {1, n, width});
  std::size_t i = 0;
  for (const auto& row : rows)
    for (const double v : row) {
      const auto x = static_cast<float>(v);
      const std::uint16_t bits = dtype == DType::bf16 ? bf16_from(v) : f16_from(v);
      if (dtype == DType::f32)
        std::memcpy(a.bytes.data() + 4 * i++, &x, 4);
      else
        std::memcpy(a.bytes.data() + 2 * i++, &bits, 2);
    }
  return a;
}

TEST(ImageGrids, StoredTablesOfViTMAE) {
  const auto all = [](const Table& rows, DType dtype = DType::f32, const char* name = kName) {
    return Folder("posenc_mae", vit_mae(), {{name, stored(rows, dtype)}}).findings();
  };
  const char* const codes[] = {"table_missing",     "table_shape",   "table_zero",
                               "table_constant",    "table_differs", "not_finite",
                               "weights_unreadable"};
  const auto said = [&](const std::vector<Finding>& found) {
    std::string text;
    for (const char* code : codes)
      if (find(found, code)) text += std::string(text.empty() ? "" : " ") + code;
    return text;
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(said(all(mae_table(), dtype)), "") << dtype_name(dtype);
  // Row 0, of the class token, is zero; every other row is not.
  Table zero(10, std::vector<double>(8, 0.0));
  EXPECT_EQ(said(all(zero)), "table_zero");
  EXPECT_EQ(severity_of(all(zero), "table_zero"), "error");
  EXPECT_EQ(find(all(zero), "table_zero")->value, 9.0);
  Table part = mae_table();
  part[4] = part[5] = std::vector<double>(8, 0.0);
  EXPECT_EQ(severity_of(all(part), "table_zero"), "warning");
  EXPECT_EQ(find(all(part), "table_zero")->value, 2.0);
  // Another table: beyond what each type rounds, and in the row of the class token too.
  for (const auto& [dtype, off] :
       {std::pair{DType::f32, 2e-4}, std::pair{DType::f16, 2e-3}, std::pair{DType::bf16, 2e-2}})
    for (const std::size_t row : {0u, 7u}) {
      Table other = mae_table();
      other[row][1] += off;
      EXPECT_EQ(said(all(other, dtype)), "table_differs") << dtype_name(dtype);
      EXPECT_NE(
          find(all(other, dtype), "table_differs")->message.find("row " + std::to_string(row)),
          std::string::npos);
    }
  // Channels of the row before those of the column: what MAE's names promise.
  Table turned{std::vector<double>(8, 0.0)};
  for (const auto& row : kAxis)
    for (const auto& column : kAxis) {
      turned.push_back(row);
      turned.back().insert(turned.back().end(), column.begin(), column.end());
    }
  EXPECT_EQ(said(all(turned)), "table_differs");
  Table broken = mae_table();
  broken[3][2] = std::nan("");
  EXPECT_EQ(said(all(broken)), "not_finite");
  // Of another image.
  EXPECT_EQ(said(all(Table(17, std::vector<double>(8, 1.0)))), "table_shape");
  EXPECT_NE(find(all(Table(17, std::vector<double>(8, 1.0))), "table_shape")
                ->fix.find("--prefix 1 --to 3x3 --how bicubic"),
            std::string::npos);
  EXPECT_EQ(said(all(Table(10, std::vector<double>(4, 1.0)))), "table_shape");
  // transformers does not fill a table that the weights lack.
  EXPECT_EQ(severity_of(all(zero, DType::f32, "vit.other"), "table_missing"), "warning");
}

TEST(ImageGrids, StoredTablesOfItsDecoder) {
  const auto all = [](const Array& decoder) {
    return Folder("posenc_mae_decoder", vit_mae(),
                  {{kName, stored(mae_table())}, {"decoder.decoder_pos_embed", decoder}})
        .findings();
  };
  Table own{{0, 0, 0, 0}};
  for (const auto& row : kAxis)
    for (const auto& column : kAxis) own.push_back({column[0], column[2], row[0], row[2]});
  for (const char* code : {"table_zero", "table_differs", "table_shape", "table_missing"})
    EXPECT_EQ(severity_of(all(stored(own)), code), "none") << code;
  const auto zero = all(stored(Table(10, std::vector<double>(4, 0.0))));
  ASSERT_EQ(severity_of(zero, "table_zero"), "error");
  EXPECT_NE(find(zero, "table_zero")->where.find("decoder_pos_embed"), std::string::npos);
  EXPECT_EQ(severity_of(all(stored(Table(10, std::vector<double>(8, 0.0)))), "table_shape"),
            "error");
}

TEST(ImageGrids, ExplainSaysTheGrid) {
  const Json of_model = explain_json(read(vit_mae())).at("input").as_array().at(0);
  EXPECT_EQ(of_model.at("positions").as_integer(), 10);
  EXPECT_EQ(of_model.at("grid").dump(), R"({"rows": 3, "columns": 3, "coordinates": "index"})");
  const ModelSpec detr = read(config(R"({"model_type": "detr"})"));
  EXPECT_EQ(explain_json(detr).at("input").as_array().at(0).at("grid").dump(),
            R"({"rows": null, "columns": null, "coordinates": "counted"})");
  EXPECT_TRUE(explain_json(read(bert())).at("input").as_array().at(0).at("grid").is_null());
}

}  // namespace
}  // namespace posenc
