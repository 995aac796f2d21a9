// SPDX-License-Identifier: Apache-2.0
// What a dictionary of rope_parameters says that nobody reads, and what another program would miss.
#include <algorithm>

#include "model/hugging_face/near_keys.h"
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::inline v0::hf {
// A key that is no scaling's, and that the scheme, the attention or the logits read all the same.
bool RotaryWriter::read_elsewhere(const std::string& key, const Json& value) const {
  const ClassRules& c = view_.rules();
  // Two names of a switch that nobody reads: the class's layout is one or the other.
  const bool layout = key == "mrope_interleaved" || key == "interleaved";
  const bool sections = key == "mrope_section";
  return contains({"rope_type", "type", "rope_theta", "partial_rotary_factor"}, key) ||
         type_->find(key) || (fixed_alpha_ && key == "alpha") || (c.mrope && sections) ||
         (c.mrope && layout && truthy(value) == (c.mrope->layout == "interleaved")) ||
         rules().aliases.find(key) || (!rules().aliases.empty() && sections) ||
         (!c.temperature.empty() && key == "llama_4_scaling_beta") ||
         (c.logit_factor && (key == "mscale_all_dim" || key == "factor"));
}

// rope_scaling in a dictionary that is already the one of rotary.
void RotaryWriter::inside_another(const std::string& key, const Value& value) {
  if (!truthy(value.value)) return;
  const std::string outer = last_word(value.where.substr(0, value.where.rfind('/')));
  view_.warn("nearly_a_key", {"nobody reads {} inside {}", key, outer}, value,
             "move its members one level up");
}

void RotaryWriter::unread_keys() {
  for (const auto& [key, value] : dict_.items()) {
    if (value.origin != Origin::stated || read_elsewhere(key, value.value)) continue;
    const Json* alias = table_member("rope_aliases").find(key);
    if (key == "short_factor" || key == "long_factor")
      view_.warn("list_ignored", {"{} is not read by rope_type {}", key, out_.type}, value,
                 "write rope_type longrope to use the lists");
    else if (key == "finetuned" || key == "max_position_embeddings")
      view_.note("key_ignored", {"{} only informs", key}, value);
    else if (alias)
      view_.warn("alias_not_read",
                 {"{} ({}) is not read by transformers with rope_type {}", key, alias->as_string(),
                  out_.type},
                 value, "use the name of transformers if you mean it");
    else if (key == "rope_scaling" || key == "rope_parameters")
      inside_another(key, value);
    else
      view_.warn("key_ignored",
                 {"{} is not read with rope_type {}{}", key, out_.type, meant_rope_member(key)},
                 value, "remove it, or write the rope_type it belongs to");
  }
}

// The theta of rope_parameters, if rope_scaling replaces them.
const Json* RotaryWriter::dropped_theta() const {
  const Json* dropped = view_.object().find("rope_parameters");
  return dropped ? dropped->find("rope_theta") : nullptr;
}

// The file states no theta. v5: it is of transformers 5, which keeps theta inside.
void RotaryWriter::theta_filled_in(const Value& theta, bool has_dict, bool v5) {
  const double value = theta.value.as_number();
  const auto counts = message("{}'s default {} applies", view_.class_name(), value);
  const std::string code = v5 ? "theta_lost_v5" : "theta_lost_v4";
  // The class was made for one family and holds the thetas of its layer types: Gemma-3's files of
  // 4B and more leave them out.
  const bool held = rules().rule == "by_layer_type" && !v5;
  if (const Json* lost = v5 ? nullptr : dropped_theta(); lost && has_dict)
    view_.warn(code,
               {"rope_theta {} is in rope_parameters, which rope_scaling replaces: {}",
                plain(*lost), counts},
               view_.where("rope_parameters") + "/rope_theta",
               "state rope_theta at the top level or in rope_scaling", value);
  else if (has_dict && out_.type != "default" && !held)
    view_.warn(code,
               {"the file scales positions but states no rope_theta: {}. If the model was trained "
                "with another theta, it is lost",
                counts},
               theta, "state rope_theta", value);
  else if (has_dict && v5)
    view_.warn(code, {"the file has rope_parameters but no rope_theta: {}", counts}, theta,
               "state rope_theta", value);
  else
    view_.note("missing_key", {"no rope_theta: {}", counts}, theta, "state rope_theta", value);
}

// transformers 5 keeps theta inside, version 4 at the top level; a reader of the other generation
// finds none and falls back to its default.
void RotaryWriter::theta_place() {
  const Value *theta = dict_.find("rope_theta"), *type = dict_.find("rope_type");
  if (rules().rule == "own_keys") return;  // neither place is looked at
  if (!theta || !theta->value.is_number()) return;
  const bool has_dict = std::ranges::any_of(dict_.items(), [](const auto& i) {
    return i.first != "rope_theta" && i.second.origin == Origin::stated &&
           i.second.where.find("/rope_") != std::string::npos;
  });
  if (theta->origin == Origin::class_default && theta->where == view_.class_name()) {
    theta_filled_in(*theta, has_dict,
                    type && type->where.find("rope_parameters") != std::string::npos);
    return;
  }
  const double value = theta->value.as_number();
  if (theta->origin != Origin::stated || value == 10000) return;
  const bool in_parameters = theta->where.find("/rope_parameters") != std::string::npos;
  const bool inside = in_parameters || theta->where.find("/rope_scaling") != std::string::npos;
  // Two copies agree, or both_spellings says that they differ.
  if (inside ? theta_beside_ : dropped_theta() != nullptr) return;
  if (inside)
    view_.note("theta_lost_v5",
               {"rope_theta is in {} and not at the top level: a program that looks at the top "
                "level, as for transformers 4, silently uses 10000",
                in_parameters ? "rope_parameters" : "rope_scaling"},
               *theta, "keep a copy at the top level for old readers", value);
  else if (has_dict)
    view_.note("theta_lost_v4",
               "rope_theta is beside the scaling, not in it: a program that looks only inside "
               "silently uses 10000",
               *theta, "save with transformers 5, or keep both", value);
}

}  // namespace posenc::v0::hf
