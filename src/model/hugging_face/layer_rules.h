// SPDX-License-Identifier: Apache-2.0
// Layer types, windows and which layers turn: by rules that the table names.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/attention_spec.h"

namespace posenc::inline v0::hf {

inline constexpr Index kMostLayers = 10'000;

struct LayerPlan {
  std::string type = "full_attention";
  Origin origin = Origin::derived;  // of the type
  std::string where;
  AttentionSpec attention;
  std::vector<FieldValue> fields;  // attention, window, chunk
  bool turns = true;
};

// One plan a layer; none after a finding.
std::optional<std::vector<LayerPlan>> plan_layers(const ConfigView&);
// How many layers; none when nothing says so (layer_count.cpp).
std::optional<Sourced<Index>> layer_count(const ConfigView&);
// Types from layer_types or the class's older key; false when the file has neither. What is wrong
// with them becomes a finding.
bool stated_types(const ConfigView&, Index count, std::vector<LayerPlan>&);
// Types from a list of the class's own, an entry a layer, by the rules coded and blocks; false
// after a finding (layer_lists.cpp).
bool types_by_list(const ConfigView&, const LayerRules& rule, Index count, std::vector<LayerPlan>&);
// no_rope_layers: 1 = with rotary. Stated, or by no_rope_layer_interval; none after a finding.
std::optional<std::vector<bool>> rope_flags(const ConfigView&, Index count);
// Old names of layer types, as the class renames them on loading.
void rename_types(const ConfigView&, std::vector<LayerPlan>&);
// Fills attention, fields and turns of the plans.
void plan_attention(const ConfigView&, std::vector<LayerPlan>&);

}  // namespace posenc::v0::hf
