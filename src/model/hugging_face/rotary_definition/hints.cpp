// SPDX-License-Identifier: Apache-2.0
// What a dictionary of rope_parameters says that nobody reads, and what another program would miss.
#include <algorithm>

#include "model/hugging_face/rope_dictionary/parts.h"
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::hf {
namespace {

// Names of other programs for something transformers has under another name or not at all.
struct Alias {
  std::string_view key, means;
};
constexpr Alias kAliases[] = {
    {"attn_factor",
     "vLLM's and the YaRN repository's factor on the gain; here attention_factor, "
     "which replaces it"},
    {"extrapolation_factor", "vLLM's and the YaRN repository's weight of the ramp"},
    {"yarn_attn_factor", "llama.cpp's name"},
    {"yarn_ext_factor", "llama.cpp's name"},
    {"rope_base", "rope_theta"},
    {"base", "rope_theta"},
    {"theta", "rope_theta"},
    {"alpha", "HunYuan's NTK factor, or Mistral's beta_slow"},
    {"beta", "Mistral's beta_fast"},
    {"apply_scale", "Mistral's switch of the gain"},
    {"short_mscale", "Phi-MoE's gain"},
    {"long_mscale", "Phi-MoE's gain"},
    {"original_max_position_embedding", "original_max_position_embeddings"},
    {"scale", "factor"},
    {"scaling_factor", "factor"},
};

}  // namespace

void RotaryWriter::unread_keys() {
  const Json& entry = view_.entry();
  for (const auto& [key, value] : dict_.items()) {
    if (value.origin != Origin::stated) continue;
    if (key == "rope_type" || key == "type" || key == "rope_theta" ||
        key == "partial_rotary_factor")
      continue;
    if (type_->find(key)) continue;
    if (const Json* axes = entry.find("mrope")) {
      if (key == "mrope_section") continue;
      // Two names of a switch that nobody reads: the class's layout is one or the other.
      const bool layout = axes->at("layout") == Json("interleaved");
      if ((key == "mrope_interleaved" || key == "interleaved") && truthy(value.value) == layout)
        continue;
    }
    if (fixed_alpha_ && key == "alpha") continue;
    if (const Json* names = aliases(); names && (names->find(key) || key == "mrope_section"))
      continue;  // checked with the head
    if (entry.find("temperature") && key == "llama_4_scaling_beta") continue;
    if (entry.find("logit_factor") && (key == "mscale_all_dim" || key == "factor")) continue;
    if (key == "short_factor" || key == "long_factor") {
      report().warn("list_ignored", key + " is not read by rope_type " + out_.type, value.where,
                    "write rope_type longrope if the lists are meant");
      continue;
    }
    if (key == "finetuned" || key == "max_position_embeddings") {
      report().note("key_ignored", key + " only informs", value.where);
      continue;
    }
    const auto* alias = std::find_if(std::begin(kAliases), std::end(kAliases),
                                     [&name = key](const Alias& a) { return a.key == name; });
    if (alias != std::end(kAliases))
      report().warn("alias_not_read",
                    key + " (" + std::string(alias->means) +
                        ") is not read by transformers with "
                        "rope_type " +
                        out_.type,
                    value.where, "write the transformers name, if it is meant");
    else
      report().warn("key_ignored", key + " is not read with rope_type " + out_.type, value.where,
                    "remove it, or write the rope_type it belongs to");
  }
}

const Json* RotaryWriter::aliases() const {
  const Json* rule = view_.entry().find("rope");
  return rule ? rule->find("aliases") : nullptr;
}

// HunYuan-VL: sections of half the head, under an older name too.
bool RotaryWriter::xd_sections(const Head& head) {
  const Json* names = aliases();
  if (!names) return true;
  for (const auto& [from, to] : names->as_object()) {
    const Value* sections = dict_.find(to.as_string());
    const Value* old = dict_.find(from);
    if (old && sections && old->value != sections->value) {
      report().error("both_spellings",
                     from + " is " + shown(old->value) + " and " + to.as_string() + " " +
                         shown(sections->value) + ": " + view_.class_name() + " refuses the file",
                     old->where);
      return false;
    }
    if (!sections || sections->value.is_null()) continue;
    Index sum = 0;
    bool fine = sections->value.is_array();
    if (fine)
      for (const Json& n : sections->value.as_array()) {
        const auto whole = whole_number(n);
        fine = fine && whole && *whole >= 0 && *whole <= 65536 && sum <= 65536;
        if (fine) sum += *whole;
      }
    if (fine && sum == head.q_dim.value / 2) continue;
    report().error("sections_sum",
                   to.as_string() + " must be whole numbers that add up to half the head, " +
                       std::to_string(head.q_dim.value / 2) + ", got " + shown(sections->value),
                   sections->where, static_cast<double>(sum));
    return false;
  }
  return true;
}

// The theta of rope_parameters, where rope_scaling stands in their place.
const Json* RotaryWriter::dropped_theta() const {
  const Json* dropped = view_.object().find("rope_parameters");
  return dropped && dropped->is_object() ? dropped->find("rope_theta") : nullptr;
}

// transformers 5 keeps theta inside, version 4 at the top level; a reader of the other generation
// finds none and falls back to its default.
void RotaryWriter::theta_place() {
  const Value* theta = dict_.find("rope_theta");
  const Json* rule = view_.entry().find("rope");
  const Json* name = rule ? rule->find("rule") : nullptr;
  if (name && name->as_string() == "own_keys") return;  // neither place is looked at
  // The class was made for one family and holds the thetas of its layer types: Gemma-3's files of
  // 4B and more leave them out.
  const bool by_layer_type = name && name->as_string() == "by_layer_type";
  if (!theta || !theta->value.is_number()) return;
  const double value = theta->value.as_number();
  const bool has_dict = std::any_of(dict_.items().begin(), dict_.items().end(), [](const auto& i) {
    return i.first != "rope_theta" && i.second.origin == Origin::stated &&
           i.second.where.find("/rope_") != std::string::npos;
  });
  const Value* type = dict_.find("rope_type");
  const bool v5 = type && type->where.find("rope_parameters") != std::string::npos;
  const std::string code = v5 ? "theta_lost_v5" : "theta_lost_v4";
  if (theta->origin == Origin::class_default && theta->where == view_.class_name()) {
    if (const Json* lost = v5 ? nullptr : dropped_theta(); lost && has_dict)
      report().warn(code,
                    "rope_theta " + plain(*lost) +
                        " stands in rope_parameters, which rope_scaling puts out of force: " +
                        view_.class_name() + "'s " + number_text(value) + " counts",
                    view_.where("rope_parameters") + "/rope_theta",
                    "state rope_theta at the top level or in rope_scaling", value);
    else if (has_dict && out_.type != "default" && !(by_layer_type && !v5))
      report().warn(code,
                    "the file scales positions but states no rope_theta: " + view_.class_name() +
                        "'s " + number_text(value) +
                        " counts, and if the model was trained with another, that one is "
                        "lost",
                    theta->where, "state rope_theta", value);
    else if (has_dict && v5)
      report().warn(code,
                    "rope_parameters has no rope_theta, and there is none beside it: " +
                        view_.class_name() + "'s " + number_text(value) + " counts",
                    theta->where, "state rope_theta", value);
    else
      report().note("missing_key",
                    "no rope_theta: " + view_.class_name() + "'s " + number_text(value) + " counts",
                    theta->where, "state rope_theta", value);
    return;
  }
  if (theta->origin != Origin::stated || value == 10000) return;
  const bool in_parameters = theta->where.find("/rope_parameters") != std::string::npos;
  const bool inside = in_parameters || theta->where.find("/rope_scaling") != std::string::npos;
  // Two copies agree, or both_spellings says that they differ.
  if (inside ? theta_beside_ : dropped_theta() != nullptr) return;
  if (inside)
    report().note("theta_lost_v5",
                  std::string("rope_theta stands in ") +
                      (in_parameters ? "rope_parameters" : "rope_scaling") +
                      " and not at the top level: a program that looks there, as for "
                      "transformers 4, silently takes 10000",
                  theta->where, "keep a copy at the top level for old readers", value);
  else if (has_dict)
    report().note("theta_lost_v4",
                  "rope_theta stands beside the scaling, not in it: a program that looks inside "
                  "only silently takes 10000",
                  theta->where, "save with transformers 5, or keep both", value);
}

}  // namespace posenc::hf
