// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/image_rows.h"

#include <cmath>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kMostPixels = 1'000'000;

// Height and width in pixels or patches: one number or two.
std::optional<std::pair<Index, Index>> sides(const ConfigView& view, const std::string& key) {
  const auto v = view.value(key);
  const bool square = view.rules().input_square;
  if (!v || !v->value.is_array()) {
    const auto n = view.integer(key, 1, kMostPixels);
    return n ? std::optional(std::pair{n->value, n->value}) : std::nullopt;
  }
  const Json::Array& list = v->value.as_array();
  if (list.size() >= 2 && !square && list[0].is_integer() && list[1].is_integer()) {
    const Index h = list[0].as_integer(), w = list[1].as_integer();  // more are not looked at
    if (h > 0 && w > 0 && h <= kMostPixels && w <= kMostPixels) return std::pair{h, w};
  }
  view.report().error(
      "wrong_type",
      key +
          (square ? " must be one size: " + view.class_name() + " cannot divide a list, got "
                  : std::string(" must be one size or two, got ")) +
          shown(v->value),
      v->where, "write a whole number");
  return std::nullopt;
}

// Patches of a spectrogram: they overlap by their strides.
std::optional<Index> overlapping(const ConfigView& view) {
  const auto size = view.integer("patch_size", 1, kMostPixels, true);
  const auto across = [&](const char* length, const char* step) -> std::optional<Index> {
    const auto n = view.integer(length, 1, kMostPixels, true);
    const auto by = view.integer(step, 1, kMostPixels, true);
    if (!size || !n || !by) return std::nullopt;
    if (n->value >= size->value) return (n->value - size->value) / by->value + 1;
    view.report().error("wrong_type",
                        std::string(length) + " is " + std::to_string(n->value) +
                            ", less than a patch of " + std::to_string(size->value),
                        n->where, "state the sizes of the model");
    return std::nullopt;
  };
  const auto rows = across("num_mel_bins", "frequency_stride");
  const auto columns = across("max_length", "time_stride");
  if (!rows || !columns) return std::nullopt;
  return *rows * *columns;
}

// Tubelets of ViViT: frames, rows and columns of a patch in one list; VideoPrism's table has the
// patches of one frame.
std::optional<Index> tubelets(const ConfigView& view) {
  const bool every_frame = view.rules().input_grid->tubelets == "true";
  const auto frames = view.integer("num_frames", 1, kMostPixels, true);
  const auto image = sides(view, "image_size");
  const auto v = view.value("tubelet_size");
  if (!frames || !image || !v) return std::nullopt;
  const auto one = [&](std::size_t i) -> Index {
    if (!v->value.is_array() || i >= v->value.as_array().size()) return 0;
    const Json& n = v->value.as_array()[i];
    return n.is_integer() && n.as_integer() <= kMostPixels ? n.as_integer() : 0;
  };
  if (one(0) > 0 && one(1) > 0 && one(2) > 0)
    return (every_frame ? frames->value / one(0) : 1) * (image->first / one(1)) *
           (image->second / one(2));
  view.report().wrong_type("tubelet_size", "frames, rows and columns", *v, "state three sizes");
  return std::nullopt;
}

// Patches on a side of a class that lays a square grid over them; a finding and none otherwise.
std::optional<Index> side_of_patches(const ConfigView& view) {
  const auto image = sides(view, "image_size"), patch = sides(view, "patch_size");
  if (!image || !patch) return std::nullopt;
  const Index rows = image->first / patch->first, columns = image->second / patch->second;
  if (rows == columns && rows > 0) return rows;
  view.report().error("refused",
                      rows == columns
                          ? "no patch fits into the image: image_size is " +
                                std::to_string(image->first) + ", patch_size " +
                                std::to_string(patch->first)
                          : "transformers lays a square grid over the patches, which are " +
                                std::to_string(rows) + " x " + std::to_string(columns),
                      view.where("image_size"), "state the sizes of the model");
  return std::nullopt;
}

// A square table whose cells, or whose sides, the file counts: every image is fitted to it.
std::optional<ImageRows> stated_square(const ConfigView& view, const InputGrid& grid) {
  if (const std::string& key = grid.cells; !key.empty()) {
    const auto cells = view.integer(key, 1, kMostPixels, true);
    if (!cells) return std::nullopt;
    const auto side = static_cast<Index>(std::sqrt(static_cast<double>(cells->value)));
    if (side * side != cells->value)
      view.report().warn("layout_not_covered",
                         key + " is " + std::to_string(cells->value) +
                             ", no square: transformers fits the first " +
                             std::to_string(side * side) + " rows of the table to an image, as " +
                             std::to_string(side) + " x " + std::to_string(side) +
                             ", and reads no other",
                         cells->where, "state the number of rows of the model's table",
                         static_cast<double>(cells->value));
    return ImageRows{cells->value, 0, key};
  }
  const std::vector<std::string>& keys = grid.sides;
  const auto side = view.integer(keys.front(), 1, kMostPixels / 1000, true);
  const auto other = view.integer(keys.back(), 1, kMostPixels / 1000, true);
  if (!side || !other) return std::nullopt;
  if (side->value == other->value)
    return ImageRows{side->value * side->value, 0,
                     keys.front() + (keys.size() > 1 ? " and " + keys.back() : "")};
  view.report().error("refused",
                      "transformers reads the table of positions as a square, and it is " +
                          std::to_string(side->value) + " x " + std::to_string(other->value) +
                          ": a patch gets the row of another, or none",
                      other->where, "state the sizes of the model",
                      static_cast<double>(other->value));
  return std::nullopt;
}

