// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "model/hugging_face/rope_dictionary/rope_set.h"
#include "model/hugging_face/scaling_types.h"

namespace posenc::inline v0::hf {

Value theta_of_class(const ConfigView& view) {
  return view.of_class(view.rules().theta);
}

Value theta_of_code(const ConfigView& view) {
  return {view.rules().theta, Origin::class_default, view.class_name() + ": fixed in the code"};
}

Dict dict_of(const ConfigView& view, const Value& object) {
  Dict d;
  for (const auto& [key, value] : object.value.as_object()) {
    const bool stated = object.origin == Origin::stated;
    const std::string at = stated ? object.where + "/" + key : object.where;
    const bool user = view.report().used.count("\n" + at) != 0;
    d.set(key, {value, user ? Origin::user : object.origin, user ? "--assume" : at});
  }
  return d;
}

std::optional<Dict> dict_of(const ConfigView& view, const Value& all, const std::string& label,
                            const char* wanted) {
  const Json& object = *all.value.find(label);
  if (object.is_object())
    return dict_of(
        view, {object, all.origin, all.where + (all.origin == Origin::stated ? "/" + label : "")});
  return view.wrong_type(
      {"{} of {} must be {}, got {}", label, last_word(all.where), wanted, object},
      all.where + "/" + label, "write {\"rope_type\": ...}");
}

Stated stated_dicts(const ConfigView& view) {
  Stated s{view.stated("rope_scaling"), view.stated("rope_parameters")};
  for (auto* v : {&s.scaling, &s.parameters}) {
    if (!*v || (*v)->value.is_object()) continue;
    if (truthy((*v)->value))
      view.wrong_type({"{} must be an object with rope_type and its keys, got {}",
                       last_word((*v)->where), (*v)->value},
                      (*v)->where, "write {\"rope_type\": ..., ...} or null");
    v->reset();
  }
  if (s.scaling && !truthy(s.scaling->value)) s.scaling.reset();
  return s;
}

void not_read(const ConfigView& view, std::initializer_list<std::string_view> keys,
              const std::string& why, const std::string& fix) {
  for (const std::string_view key : keys)
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.warn("key_ignored", {"{} is not read{}", key, why}, *v, fix);
}

bool only_layer_types(const ConfigView& view, const Value& all) {
  if (!view.rules().strict_labels) return true;
  for (const auto& [key, value] : all.value.as_object())
    if (!rope_rules(view).thetas.find(key))
      return view.wrong_type(
          {"{class} takes rope_parameters by layer type only: {} is refused on loading", key},
          all.where + "/" + key, "move it into full_attention, sliding_attention");
  return true;
}

bool needs_original(const std::string& type) {
  const ScalingType* t = scaling_type(type);
  return t && t->find("original_max_position_embeddings");
}

namespace {

// The key at the top level, under the class's own name where it has one (GPT-NeoX): then the common
// one is looked at by nobody.
std::optional<Value> outside(const ConfigView& view, std::string_view common) {
  const std::string* own = view.rules().keys.find(common);
  const auto counts = view.stated(own ? *own : common);
  const auto v = own ? view.stated(common) : std::nullopt;
  if (v && !(counts && counts->value == v->value))
    view.warn("alias_not_read",
              {"{} is {} and is not read by {class}, whose key is {}{}", common, v->value, *own,
               counts ? message(" ({})", counts->value) : ", which the file lacks"},
              *v, "rename the key");
  return counts;
}

// 500000 and 500000.0 are one number.
bool same(const Json& a, const Json& b) {
  return a == b || (a.is_number() && b.is_number() && a.as_number() == b.as_number());
}

// What a reader of the dictionary alone takes for the type.
Json type_said(const Json& object) {
  for (const char* key : {"rope_type", "type"})
    if (const Json* v = object.find(key)) return *v;
  return "default";
}

// Of both dictionaries each value counts that a reader of that dictionary would take, the theta
// beside it too.
void compare_spellings(const ConfigView& view, const Stated& s) {
  if (!s.scaling || !s.parameters || !truthy(s.parameters->value)) return;
  const Json &taken = s.scaling->value, &dropped = s.parameters->value;
  std::vector<std::string> differ;
  const auto compared = [](const std::string& key) {
    return key != "rope_theta" && key != "rope_type" && key != "type";
  };
  if (!same(type_said(taken), type_said(dropped))) differ.push_back("rope_type");
  for (const auto& [key, value] : dropped.as_object())
    if (const Json* other = taken.find(key); compared(key) && !(other && same(*other, value)))
      differ.push_back(key);
  for (const auto& [key, value] : taken.as_object())
    if (compared(key) && !dropped.find(key)) differ.push_back(key);
  const Json *inside = taken.find("rope_theta"), *lost = dropped.find("rope_theta");
  if (inside || lost) {
    const Json beside = theta_outside(view).value;
    const Json counts = inside ? *inside : beside, other = lost ? *lost : beside;
    if (!same(counts, other))
      differ.push_back(message("rope_theta ({} and {})", plain(counts), plain(other)));
  }
  const std::string both =
      "the file has rope_scaling and rope_parameters; transformers uses rope_scaling and ignores "
      "rope_parameters";
  if (differ.empty())
    view.note("both_spellings", {"{}. Here they agree", both}, view.where("rope_scaling"),
              "keep one of them");
  else
    view.warn("both_spellings", {"{}. They differ in {}", both, listed(differ)},
              view.where("rope_scaling"));
}

// A dictionary stretches positions.
bool scales(const Json& dictionary) {
  const Json type = type_said(dictionary);
  return dictionary.is_object() && type != Json("default") && type != Json("proportional");
}

// An object without a type replaces the whole object of the class.
void replaces_the_class(const ConfigView& view, const Value& stated) {
  const Json& held = view.rules().rope_parameters;
  if (held.is_null() || stated.value.find("rope_type") || stated.value.find("type")) return;
  const bool empty = stated.value == Json::object();
  if (empty || scales(held))
    view.warn("missing_key",
              {"{} {}, and replaces the dictionary of {class}: {}", last_word(stated.where),
               empty ? "is empty" : "has no rope_type", held.dump()},
              stated, "state rope_type and its keys, or remove the dictionary");
}

std::optional<Value> fraction_outside(const ConfigView& view) {
  const RopeRules& rule = rope_rules(view);
  if (!rule.partial_forced.is_null()) return view.of_class(rule.partial_forced);
  const auto v = outside(view, "partial_rotary_factor");
  if (v && (view.rules().keys.find("partial_rotary_factor") || !v->value.is_null())) return v;
  if (v) return std::nullopt;  // null replaces the class's fraction, and is dropped
  // MiniMax-M2: rotary_dim / head_dim
  if (!rule.partial_from.empty())
    if (auto width = view.integer(rule.partial_from, 1, 65536))
      if (auto head = view.integer("head_dim", 1, 65536))
        return derived(static_cast<double>(width->value) / static_cast<double>(head->value),
                       width->where + " / head_dim");
  if (const Json& held = view.rules().fraction; !held.is_null()) return view.of_class(held);
  return std::nullopt;
}

void rename_type(const ConfigView& view, Dict& d, const NameMap& names) {
  const auto name = rope_type(d);
  const std::string* to = name ? names.find(*name) : nullptr;
  if (!to) return;
  const Value* old = d.find("rope_type") ? d.find("rope_type") : d.find("type");
  if (*name == "yarn" && (d.find("short_factor") || d.find("long_factor")))
    view.note("yarn_with_lists",
              {"rope_type yarn with lists means {} in {class}; other classes compute YaRN and "
               "ignore the lists",
               *to},
              *old, {"write rope_type {}", *to});
  d.set("rope_type", derived(*to, message("{} ({} means {} here)", old->where, *name, *to)));
}

// The value inside the dictionary wins over the one beside it.
void stated_twice(const ConfigView& view, const Dict& d, std::string_view key, const Value& beside,
                  const char* code) {
  const Value* inside = d.find(key);
  if (inside && inside->origin == Origin::stated && beside.origin == Origin::stated &&
      !same(inside->value, beside.value))
    view.warn(code,
              {"{} is {} inside the scaling and {} beside it: the inner value is used", key,
               plain(inside->value), plain(beside.value)},
              beside, "keep the one that is right");
}

// A class without layer types takes a dictionary by layer type for a flat one: its thetas and
// scalings are lost, also beside a list of layer_types.
void lost_theta(const ConfigView& view, const Value& all, const Value& theta) {
  if (all.value.find("rope_theta")) return;
  for (const auto& [key, inner] : all.value.as_object())
    if (const Json* lost = inner.find("rope_theta"))
      view.warn("theta_lost_v5",
                {"rope_theta {} is under {}, and {class} keeps one set of rope_parameters for all "
                 "layers: {} counts, and the scaling there does nothing",
                 plain(*lost), key, plain(theta.value)},
                all.where + "/" + key + "/rope_theta", "state rope_parameters flat",
                number_of(theta.value));
}

RopeSet flat(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  const RopeRules& rule = rope_rules(view);
  const auto all = chosen(view, set);
  const auto labels = all ? labels_of(view, all->value, layer_types) : std::vector<std::string>{};
  if (!labels.empty() && view.rules().flat_only) {
    view.wrong_type(
        "{class} keeps one set of rope_parameters for all layers, and transformers fails on "
        "one by layer type",
        *all, "state rope_type and its keys in rope_parameters itself");
    return set;
  }
  if (labels.empty())
    set.parts.push_back({"", true, all ? dict_of(view, *all) : Dict{}});
  else if (!add_nested(view, set, *all, labels))
    return set;
  const Value theta = theta_outside(view);
  if (labels.empty() && all) lost_theta(view, *all, theta);
  const auto fraction = fraction_outside(view);
  for (auto& part : set.parts) {
    if (!part.turns) continue;
    theta_beside(view, part, theta);
    part.dict.set_default("rope_theta", theta);
    if (fraction) {
      stated_twice(view, part.dict, "partial_rotary_factor", *fraction, "partial_conflict");
      part.dict.set_default("partial_rotary_factor", *fraction);
    }
    rename_type(view, part.dict, rule.rename);
    complete(view, part.dict, set.nested);
    rename_type(view, part.dict, rule.rename_late);
    for (const auto& [from, to] : rule.aliases.pairs)
      if (const Value* v = part.dict.find(from)) part.dict.set_default(to, *v);
  }
  return set;
}

RopeSet refused(const ConfigView& view, const std::vector<std::string>&) {
  view.error("layout_not_covered",
             {"positions of {class} cannot be written here: {}", rope_rules(view).why},
             view.where("model_type"), rope_rules(view).fix);
  return {};
}

}  // namespace

Value theta_outside(const ConfigView& view) {
  const auto v = outside(view, "rope_theta");
  return v ? *v : theta_of_class(view);
}

void theta_beside(const ConfigView& view, RopeSet::Part& part, const Value& beside) {
  if (beside.origin != Origin::stated && beside.origin != Origin::user) return;
  part.theta_beside = true;
  stated_twice(view, part.dict, "rope_theta", beside, "both_spellings");
}

void complete(const ConfigView& view, Dict& d, bool nested) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const Value* type = d.find("type");
  d.set_default("rope_type", type ? *type : view.of_class("default"));
  const auto name = rope_type(d);
  if (!name || !needs_original(*name)) return;
  if (!nested) {
    auto beside = view.stated(kOriginal);
    if (!beside && rope_rules(view).fixed_original) beside = view.value(kOriginal);
    if (beside) {
      d.set(kOriginal, *beside);
      return;
    }
  }
  if (const auto v = view.value("max_position_embeddings"); v && !v->value.is_null())
    d.set_default(kOriginal, {v->value, v->origin == Origin::user ? v->origin : Origin::derived,
                              message("max_position_embeddings ({}) instead", v->where)});
}

