// SPDX-License-Identifier: Apache-2.0
// How many rows a table of positions has for the patches of an image, a video or a spectrogram.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "model/encoding_builder.h"
#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

struct ImageRows {
  Index rows = 0;
  std::optional<Index> before{};  // of an image: rows of tokens before its patches
  std::string key{};              // the key that counts the rows, where it is one
};
// Height and width in pixels or patches: one number or, unless `square`, two; a finding and none otherwise, none where
// neither file nor class has the key.
using Sides = std::optional<std::pair<Index, Index>>;
Sides image_sides(const ConfigView&, const std::string& key, bool square = false);
// By the entry's input_patches and input_grid; none after a finding.
std::optional<ImageRows> image_rows(const ConfigView&);

// By the entry's input_coordinates.
CellCoordinates cell_coordinates(const ConfigView&);

// Sines and cosines of rows and columns over a width; none after a finding.
std::optional<ImageGrid> sines_of_grid(const ConfigView&, const Sourced<Index>& width,
                                       EncodingBuilder&);
// Fields that the table has as " name=value name=value" (input_side.cpp).
void set_words(const ConfigView&, std::string_view words, EncodingBuilder&);

}  // namespace posenc::v0::hf
