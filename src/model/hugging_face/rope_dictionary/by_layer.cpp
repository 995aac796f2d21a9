// SPDX-License-Identifier: Apache-2.0
// Classes that make one dictionary a layer type out of keys of their own: DeepSeek-V4, Step-3.5,
// dots3-note, NeoMME, Cohere Compass. What transformers 5.23 makes of them (configuration_*.py of
// each), found by reading and running.
#include <algorithm>

#include "model/hugging_face/rope_dictionary/rope_set.h"

namespace posenc::inline v0::hf {
namespace {

constexpr const char* kByLayerType = "state rope_parameters by layer type";

// qk_rope_head_dim / head_dim, or 64 / 512.
Value deepseek_fraction(const ConfigView& view) {
  if (const auto v = view.stated_value("partial_rotary_factor")) return *v;
  const auto width = view.stated("qk_rope_head_dim");
  const auto head = view.integer("head_dim", 1, 65536);
  if (width && whole_number(width->value) && head)
    return derived(width->value.as_number() / static_cast<double>(head->value),
                   width->where + " / head_dim");
  return view.of_class<Json>(64.0 / 512.0);
}

// One number for all layers, or a list with one a layer: the first layer of a type speaks for it.
std::optional<Value> of_layer(const ConfigView& view, const Value& v, std::size_t layer) {
  if (!v.value.is_array()) return v;
  const auto& list = v.value.as_array();
  if (layer < list.size())
    return Value{list[layer], v.origin, v.where + "/" + std::to_string(layer)};
  return view.error(
      "layer_types_length",
      {"one entry a layer is needed, and layer {} has none of {}", layer, list.size()}, v,
      "state one number a layer");
}

// The first layer of the type, by layer_types.
std::size_t first_layer(const ConfigView& view, const std::string& type) {
  const auto listed = view.stated("layer_types");
  if (!listed || !listed->value.is_array()) return 0;
  const auto& list = listed->value.as_array();
  return static_cast<std::size_t>(std::ranges::find(list, Json(type)) - list.begin());
}

// One part a layer type that `make` fills; none at all where it fails. A part that it leaves empty
// is left out: the layer that asks for it refuses it.
template <class Make>
RopeSet by_type(const std::vector<std::string>& layer_types, const Make& make) {
  RopeSet set;
  set.nested = true;
  for (const auto& type : layer_types) {
    RopeSet::Part part{type, true, {}};
    if (!make(type, part)) return {};
    if (!part.turns || !part.dict.items().empty()) set.parts.push_back(std::move(part));
  }
  return set;
}

}  // namespace

// DeepSeek-V4: `main` turns the layers that only slide, `compress` those with compressed keys.
// A flat dictionary (YaRN) goes to compress, whose gain then stays 1, and the thetas are keys of
// their own.
RopeSet main_and_compress(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  const auto all = chosen(view, set);
  const Json* main = all ? all->value.find("main") : nullptr;
  const Json* compress = all ? all->value.find("compress") : nullptr;
  Dict sliding, packed;
  const Value outer = view.value("rope_theta").value_or(theta_of_class(view));
  if (main && compress && main->is_object() && compress->is_object()) {
    sliding = *dict_of(view, *all, "main");
    packed = *dict_of(view, *all, "compress");
    for (Dict* d : {&sliding, &packed}) {
      d->set_default("rope_theta", outer);
      if (const auto f = view.stated_value("partial_rotary_factor"))
        d->set_default("partial_rotary_factor", *f);
      complete(view, *d, true);
    }
  } else {
    if (all) packed = dict_of(view, *all);
    if (const Value* inner = packed.find("rope_theta"); inner && inner->origin == Origin::stated)
      view.warn("key_ignored",
                "rope_theta of a flat dictionary is not read by {class}: rope_theta and "
                "compress_rope_theta beside it count",
                *inner, "state rope_parameters by main and compress");
    sliding.set("rope_type", view.of_class("default"));
    sliding.set("rope_theta", outer);
    packed.set("rope_theta",
               view.value("compress_rope_theta").value_or(view.of_class<Json>(160000.0)));
    for (Dict* d : {&sliding, &packed}) d->set("partial_rotary_factor", deepseek_fraction(view));
    complete(view, packed, true);
    if (rope_type(packed) == "yarn")
      packed.set_default("attention_factor", view.of_class<Json>(1.0));
  }
  set.nested = true;
  for (const auto& type : layer_types)
    set.parts.push_back({type, true, type == "sliding_attention" ? sliding : packed});
  return set;
}

// Step-3.5: rope_theta and partial_rotary_factors a layer; rope_scaling reaches full layers only.
RopeSet lists_of_layers(const ConfigView& view, const std::vector<std::string>& layer_types) {
  const Stated s = stated_dicts(view);
  const bool typed = s.parameters && std::ranges::all_of(layer_types, [&](const auto& type) {
                       const Json* part = s.parameters->value.find(type);
                       return part && part->is_object();
                     });
  const Value theta = view.stated("rope_theta").value_or(theta_of_class(view));
  const auto fractions = view.stated("partial_rotary_factors");
  const RopeSet set = by_type(layer_types, [&](const std::string& type, RopeSet::Part& part) {
    if (typed) {
      part.dict = *dict_of(view, *s.parameters, type);
      part.dict.set_default("rope_theta", theta_of_class(view));
      complete(view, part.dict, true);
      return true;
    }
    const std::size_t first = first_layer(view, type);
    part.dict.set("rope_type", view.of_class("default"));
    const auto own = of_layer(view, theta, first);
    if (!own) return false;
    part.dict.set("rope_theta", *own);
    if (fractions && truthy(fractions->value)) {
      const auto f = of_layer(view, *fractions, first);
      if (!f) return false;
      part.dict.set("partial_rotary_factor", *f);
    }
    if (s.scaling && type == "full_attention") {
      const Dict scaling = dict_of(view, *s.scaling);
      for (const auto& [key, value] : scaling.items()) part.dict.set(key, value);
    }
    return true;
  });
  if (!typed && s.parameters && !set.parts.empty())
    not_read(view, {"rope_parameters"},
             " by " + view.class_name() + " unless it has an entry for each layer type",
             kByLayerType);
  return set;
}

// dots3-note: thetas by kind of layer; the turned width is qk_rope_head_dim (swa_qk_rope_head_dim
// on sliding layers), whatever a fraction says.
RopeSet thetas_of_kinds(const ConfigView& view, const std::vector<std::string>& layer_types) {
  const Stated s = stated_dicts(view);
  const auto all = s.scaling ? s.scaling : s.parameters;  // the one replaces the other
  const auto labels = all ? labels_of(view, all->value, layer_types) : std::vector<std::string>{};
  const Value outer = view.stated("rope_theta").value_or(theta_of_class(view));
  return by_type(layer_types, [&](const std::string& type, RopeSet::Part& part) {
    const bool slides = type == "sliding_attention";
    if (all && !labels.empty() && !all->value.find(type)) return true;
    if (!all) {
      part.dict.set(
          "rope_theta",
          slides ? view.stated("swa_rope_theta").value_or(view.of_class<Json>(50000.0)) : outer);
    } else {
      const auto dict =
          labels.empty() ? dict_of(view, *all) : dict_of(view, *all, type, "an object");
      if (!dict) return false;
      part.dict = *dict;
    }
    part.dict.set_default("rope_theta", outer);
    complete(view, part.dict, true);
    part.dict.set("partial_rotary_factor", derived(1.0, slides ? "the whole swa_qk_rope_head_dim"
                                                               : "the whole qk_rope_head_dim"));
    return true;
  });
}

// NeoMME: missing values of each layer type are the class's.
RopeSet filled_in(const ConfigView& view, const std::vector<std::string>& layer_types) {
  const Stated s = stated_dicts(view);
  for (const auto* dict : {&s.parameters, &s.scaling})
    if (*dict && !only_layer_types(view, **dict)) return {};
  not_read(view, {"rope_scaling"}, " by " + view.class_name() + ": only rope_parameters is",
           kByLayerType);
  const auto top = view.stated_value("rope_theta");
  return by_type(layer_types, [&](const std::string& type, RopeSet::Part& part) {
    if (s.parameters && s.parameters->value.find(type)) {
      const auto dict = dict_of(view, *s.parameters, type, "an object");
      if (!dict) return false;
      part.dict = *dict;
    }
    const TypeRules* held = rope_rules(view).thetas.find(type);
    if (!held) {
      part.dict = {};
      return true;
    }
    part.dict.set_default("rope_type", view.of_class("default"));
    part.dict.set_default("rope_theta", top ? *top : view.of_class(held->held));
    part.dict.set_default("partial_rotary_factor", view.of_class(held->fraction));
    complete(view, part.dict, true);
    return true;
  });
}

// Cohere Compass: rope_parameters must name every layer type; null is no rotary; keys beside the
// types are dropped.
RopeSet named_types(const ConfigView& view, const std::vector<std::string>& layer_types) {
  const Stated s = stated_dicts(view);
  not_read(view, {"rope_scaling", "rope_theta", "partial_rotary_factor"},
           " by " + view.class_name() + ": only rope_parameters by layer type is", kByLayerType);
  bool fine = true;
  RopeSet set = by_type(layer_types, [&](const std::string& type, RopeSet::Part& part) {
    const Json* mine = s.parameters ? s.parameters->value.find(type) : nullptr;
    part.turns = !(mine && mine->is_null());
    if (!mine || mine->is_null()) return true;
    const auto dict = dict_of(view, *s.parameters, type);
    fine = dict.has_value();
    if (fine) part.dict = *dict;
    if (fine) complete(view, part.dict, true);
    return fine;
  });
  if (!fine) return set;
  set.spelling = s.parameters ? "rope_parameters" : "";
  if (set.parts.empty())
    view.error("missing_key",
               "{class} reads rope_parameters by layer type, but none of the model's layer types "
               "has an entry",
               view.where("rope_parameters"),
               "state rope_parameters/full_attention/rope_theta, or null for no rotary");
  return set;
}

}  // namespace posenc::v0::hf