std::vector<std::string> labels_of(const ConfigView& view, const Json& object,
                                   const std::vector<std::string>& layer_types) {
  std::vector<std::string> found;
  // Only a class that has layer types reads nested dictionaries.
  if (!view.rules().typed || (view.rules().labels_if_typed && !view.stated("layer_types")))
    return found;
  for (const auto& [key, value] : object.as_object())
    if (contains(layer_types, key)) found.push_back(key);
  return found;
}

std::optional<Value> chosen(const ConfigView& view, RopeSet& set) {
  const Stated s = stated_dicts(view);
  compare_spellings(view, s);
  if (s.scaling && !rope_rules(view).ignores_scaling) {
    replaces_the_class(view, *s.scaling);
    set.spelling = "rope_scaling";
    return s.scaling;
  }
  if (s.scaling)
    not_read(view, {"rope_scaling"}, " by " + view.class_name(), "write rope_parameters");
  if (s.parameters) {
    replaces_the_class(view, *s.parameters);
    set.spelling = "rope_parameters";
    return s.parameters;
  }
  const Json& held = view.rules().rope_parameters;
  if (held.is_null()) return std::nullopt;
  if (scales(held))
    view.warn("missing_key",
              {"the file states no scaling, so {class} uses its own, {}", held.dump()},
              view.where("rope_parameters"), "state rope_parameters");
  set.spelling = "class";
  return view.of_class(held);
}