// The longest timescale, where the class has a key for it, or one for rows and one for columns.
bool set_base(const ConfigView& view, EncodingBuilder& made) {
  const std::vector<std::string>& keys = view.rules().input_base;
  if (keys.empty()) return true;
  std::vector<double> bases;
  for (const std::string& key : keys) {
    const auto v = view.value(key);
    if (!v || !v->value.is_number() || !(v->value.as_number() > 0)) {
      view.report().error(
          "wrong_type",
          key + " must be a positive number, got " + (v ? shown(v->value) : std::string("nothing")),
          v ? v->where : view.where(key), "state the temperature of the model");
      return false;
    }
    bases.push_back(v->value.as_number());
  }
  const bool one = bases.size() == 1 || bases[0] == bases[1];
  made.set(one ? "base" : "bases", one ? Json(bases[0]) : Json::array({bases[0], bases[1]}),
           Origin::stated, view.where(keys.front()));
  return true;
}

}  // namespace

CellCoordinates cell_coordinates(const ConfigView& view) {
  const std::string& how = view.rules().input_coordinates;
  for (const CellCoordinates one :
       {CellCoordinates::from_one, CellCoordinates::counted, CellCoordinates::centred})
    if (how == enum_text(one)) return one;
  return CellCoordinates::index;
}

std::optional<ImageRows> image_rows(const ConfigView& view) {
  static const InputGrid common;
  const InputGrid& grid = view.rules().input_grid ? *view.rules().input_grid : common;
  ImageRows out;
  Index before = view.rules().input_patches.value_or(0);
  if (!grid.cells.empty() || !grid.sides.empty()) return stated_square(view, grid);
  if (!grid.tubelets.empty()) {
    const auto patches = tubelets(view);
    if (!patches) return std::nullopt;
    out.rows = *patches + before;
    return out;
  }
  if (grid.overlap) {
    const auto patches = overlapping(view);
    if (!patches) return std::nullopt;
    return ImageRows{*patches + before, before};
  }
  if (!grid.counted.empty()) {  // Molmo-2
    const auto n = view.integer(grid.counted, 1, kMostPixels);
    if (n) return ImageRows{n->value, before};
    if (const auto v = view.value("image_size"); !v || v->value.is_null()) {
      const auto patch = view.integer("patch_size", 1, kMostPixels, true);
      if (!patch) return std::nullopt;
      const Index side = grid.side.value_or(0) / patch->value;
      return ImageRows{side * side, before};
    }
  }
  const auto image = sides(view, grid.image.empty() ? "image_size" : grid.image);
  const auto patch = sides(view, grid.patch.empty() ? "patch_size" : grid.patch);
  if (!image || !patch) return std::nullopt;
  out.rows = image->first / patch->first * (image->second / patch->second);
  if (!grid.more.empty()) {  // tokens that the file counts, with rows of their own
    const auto more = view.integer(grid.more, 0, kMostPixels, true);
    if (!more) return std::nullopt;
    before += more->value;
  }
  out.rows += before;
  if (grid.behind) return out;
  if (!grid.frames.empty()) {
    const auto frames = view.integer(grid.frames, 1, kMostPixels, true);
    const auto size = view.integer(grid.tubelet, 1, kMostPixels, true);
    if (!frames || !size) return std::nullopt;
    out.rows *= frames->value / size->value;
    return out;
  }
  out.before = before;
  return out;
}

std::optional<ImageGrid> sines_of_grid(const ConfigView& view, const Sourced<Index>& width,
                                       EncodingBuilder& made) {
  if (width.value % 4 != 0) {
    view.report().error("refused",
                        "the width must be a multiple of 4, got " + std::to_string(width.value),
                        width.where, "state the sizes of the model");
    return std::nullopt;
  }
  ImageGrid out;
  const std::optional<std::string>& own = view.rules().input_text;
  if (!own) {  // ViT-MAE: a table of its own
    const auto side = side_of_patches(view);
    if (!side) return std::nullopt;
    out.rows = out.columns = *side;
  }
  out.coordinates = cell_coordinates(view);
  if (!set_base(view, made)) return std::nullopt;
  made.set("widths", Json::array({width.value / 2, width.value / 2}), width.origin, width.where);
  set_words(view, own.value_or(" stream=[1,0] layout=halves zero_position=-1"), made);
  return out;
}

}  // namespace posenc::v0::hf
