// SPDX-License-Identifier: Apache-2.0
// Classes that make one dictionary a layer type out of keys of their own: DeepSeek-V4, Step-3.5,
// dots3-note, NeoMME, Cohere Compass. What transformers 5.23 makes of them (configuration_*.py of
// each), found by reading and running.
#include <algorithm>

#include "model/hugging_face/rope_dictionary/parts.h"

namespace posenc::hf {
namespace {

Value set_by_class(const ConfigView& view, Json value) {
  return {std::move(value), Origin::class_default, view.class_name()};
}

void set_default_type(const ConfigView& view, Dict& d) {
  d.set("rope_type", set_by_class(view, "default"));
}

void not_read(const ConfigView& view, const char* key, const std::string& what) {
  if (const auto v = view.stated(key); v && truthy(v->value))
    view.report().warn("key_ignored",
                       std::string(key) + " is not read by " + view.class_name() + ": " + what,
                       v->where, "state rope_parameters by layer type");
}

// qk_rope_head_dim / head_dim, or 64 / 512.
Value deepseek_fraction(const ConfigView& view) {
  if (const auto v = view.stated("partial_rotary_factor"); v && !v->value.is_null()) return *v;
  const auto width = view.stated("qk_rope_head_dim");
  const auto head = view.integer("head_dim", 1, 65536);
  if (width && whole_number(width->value) && head)
    return {width->value.as_number() / static_cast<double>(head->value), Origin::derived,
            width->where + " / head_dim"};
  return set_by_class(view, 64.0 / 512.0);
}

// DeepSeek-V4: `main` turns the layers that only slide, `compress` those with compressed keys.
// A flat dictionary (YaRN) goes to compress, whose gain then stays 1, and the thetas are keys of
// their own.
RopeSet main_and_compress(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  const auto all = chosen(view, set);
  const Json* main = all ? all->value.find("main") : nullptr;
  const Json* compress = all ? all->value.find("compress") : nullptr;
  Dict plain, packed;
  const auto theta = view.value("rope_theta");
  const Value outer = theta ? *theta : set_by_class(view, view.rules().theta);
  if (main && compress && main->is_object() && compress->is_object()) {
    const bool stated = all->origin == Origin::stated;
    plain = dict_of(view, *main, all->where + (stated ? "/main" : ""), all->origin);
    packed = dict_of(view, *compress, all->where + (stated ? "/compress" : ""), all->origin);
    for (Dict* d : {&plain, &packed}) {
      d->set_default("rope_theta", outer);
      if (const auto f = view.stated("partial_rotary_factor"); f && !f->value.is_null())
        d->set_default("partial_rotary_factor", *f);
      complete(view, *d, true);
    }
  } else {
    if (all) packed = dict_of(view, all->value, all->where, all->origin);
    if (const Value* inner = packed.find("rope_theta"); inner && inner->origin == Origin::stated)
      view.report().warn("key_ignored",
                         "rope_theta of a flat dictionary is not read by " + view.class_name() +
                             ": rope_theta and compress_rope_theta beside it count",
                         inner->where, "state rope_parameters by main and compress");
    set_default_type(view, plain);
    plain.set("rope_theta", outer);
    const auto far = view.value("compress_rope_theta");
    packed.set("rope_theta", far ? *far : set_by_class(view, 160000.0));
    for (Dict* d : {&plain, &packed}) d->set("partial_rotary_factor", deepseek_fraction(view));
    complete(view, packed, true);
    if (rope_type(packed) == "yarn")
      packed.set_default("attention_factor", set_by_class(view, 1.0));
  }
  set.nested = true;
  for (const auto& type : layer_types)
    set.parts.push_back({type, true, type == "sliding_attention" ? plain : packed});
  return set;
}

// One number for all layers, or a list with one a layer: the first layer of a type speaks for it.
std::optional<Value> of_layer(const ConfigView& view, const Value& v, Index layer) {
  if (!v.value.is_array()) return v;
  const auto& list = v.value.as_array();
  if (layer >= static_cast<Index>(list.size())) {
    view.report().error("layer_types_length",
                        "one entry a layer is needed, and layer " + std::to_string(layer) +
                            " has none of " + std::to_string(list.size()),
                        v.where, "state one number a layer");
    return std::nullopt;
  }
  return Value{list[static_cast<std::size_t>(layer)], v.origin,
               v.where + "/" + std::to_string(layer)};
}

// Step-3.5: rope_theta and partial_rotary_factors a layer; rope_scaling reaches full layers only.
RopeSet lists_of_layers(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  set.nested = true;
  const Stated s = stated_dicts(view);
  const Json* given = s.parameters ? &s.parameters->value : nullptr;
  const bool by_type = given && given->is_object() &&
                       std::all_of(layer_types.begin(), layer_types.end(), [&](const auto& type) {
                         const Json* part = given->find(type);
                         return part && part->is_object();
                       });
  const auto theta = view.stated("rope_theta"), fractions = view.stated("partial_rotary_factors");
  const auto listed = view.stated("layer_types");
  for (const auto& type : layer_types) {
    RopeSet::Part part{type, true, {}};
    if (by_type) {
      part.dict = dict_of(view, given->at(type), s.parameters->where + "/" + type, Origin::stated);
      part.dict.set_default("rope_theta", set_by_class(view, view.rules().theta));
      complete(view, part.dict, true);
      set.parts.push_back(std::move(part));
      continue;
    }
    Index first = 0;
    if (listed && listed->value.is_array())
      for (const Json& name : listed->value.as_array()) {
        if (name == Json(type)) break;
        ++first;
      }
    set_default_type(view, part.dict);
    const auto own = of_layer(view, theta ? *theta : set_by_class(view, view.rules().theta), first);
    if (!own) return RopeSet{};
    part.dict.set("rope_theta", *own);
    if (fractions && truthy(fractions->value)) {
      const auto f = of_layer(view, *fractions, first);
      if (!f) return RopeSet{};
      part.dict.set("partial_rotary_factor", *f);
    }
    if (s.scaling && s.scaling->value.is_object() && type == "full_attention") {
      const Dict scaling = dict_of(view, s.scaling->value, s.scaling->where, Origin::stated);
      for (const auto& [key, value] : scaling.items()) part.dict.set(key, value);
    }
    set.parts.push_back(std::move(part));
  }
  if (!by_type && given && truthy(*given))
    view.report().warn("key_ignored",
                       "rope_parameters is not read by " + view.class_name() +
                           " unless it has an entry for each layer type",
                       s.parameters->where, "state rope_parameters by layer type");
  return set;
}

// dots3-note: thetas by kind of layer; the turned width is qk_rope_head_dim (swa_qk_rope_head_dim
// on sliding layers), whatever a fraction says.
RopeSet thetas_of_kinds(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  set.nested = true;
  const Stated s = stated_dicts(view);
  const bool own = s.parameters && s.parameters->value.is_object();
  const Value* given = own                                     ? &*s.parameters
                       : s.scaling && truthy(s.scaling->value) ? &*s.scaling
                                                               : nullptr;
  if (s.scaling && truthy(s.scaling->value)) given = &*s.scaling;  // replaces rope_parameters
  const auto labels =
      given ? labels_of(view, given->value, layer_types) : std::vector<std::string>{};
  const auto top = view.stated("rope_theta"), sliding = view.stated("swa_rope_theta");
  for (const auto& type : layer_types) {
    RopeSet::Part part{type, true, {}};
    const bool slides = type == "sliding_attention";
    const Value outer = top ? *top : set_by_class(view, view.rules().theta);
    if (given && labels.empty()) {
      part.dict = dict_of(view, given->value, given->where, Origin::stated);
    } else if (given) {
      const Json* mine = given->value.find(type);
      if (!mine) continue;  // refused where the layer asks for it
      if (!mine->is_object()) {
        view.report().error("wrong_type", "must be an object, got " + shown(*mine),
                            given->where + "/" + type, "write {\"rope_type\": ...}");
        return RopeSet{};
      }
      part.dict = dict_of(view, *mine, given->where + "/" + type, Origin::stated);
    } else {
      part.dict.set("rope_theta", !slides   ? outer
                                  : sliding ? *sliding
                                            : set_by_class(view, 50000.0));
    }
    part.dict.set_default("rope_theta", outer);
    complete(view, part.dict, true);
    part.dict.set("partial_rotary_factor",
                  {1.0, Origin::derived,
                   "the whole " + std::string(slides ? "swa_" : "") + "qk_rope_head_dim"});
    set.parts.push_back(std::move(part));
  }
  return set;
}

}  // namespace

bool only_layer_types(const ConfigView& view, const Value& all, const Json& known) {
  if (!view.rules().strict_labels || !all.value.is_object()) return true;
  for (const auto& [key, value] : all.value.as_object())
    if (!known.find(key)) {
      view.report().error("wrong_type",
                          view.class_name() + " takes rope_parameters by layer type only: " + key +
                              " is refused on loading",
                          all.where + "/" + key, "move it into full_attention, sliding_attention");
      return false;
    }
  return true;
}

namespace {

// NeoMME: missing values of each layer type are the class's.
RopeSet filled_in(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  set.nested = true;
  const Json& held = rope_rules(view).thetas;
  const Json& fractions = rope_rules(view).fractions;
  const Stated s = stated_dicts(view);
  for (const auto* dict : {&s.parameters, &s.scaling})
    if (*dict && !only_layer_types(view, **dict, held)) return RopeSet{};
  not_read(view, "rope_scaling", "only rope_parameters is");
  const auto top = view.stated("rope_theta");
  for (const auto& type : layer_types) {
    RopeSet::Part part{type, true, {}};
    const Json* mine =
        s.parameters && s.parameters->value.is_object() ? s.parameters->value.find(type) : nullptr;
    if (mine && !mine->is_object()) {
      view.report().error("wrong_type", "must be an object, got " + shown(*mine),
                          s.parameters->where + "/" + type, "write {\"rope_type\": ...}");
      return RopeSet{};
    }
    if (mine) part.dict = dict_of(view, *mine, s.parameters->where + "/" + type, Origin::stated);
    const Json* theta = held.find(type);
    const Json* fraction = fractions.find(type);
    if (!theta || !fraction) continue;
    if (!part.dict.find("rope_type")) set_default_type(view, part.dict);
    part.dict.set_default("rope_theta",
                          top && !top->value.is_null() ? *top : set_by_class(view, *theta));
    part.dict.set_default("partial_rotary_factor", set_by_class(view, *fraction));
    complete(view, part.dict, true);
    set.parts.push_back(std::move(part));
  }
  return set;
}

// Cohere Compass: rope_parameters must name every layer type; null is no rotary; keys beside the
// types are dropped.
RopeSet named_types(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  set.nested = true;
  const Stated s = stated_dicts(view);
  for (const char* key : {"rope_scaling", "rope_theta", "partial_rotary_factor"})
    not_read(view, key, "only rope_parameters by layer type is");
  const Json* all =
      s.parameters && s.parameters->value.is_object() ? &s.parameters->value : nullptr;
  set.spelling = all ? "rope_parameters" : "";
  for (const auto& type : layer_types) {
    const Json* mine = all ? all->find(type) : nullptr;
    if (!mine) continue;
    RopeSet::Part part{type, !mine->is_null(), {}};
    if (part.turns) {
      if (!mine->is_object()) {
        view.report().error("wrong_type", "must be an object or null, got " + shown(*mine),
                            s.parameters->where + "/" + type, "write {\"rope_type\": ...}");
        return RopeSet{};
      }
      part.dict = dict_of(view, *mine, s.parameters->where + "/" + type, Origin::stated);
      complete(view, part.dict, true);
    }
    set.parts.push_back(std::move(part));
  }
  if (set.parts.empty())
    view.report().error("missing_key",
                        view.class_name() + " reads rope_parameters by layer type, and none of " +
                            "the model's layer types has an entry",
                        view.where("rope_parameters"),
                        "state rope_parameters/full_attention/rope_theta, or null for no rotary");
  return set;
}

}  // namespace

std::optional<RopeSet> rope_by_layer(const ConfigView& view,
                                     const std::vector<std::string>& layer_types,
                                     const std::string& rule) {
  if (rule == "main_and_compress") return main_and_compress(view, layer_types);
  if (rule == "lists_of_layers") return lists_of_layers(view, layer_types);
  if (rule == "thetas_of_kinds") return thetas_of_kinds(view, layer_types);
  if (rule == "filled_in") return filled_in(view, layer_types);
  if (rule == "named_types") return named_types(view, layer_types);
  return std::nullopt;
}

}  // namespace posenc::hf