bool add_nested(const ConfigView& view, RopeSet& set, const Value& all,
                const std::vector<std::string>& labels) {
  set.nested = true;
  for (const auto& label : labels) {
    const bool null = all.value.find(label)->is_null();
    auto dict = null ? Dict{} : dict_of(view, all, label);
    if (!dict) return false;
    set.parts.push_back({label, !null, std::move(*dict)});
  }
  for (const auto& [key, value] : all.value.as_object())
    if (all.origin == Origin::stated && !contains(labels, key) && key != "rope_theta" &&
        key != "rope_type")
      view.warn("key_ignored", {"{} is beside the layer types and is not read there", key},
                all.where + "/" + key, "move it into each layer type");
  return true;
}

const RopeSet::Part* RopeSet::find(const std::string& layer_type) const {
  for (const Part& p : parts)
    if (!nested || p.label == layer_type) return &p;
  return nullptr;
}

std::optional<std::string> rope_type(const Dict& d) {
  const Value* v = d.find("rope_type");
  if (!v) v = d.find("type");
  if (!v || !v->value.is_string()) return std::nullopt;
  return v->value.as_string();
}

RopeSet standardise_rope(const ConfigView& view, const std::vector<std::string>& layer_types) {
  static constexpr std::pair<std::string_view, RopeRule*> kRules[] = {
      {"own_keys", own_keys},
      {"by_layer_type", by_layer_type},
      {"as_stated", as_stated},
      {"fixed_base", fixed_base},
      {"top_level", top_level},
      {"main_and_compress", main_and_compress},
      {"lists_of_layers", lists_of_layers},
      {"thetas_of_kinds", thetas_of_kinds},
      {"filled_in", filled_in},
      {"named_types", named_types},
      {"refused", refused},
  };
  for (const auto& [name, rule] : kRules)
    if (name == rope_rules(view).rule) return rule(view, layer_types);
  return flat(view, layer_types);
}

}  // namespace posenc::v0::hf
