// SPDX-License-Identifier: Apache-2.0
// Classes that do not read rope_parameters in the common way: always by layer type, as it stands,
// or not at all.
#include <algorithm>

#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"

namespace posenc::inline v0::hf {
namespace {

// The dictionary of a layer type; what is null or missing the class fills in.
Dict stated_part(const ConfigView& view, const std::optional<Value>& all,
                 const std::string& label) {
  const Json* mine = all ? all->value.find(label) : nullptr;
  if (mine && !mine->is_null()) return dict_of(view, *all, label).value_or(Dict{});
  if (mine)
    view.warn("key_ignored", "null does not mean no rotary here: {class} fills it in",
              all->where + "/" + label, "state its rope_type and rope_theta");
  // The class starts from {"rope_type": "default"}, which a scaling's old key `type` never beats.
  Dict d;
  d.set("rope_type", view.of_class("default"));
  return d;
}

// rope_scaling goes into the dictionary of a layer type; false after a finding.
bool take_scaling(const ConfigView& view, const Stated& s, const std::string& label, Dict& d) {
  const Json* mine = s.parameters ? s.parameters->value.find(label) : nullptr;
  if (s.parameters && (!mine || mine->is_null()))
    return view.error("missing_key",
                      {"rope_scaling goes into rope_parameters/{}, which rope_parameters does not "
                       "have: transformers fails on it",
                       label},
                      s.parameters->where, {"state {} there, or leave one of the two out", label});
  const Dict scaling = dict_of(view, *s.scaling);
  for (const auto& [name, value] : scaling.items()) d.set(name, value);
  if (const Value* old = scaling.find("type"); old && !scaling.find("rope_type"))
    view.warn("key_ignored", "{class} does not read type, so this scaling has no effect", *old,
              "write rope_type");
  return true;
}

// Its own key beside the dictionaries; the type without one keeps what the class holds.
void theta_of_type(const ConfigView& view, const TypeRules& rule, RopeSet::Part& part) {
  const bool own = !rule.key.empty();
  const auto beside = view.stated(own ? rule.key : "rope_theta");
  if (beside) theta_beside(view, part, *beside);
  if (!own && beside && !part.dict.find("rope_theta") && beside->value.is_number() &&
      beside->value.as_number() != rule.held.as_number())
    view.warn("key_ignored",
              {"rope_theta reaches the other layer types only: {} keeps {}", part.label, rule.held},
              *beside, "state rope_parameters by layer type");
  part.dict.set_default("rope_theta", own && beside ? *beside : view.of_class(rule.held));
}

// UltraBERT's checkpoints: one theta a layer, the last layer of a type speaking for it.
bool thetas_by_layer(const ConfigView& view, RopeSet& set) {
  const auto list = view.stated_value("rope_theta");
  if (!rope_rules(view).thetas_by_layer || !list || view.stated_value("rope_parameters"))
    return false;
  set.nested = true;
  if (list->value == Json::array() || !list->value.is_array()) {
    view.wrong_type(
        {"rope_theta must be a list of one theta a layer, got {}: {class} refuses the file",
         list->value},
        *list, "state rope_parameters by layer type");
    return true;
  }
  const auto plans = plan_layers(view);
  const auto& thetas = list->value.as_array();
  for (std::size_t i = 0; plans && i < plans->size() && i < thetas.size(); ++i) {
    const std::string& type = (*plans)[i].type;
    auto part =
        std::ranges::find_if(set.parts, [&](const RopeSet::Part& p) { return p.label == type; });
    if (part == set.parts.end()) part = set.parts.insert(part, {type, true, {}});
    part->dict.set("rope_type", view.of_class("default"));
    part->dict.set("rope_theta", {thetas[i], list->origin, list->where + "/" + std::to_string(i)});
  }
  return true;
}

bool plain_type(const RopeSet::Part& part) {
  return rope_type(part.dict).value_or("default") == "default";
}

// The keys beside dictionaries of layer types: not read, but those of `fills`, which reach
// dictionaries that lack them. A scaled part makes transformers fill in a fraction beside them, in
// the plain ones too.
void fill_in(const ConfigView& view, RopeSet& set) {
  const RopeRules& rule = rope_rules(view);
  const bool scaled = std::ranges::any_of(
      set.parts, [](const RopeSet::Part& p) { return p.turns && !plain_type(p); });
  for (const std::string key : {"rope_theta", "partial_rotary_factor", "swa_rope_theta"}) {
    const bool fills = contains(rule.fills, key) || (scaled && key == "partial_rotary_factor");
    const auto beside = view.stated(key);
    bool taken = false;
    for (auto& part : set.parts) {
      if (!part.turns || !fills) continue;
      if (beside && !beside->value.is_null() && !rule.fills_from_class)
        taken |= part.dict.set_default(key, *beside);
      else if (key == "rope_theta")
        part.dict.set_default(key, theta_of_class(view));
    }
    if (beside && !taken)
      view.warn("key_ignored", {"{} is not read by {class}: only rope_parameters is", key}, *beside,
                "state it in rope_parameters, by layer type");
  }
  if (const Json& held = view.rules().fraction; !held.is_null())
    for (auto& part : set.parts)
      if (part.turns && (scaled || plain_type(part)))
        part.dict.set_default("partial_rotary_factor", view.of_class(held));
}

// A class that fills in thetas fills in the original context too; others are refused without it.
void original_stated(const ConfigView& view, const RopeSet::Part& part, const Value& all) {
  const auto type = rope_type(part.dict);
  if (!type || !needs_original(*type) || contains(rope_rules(view).fills, "rope_theta") ||
      part.dict.find("original_max_position_embeddings"))
    return;
  view.error("missing_key",
             {"original_max_position_embeddings is missing: {class} fills in none, and "
              "transformers refuses rope_type {} without it",
              *type},
             all.where + "/" + part.label, "state it beside rope_type");
}

RopeSet one_base(const ConfigView& view, Value theta) {
  RopeSet::Part part;
  part.dict.set("rope_type", view.of_class("default"));
  part.dict.set("rope_theta", std::move(theta));
  return {false, {std::move(part)}, ""};
}

}  // namespace

// Gemma-3, OLMo-3, ModernBERT.
RopeSet by_layer_type(const ConfigView& view, const std::vector<std::string>&) {
  const RopeRules& rule = rope_rules(view);
  const Stated s = stated_dicts(view);
  RopeSet set;
  set.nested = true;
  set.spelling = s.scaling ? "rope_scaling" : s.parameters ? "rope_parameters" : "";
  if (s.parameters && !only_layer_types(view, *s.parameters)) return {};
  if (s.parameters)
    for (const auto& [key, value] : s.parameters->value.as_object())
      if (!rule.thetas.find(key))
        view.warn("key_ignored",
                  {"rope_parameters of {class} is read by layer type; {} beside them is not", key},
                  s.parameters->where + "/" + key, "move it into the layer types");
  for (const auto& [label, type] : rule.thetas.pairs) {
    RopeSet::Part part{label, true, stated_part(view, s.parameters, label)};
    if (s.scaling && contains(rule.scaling_to, label) && !take_scaling(view, s, label, part.dict))
      return {};
    theta_of_type(view, type, part);
    if (const auto f = view.stated_value("partial_rotary_factor"))
      part.dict.set_default("partial_rotary_factor", *f);
    complete(view, part.dict, true);
    set.parts.push_back(std::move(part));
  }
  return set;
}

// Gemma-4, Laguna, MiMo: as it stands, or the class default whole.
RopeSet as_stated(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  if (const auto old = view.stated("rope_scaling"); old && !truthy(old->value)) {
    view.wrong_type({"rope_scaling is {}, which {class} stores instead of its rope_parameters: no "
                     "model can be built",
                     old->value},
                    *old, "remove the key");
    return set;
  }
  if (thetas_by_layer(view, set)) return set;
  const auto all = chosen(view, set);
  if (!all) return set;
  const auto labels = labels_of(view, all->value, layer_types);
  if (labels.empty())
    for (const auto& type : layer_types)
      view.error("missing_key", {"rope_parameters has no entry for {}", type},
                 all->where + "/" + type, "state rope_parameters by layer type");
  if (labels.empty() || !add_nested(view, set, *all, labels)) return set;
  fill_in(view, set);
  for (auto& part : set.parts) {
    if (!part.turns) continue;
    original_stated(view, part, *all);
    complete(view, part.dict, true);
  }
  return set;
}

// The base stands in the code: GPT-J, CodeGen, RoFormer, CLVP.
RopeSet fixed_base(const ConfigView& view, const std::vector<std::string>&) {
  not_read(view, {"rope_theta", "rope_scaling", "rope_parameters"},
           ": the base is fixed in the code of " + view.class_name(), "remove the key");
  return one_base(view, theta_of_code(view));
}

// One key at the top level: ESM.
RopeSet top_level(const ConfigView& view, const std::vector<std::string>&) {
  return one_base(view, theta_outside(view));
}

}  // namespace posenc::v0::hf
