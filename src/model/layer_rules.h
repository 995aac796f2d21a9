// SPDX-License-Identifier: Apache-2.0
// Layer types, windows and which layers turn: by rules that the table names.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/config_view.h"

namespace posenc::hf {

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
// Fills attention, fields and turns of the plans.
void plan_attention(const ConfigView&, std::vector<LayerPlan>&);

}  // namespace posenc::hf
