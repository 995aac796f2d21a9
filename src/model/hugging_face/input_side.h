// SPDX-License-Identifier: Apache-2.0
// What stands at the input of a model: learned rows, sinusoids, coordinates.
#pragma once
#include <optional>
#include <string>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {

// `kind` has a scheme here: learned, sinusoidal ...
void read_input(const ConfigView&, const std::string& kind, PartLayers&);
// What the class multiplies embeddings by, with a finding.
std::optional<Value> input_gain(const ConfigView&, Index width, bool learned);

}  // namespace posenc::v0::hf
