// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/image_rows.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kMostPixels = 1'000'000;

// A size that must be there, in pixels, patches or frames.
std::optional<Sourced<Index>> size_of(const ConfigView& view, std::string_view key) {
  return view.integer(key, 1, kMostPixels, true);
}

// Of the table at the input.
Sides table_sides(const ConfigView& view, const std::string& key) {
  return image_sides(view, key, view.rules().input_square);
}

// Patches of a spectrogram: they overlap by their strides.
std::optional<Index> overlapping(const ConfigView& view) {
  const auto size = size_of(view, "patch_size");
  const auto across = [&](const char* length, const char* step) -> std::optional<Index> {
    const auto n = size_of(view, length), by = size_of(view, step);
    if (!size || !n || !by) return std::nullopt;
    if (n->value >= size->value) return (n->value - size->value) / by->value + 1;
    return view.wrong_type({"{} is {}, less than a patch of {}", length, n->value, size->value},
                           *n);
  };
  const auto rows = across("num_mel_bins", "frequency_stride");
  const auto columns = across("max_length", "time_stride");
  if (!rows || !columns) return std::nullopt;
  return *rows * *columns;
}

// Tubelets of ViViT: frames, rows and columns of a patch in one list; VideoPrism's table has the
// patches of one frame.
std::optional<Index> tubelets(const ConfigView& view, bool every_frame) {
  const auto frames = size_of(view, "num_frames");
  const auto image = table_sides(view, "image_size");
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
  return view.must_be("tubelet_size", "frames, rows and columns", *v, "state three sizes");
}

// Patches on a side of a class that lays a square grid over them; a finding and none otherwise.
std::optional<Index> side_of_patches(const ConfigView& view) {
  const auto image = table_sides(view, "image_size"), patch = table_sides(view, "patch_size");
  if (!image || !patch) return std::nullopt;
  const Index rows = image->first / patch->first, columns = image->second / patch->second;
  if (rows == columns && rows > 0) return rows;
  return view.error(
      "refused",
      rows == columns
          ? message("no patch fits into the image: image_size is {}, patch_size {}", image->first,
                    patch->first)
          : message("transformers lays a square grid over the patches, which are {} x {}", rows,
                    columns),
      view.where("image_size"), "state the sizes of the model");
}

// A square table whose cells, or whose sides, the file counts: every image is fitted to it.
std::optional<ImageRows> stated_square(const ConfigView& view, const InputGrid& grid) {
  if (const std::string& key = grid.cells; !key.empty()) {
    const auto cells = size_of(view, key);
    if (!cells) return std::nullopt;
    const auto side = static_cast<Index>(std::sqrt(static_cast<double>(cells->value)));
    if (side * side != cells->value)
      view.warn("layout_not_covered",
                {"{} is {}, no square: transformers fits the first {} rows of the table to an "
                 "image, as {} x {}, and reads no other",
                 key, cells->value, side * side, side, side},
                *cells, "state the number of rows of the model's table", cells->value);
    return ImageRows{cells->value, 0, key};
  }
  const std::string &first = grid.sides.front(), &last = grid.sides.back();
  const auto side = view.integer(first, 1, kMostPixels / 1000, true);
  const auto other = view.integer(last, 1, kMostPixels / 1000, true);
  if (!side || !other) return std::nullopt;
  if (side->value == other->value)
    return ImageRows{side->value * side->value, 0, first == last ? first : first + " and " + last};
  return view.error("refused",
                    {"transformers reads the table of positions as a square, and it is {} x {}: a "
                     "patch gets the row of another, or none",
                     side->value, other->value},
                    *other, "state the sizes of the model", other->value);
}

// The longest timescale, where the class has a key for it, or one for rows and one for columns.
bool set_base(const ConfigView& view, EncodingBuilder& made) {
  const std::vector<std::string>& keys = view.rules().input_base;
  if (keys.empty()) return true;
  Json::Array bases;
  for (const std::string& key : keys) {
    const auto v = view.value(key);
    if (!(number_of(v) > 0))
      return view.wrong_type(
          {"{} must be a positive number, got {}", key, v ? shown(v->value) : "nothing"},
          view.place(v, key), "state the temperature of the model");
    bases.push_back(v->value.as_number());
  }
  const bool one = bases.front() == bases.back();
  made.set(one ? "base" : "bases", one ? bases.front() : Json(bases), Origin::stated,
           view.where(keys.front()));
  return true;
}

