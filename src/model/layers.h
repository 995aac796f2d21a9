// SPDX-License-Identifier: Apache-2.0
// Layers of one part of a file: text, vision, audio.
#pragma once
#include <vector>

#include "model/config_view.h"

namespace posenc::hf {

struct PartLayers {
  std::vector<LayerSpec> layers;
  std::vector<Sourced<Encoding>> input;
  std::optional<Index> original_context;  // of the scaling
  std::string rope_type;                  // of the first layer that turns
};
// context: the length that length rules get.
PartLayers read_layers(const ConfigView&, Index context);

// Schemes other than rotary: what acts at the input and in the score (not_rotary.cpp).
void read_not_rotary(const ConfigView&, const std::string& scheme, PartLayers&);
// A vision tower with an axial rotary (towers.cpp).
PartLayers read_vision(const ConfigView&);
std::vector<Tower> read_towers(const ConfigView& whole, const std::string& text_part,
                               Index context);

}  // namespace posenc::hf
