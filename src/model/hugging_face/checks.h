// SPDX-License-Identifier: Apache-2.0
// Checks of a file after its layers are read: keys that the class does not read, sizes that do not fit, assumptions.
#pragma once
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

// Keys about positions that the class of these layers does not read (unread.cpp).
void unread_positions(const ConfigView&, const std::vector<LayerSpec>&);
// Sizes that do not fit together in the way of published models (implausible.cpp).
void implausible_sizes(const ConfigView&);
// What a class that a person chose for the file filled in (assumed.cpp).
void filled_by_class(const ConfigView&, const Json& file, const std::vector<LayerSpec>&);
// What a person assumed: a note each, an error where it names nothing (assumed.cpp).
void unused_assumptions(Report&);
// What the class refuses on loading and nobody asked for (refusals.cpp).
void refused_on_loading(const ConfigView&, std::size_t layers);

}  // namespace posenc::v0::hf