// Rows of patches that an image or its frames are cut into, with those before them.
std::optional<ImageRows> patch_rows(const ConfigView& view, const InputGrid& grid, Index before) {
  const auto image = table_sides(view, grid.image.empty() ? "image_size" : grid.image);
  const auto patch = table_sides(view, grid.patch.empty() ? "patch_size" : grid.patch);
  if (!image || !patch) return std::nullopt;
  if (!grid.more.empty()) {  // tokens that the file counts, with rows of their own
    const auto more = view.integer(grid.more, 0, kMostPixels, true);
    if (!more) return std::nullopt;
    before += more->value;
  }
  const Index rows = image->first / patch->first * (image->second / patch->second) + before;
  if (grid.behind) return ImageRows{rows};
  if (grid.frames.empty()) return ImageRows{rows, before};
  const auto frames = size_of(view, grid.frames), tubelet = size_of(view, grid.tubelet);
  if (!frames || !tubelet) return std::nullopt;
  return ImageRows{rows * (frames->value / tubelet->value)};
}

}  // namespace

Sides image_sides(const ConfigView& view, const std::string& key, bool square) {
  const auto v = view.value(key);
  if (!v || !v->value.is_array()) {
    const auto n = view.integer(key, 1, kMostPixels);
    return n ? std::optional(std::pair{n->value, n->value}) : std::nullopt;
  }
  const Json::Array& list = v->value.as_array();  // more than two are not looked at
  const auto fine = [](const Json& n) {
    return n.is_integer() && n.as_integer() > 0 && n.as_integer() <= kMostPixels;
  };
  if (list.size() >= 2 && !square && fine(list[0]) && fine(list[1]))
    return std::pair{list[0].as_integer(), list[1].as_integer()};
  return view.wrong_type(
      {"{}{}{}", key,
       square ? " must be one size: " + view.class_name() + " cannot divide a list, got "
              : " must be one size or two, got ",
       v->value},
      *v, "write a whole number");
}

CellCoordinates cell_coordinates(const ConfigView& view) {
  for (const CellCoordinates one :
       {CellCoordinates::from_one, CellCoordinates::counted, CellCoordinates::centred})
    if (view.rules().input_coordinates == enum_text(one)) return one;
  return CellCoordinates::index;
}

std::optional<ImageRows> image_rows(const ConfigView& view) {
  const InputGrid grid = view.rules().input_grid.value_or(InputGrid());
  const Index before = view.rules().input_patches.value_or(0);
  if (!grid.cells.empty() || !grid.sides.empty()) return stated_square(view, grid);
  if (!grid.tubelets.empty()) {
    const auto patches = tubelets(view, grid.tubelets == "true");
    return patches ? std::optional(ImageRows{*patches + before}) : std::nullopt;
  }
  if (grid.overlap) {
    const auto patches = overlapping(view);
    return patches ? std::optional(ImageRows{*patches + before, before}) : std::nullopt;
  }
  if (!grid.counted.empty()) {  // Molmo-2
    if (const auto n = view.integer(grid.counted, 1, kMostPixels))
      return ImageRows{n->value, before};
    if (!view.value_or_none("image_size")) {
      const auto patch = size_of(view, "patch_size");
      if (!patch) return std::nullopt;
      const Index side = grid.side.value_or(0) / patch->value;
      return ImageRows{side * side, before};
    }
  }
  return patch_rows(view, grid, before);
}

std::optional<ImageGrid> sines_of_grid(const ConfigView& view, const Sourced<Index>& width,
                                       EncodingBuilder& made) {
  if (width.value % 4 != 0)
    return view.error("refused", {"the width must be a multiple of 4, got {}", width.value}, width,
                      "state the sizes of the model");
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
