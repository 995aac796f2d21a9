// SPDX-License-Identifier: Apache-2.0
// Layer types, windows and which layers turn: by rules that the table names.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/attention_spec.h"

namespace posenc::inline v0::hf {

inline constexpr Index kMostLayers = 10'000;

struct LayerPlan {
  std::string type = "full_attention";
  Origin origin = Origin::derived;  // of the type
  std::string where;
  AttentionSpec attention{};
  std::vector<FieldValue> fields{};  // attention, window, chunk
  bool turns = true;
};

// One plan a layer; none after a finding.
std::optional<std::vector<LayerPlan>> plan_layers(const ConfigView&);
// How many layers; none when nothing says so (stated_layers.cpp).
std::optional<Sourced<Index>> layer_count(const ConfigView&);
// Types from layer_types or the class's older key; false when the file has neither. What is wrong
// with them becomes a finding (stated_layers.cpp).
bool stated_types(const ConfigView&, Index count, std::vector<LayerPlan>&);
// An entry of layer_types by today's name; none after a finding where transformers has no such word.
std::optional<std::string> layer_type(const ConfigView&, const Json& word,
                                      const std::string& where);
// Types from a list of the class's own, an entry a layer, by the rules coded and blocks; false
// after a finding (stated_layers.cpp).
bool types_by_list(const ConfigView&, const LayerRules& rule, std::vector<LayerPlan>&);
// no_rope_layers: 1 = with rotary. Stated, or by no_rope_layer_interval; none after a finding.
std::optional<std::vector<bool>> rope_flags(const ConfigView&, Index count);
// Fills attention, fields and turns of the plans.
void plan_attention(const ConfigView&, std::vector<LayerPlan>&);

// The finding of an entry of a list that is none of the words: which, and the nearest.
Refused unknown_word(const ConfigView&, const Json& word,
                     const std::vector<std::string_view>& words, const std::string& where);
// "NAME has 3 entries for 4 layers"
Refused wrong_length(const ConfigView&, const std::string& name, const Value& list, Index count);
// Types by a list with an entry for each plan; false after a finding of type_of(entry, where), which
// may say more exactly where.
template <class TypeOf>
bool by_entries(const Value& list, std::vector<LayerPlan>& plans, TypeOf type_of) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    std::string where = list.where + "/" + std::to_string(i);
    std::optional<std::string> type = type_of(list.value.as_array()[i], where);
    if (!type) return false;
    plans[i] = {std::move(*type), list.origin, std::move(where)};
  }
  return true;
}

}  // namespace posenc::v0::hf
