// SPDX-License-Identifier: Apache-2.0
// Layers of one part of a file: text, vision, audio.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

struct PartLayers {
  std::vector<LayerSpec> layers;
  std::vector<InputEncoding> input;
  std::optional<Index> original_context;  // of the scaling
};
// context: the length that length rules get.
PartLayers read_layers(const ConfigView&, Index context);

// Schemes other than rotary: what acts at the input and in the score.
void read_not_rotary(const ConfigView&, const std::string& scheme, PartLayers&);
// A layer's query temperature and its fields.
void give_temperature(const ConfigView&, const QueryTemperature&, const Value& beta, Value period,
                      LayerSpec&);

}  // namespace posenc::v0::hf
