// SPDX-License-Identifier: Apache-2.0
// Classes that do not read rope_parameters in the common way: always by layer type, as it stands,
// or not at all.
#include <algorithm>

#include "model/hugging_face/layer_rules.h"
#include "model/hugging_face/rope_dictionary/parts.h"

namespace posenc::hf {
namespace {

// Gemma-3, OLMo-3, ModernBERT: always by layer type.
RopeSet by_layer_type(const ConfigView& view, const RopeRules& rule) {
  RopeSet set;
  set.nested = true;
  const Stated s = stated_dicts(view);
  const Json* object =
      s.parameters && s.parameters->value.is_object() ? &s.parameters->value : nullptr;
  if (object) set.spelling = "rope_parameters";
  if (s.scaling && truthy(s.scaling->value)) set.spelling = "rope_scaling";
  const Json& thetas = rule.thetas;
  if (object && !only_layer_types(view, *s.parameters, thetas)) return RopeSet{};
  if (object)
    for (const auto& [key, value] : object->as_object())
      if (!thetas.find(key))
        view.report().warn("key_ignored",
                           "rope_parameters of " + view.class_name() + " is read by layer type; " +
                               key + " beside them is not",
                           s.parameters->where + "/" + key, "move it into the layer types");
  for (const auto& [label, about] : thetas.as_object()) {
    RopeSet::Part part{label, true, {}};
    const Json* mine = object ? object->find(label) : nullptr;
    if (mine && mine->is_object())
      part.dict = dict_of(view, *mine, s.parameters->where + "/" + label, Origin::stated);
    else if (mine && !mine->is_null())
      view.report().error("wrong_type", "must be an object or null, got " + shown(*mine),
                          s.parameters->where + "/" + label, "write {\"rope_type\": ...}");
    if (mine && mine->is_null())
      view.report().warn("key_ignored",
                         "null does not mean no rotary here: " + view.class_name() + " fills it in",
                         s.parameters->where + "/" + label, "state its rope_type and rope_theta");
    // The class starts from {"rope_type": "default"}, which a scaling's old key `type` never beats.
    if (!mine || mine->is_null())
      part.dict.set("rope_type", {"default", Origin::class_default, view.class_name()});
    const bool scaled = contains(rule.scaling_to, label);
    if (scaled && s.scaling && truthy(s.scaling->value) && object && (!mine || mine->is_null())) {
      view.report().error("missing_key",
                          "rope_scaling goes into rope_parameters/" + label +
                              ", which rope_parameters does not have: transformers fails on it",
                          s.parameters->where,
                          "state " + label + " there, or leave one of the two out");
      return RopeSet{};
    }
    if (scaled && s.scaling && s.scaling->value.is_object()) {
      const Dict scaling = dict_of(view, s.scaling->value, s.scaling->where, Origin::stated);
      for (const auto& [name, value] : scaling.items()) part.dict.set(name, value);
      if (const Value* old = scaling.find("type"); old && !scaling.find("rope_type"))
        view.report().warn(
            "key_ignored",
            "type is not read by " + view.class_name() + ", so that this scaling does nothing",
            old->where, "write rope_type");
    }
    const Json* key = about.find("key");
    const auto outside = key ? view.stated(key->as_string()) : std::nullopt;
    const auto top = view.stated("rope_theta");
    if (const auto& beside = key ? outside : top) theta_beside(view, part, *beside);
    if (!key && top && !part.dict.find("rope_theta") && top->value.is_number() &&
        top->value.as_number() != about.at("default").as_number())
      view.report().warn("key_ignored",
                         "rope_theta reaches the other layer types only: " + label + " keeps " +
                             shown(about.at("default")),
                         top->where, "state rope_parameters by layer type");
    part.dict.set_default(
        "rope_theta",
        outside ? *outside : Value{about.at("default"), Origin::class_default, view.class_name()});
    if (const auto f = view.stated("partial_rotary_factor"); f && !f->value.is_null())
      part.dict.set_default("partial_rotary_factor", *f);
    complete(view, part.dict, true);
    set.parts.push_back(std::move(part));
  }
  return set;
}

// UltraBERT's checkpoints: one theta a layer, the last layer of a type speaking for it.
bool thetas_by_layer(const ConfigView& view, RopeSet& set) {
  const auto list = view.stated("rope_theta");
  const auto own = view.stated("rope_parameters");
  if (!rope_rules(view).thetas_by_layer || !list || list->value.is_null() ||
      (own && !own->value.is_null()))
    return false;
  set.nested = true;
  if (!list->value.is_array()) {
    view.report().error("wrong_type",
                        "rope_theta must be a list of one theta a layer, got " +
                            shown(list->value) + ": " + view.class_name() + " refuses the file",
                        list->where, "state rope_parameters by layer type");
    return true;
  }
  const auto plans = plan_layers(view);
  const auto& thetas = list->value.as_array();
  for (std::size_t i = 0; plans && i < plans->size() && i < thetas.size(); ++i) {
    const std::string& type = (*plans)[i].type;
    auto part = std::find_if(set.parts.begin(), set.parts.end(),
                             [&](const RopeSet::Part& p) { return p.label == type; });
    if (part == set.parts.end()) part = set.parts.insert(part, {type, true, {}});
    part->dict.set("rope_type", {"default", Origin::class_default, view.class_name()});
    part->dict.set("rope_theta", {thetas[i], list->origin, list->where + "/" + std::to_string(i)});
  }
  return true;
}

// A class that fills in thetas fills in the original context too; others are refused without it.
void original_stated(const ConfigView& view, const RopeSet::Part& part, const Value& all) {
  const auto type = rope_type(part.dict);
  if (!type || !needs_original(*type) || contains(rope_rules(view).fills, "rope_theta") ||
      part.dict.find("original_max_position_embeddings"))
    return;
  view.report().error("missing_key",
                      "original_max_position_embeddings is missing: " + view.class_name() +
                          " fills in none, and transformers refuses rope_type " + *type +
                          " without it",
                      all.where + "/" + part.label, "state it beside rope_type");
}

// Gemma-4, Laguna, MiMo: as it stands, or the class default whole. Keys beside it are not read,
// but those of `fills`, which reach dictionaries that lack them.
RopeSet as_stated(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  if (const auto old = view.stated("rope_scaling"); old && !truthy(old->value)) {
    view.report().error("wrong_type",
                        "rope_scaling is " + shown(old->value) + ", which " + view.class_name() +
                            " stores in the place of its rope_parameters: no model can be built",
                        old->where, "remove the key");
    return set;
  }
  if (thetas_by_layer(view, set)) return set;
  const auto all = chosen(view, set);
  if (!all) return set;
  const auto labels = labels_of(view, all->value, layer_types);
  if (labels.empty()) {
    for (const auto& type : layer_types)
      view.report().error("missing_key", "rope_parameters has no entry for " + type,
                          all->where + "/" + type, "state rope_parameters by layer type");
    return set;
  }
  if (!add_nested(view, set, *all, labels)) return set;
  // A scaled part makes transformers fill in a fraction beside them, in the plain ones too.
  const bool scaled = std::any_of(set.parts.begin(), set.parts.end(), [](const RopeSet::Part& p) {
    return p.turns && rope_type(p.dict).value_or("default") != "default";
  });
  for (const char* key : {"rope_theta", "partial_rotary_factor", "swa_rope_theta"}) {
    const bool fills = contains(rope_rules(view).fills, key) ||
                       (scaled && std::string_view(key) == "partial_rotary_factor");
    const auto outside = view.stated(key);
    bool taken = false;
    for (auto& part : set.parts) {
      if (!part.turns || !fills) continue;
      if (outside && !outside->value.is_null() && !rope_rules(view).fills_from_class)
        taken |= part.dict.set_default(key, *outside);
      else if (std::string_view(key) == "rope_theta")
        part.dict.set_default(key, {view.rules().theta, Origin::class_default, view.class_name()});
    }
    if (outside && !taken)
      view.report().warn(
          "key_ignored",
          std::string(key) + " is not read by " + view.class_name() + ": only rope_parameters is",
          outside->where, "state it in rope_parameters, by layer type");
  }
  if (const Json& held = view.rules().fraction; !held.is_null())
    for (auto& part : set.parts)
      if (part.turns && (scaled || rope_type(part.dict).value_or("default") == "default"))
        part.dict.set_default("partial_rotary_factor",
                              {held, Origin::class_default, view.class_name()});
  for (auto& part : set.parts) {
    if (!part.turns) continue;
    original_stated(view, part, *all);
    complete(view, part.dict, true);
  }
  return set;
}

// Bases fixed in the code (GPT-J, CodeGen, RoFormer, CLVP) or one top-level key (ESM).
RopeSet fixed(const ConfigView& view, bool top_level) {
  RopeSet set;
  Dict d;
  d.set("rope_type", {"default", Origin::class_default, view.class_name()});
  d.set("rope_theta", top_level ? theta_outside(view)
                                : Value{view.rules().theta, Origin::class_default,
                                        view.class_name() + ": fixed in the code"});
  if (!top_level)
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters"})
      if (const auto v = view.stated(key); v && truthy(v->value))
        view.report().warn("key_ignored",
                           std::string(key) + " is not read: the base is fixed in the code of " +
                               view.class_name(),
                           v->where, "remove the key");
  set.parts.push_back({"", true, std::move(d)});
  return set;
}

}  // namespace

std::optional<RopeSet> rope_by_class(const ConfigView& view,
                                     const std::vector<std::string>& layer_types,
                                     const std::string& rule) {
  if (rule == "by_layer_type") return by_layer_type(view, rope_rules(view));
  if (rule == "as_stated") return as_stated(view, layer_types);
  if (rule == "fixed_base") return fixed(view, false);
  if (rule == "top_level") return fixed(view, true);
  if (rule == "own_keys") return own_keys(view);
  if (rule == "refused") {
    view.report().error(
        "layout_not_covered",
        "positions of " + view.class_name() + " cannot be written here: " + rope_rules(view).why,
        view.where("model_type"), rope_rules(view).mend);
    return RopeSet{};
  }
  return rope_by_layer(view, layer_types, rule);
}

}  // namespace posenc::hf
