// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/rope_dictionary/rope_set.h"

#include <algorithm>

#include "model/hugging_face/rope_dictionary/parts.h"
#include "model/hugging_face/rotary_definition/scaling_keys.h"

namespace posenc::hf {

const RopeRules& rope_rules(const ConfigView& view) {
  static const RopeRules common;
  return view.rules().rope ? *view.rules().rope : common;
}

Dict dict_of(const ConfigView& view, const Json& object, const std::string& place, Origin origin) {
  Dict d;
  for (const auto& [key, value] : object.as_object()) {
    const std::string at = origin == Origin::stated ? place + "/" + key : place;
    const bool user = view.report().used.count("\n" + at) != 0;
    d.set(key, {value, user ? Origin::user : origin, user ? "--assume" : at});
  }
  return d;
}

Stated stated_dicts(const ConfigView& view) {
  Stated s{view.stated("rope_scaling"), view.stated("rope_parameters")};
  for (auto* v : {&s.scaling, &s.parameters}) {
    if (!*v || (*v)->value.is_object()) continue;
    if (truthy((*v)->value))
      view.report().error(
          "wrong_type", "must be an object with rope_type and its keys, got " + shown((*v)->value),
          (*v)->where, "write {\"rope_type\": ..., ...} or null");
    if (!(*v)->value.is_null() || truthy((*v)->value)) v->reset();
  }
  return s;
}

namespace {

// The class has a key of its own for it (GPT-NeoX): the common one is looked at by nobody.
void common_name_unread(const ConfigView& view, std::string_view common, const std::string& own,
                        const std::optional<Value>& counts) {
  const auto v = view.stated(common);
  if (!v || (counts && counts->value == v->value)) return;
  view.report().warn("alias_not_read",
                     std::string(common) + " is " + shown(v->value) + " and is not read by " +
                         view.class_name() + ", whose key is " + own +
                         (counts ? " (" + shown(counts->value) + ")" : ", which the file lacks"),
                     v->where, "rename the key");
}

// The class's own name of theta or of the fraction; none when it has the common one.
std::optional<std::string> own_key(const ConfigView& view, std::string_view of) {
  const std::optional<OwnKeys>& keys = view.rules().keys;
  const std::string name = !keys ? "" : of == "theta" ? keys->theta : keys->partial;
  return name.empty() ? std::nullopt : std::optional<std::string>(name);
}

}  // namespace

Value theta_outside(const ConfigView& view) {
  const auto own = own_key(view, "theta");
  const auto v = view.stated(own ? *own : "rope_theta");
  if (own) common_name_unread(view, "rope_theta", *own, v);
  return v ? *v : Value{view.rules().theta, Origin::class_default, view.class_name()};
}

std::string plain(const Json& j) {
  const auto whole = whole_number(j);
  return whole ? std::to_string(*whole) : shown(j);
}

namespace {

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
  if (!s.scaling || !s.parameters || !truthy(s.scaling->value) || !truthy(s.parameters->value))
    return;
  const Json &taken = s.scaling->value, &dropped = s.parameters->value;
  std::string differ;
  const auto differs = [&](const std::string& what) {
    differ += (differ.empty() ? "" : ", ") + what;
  };
  if (!same(type_said(taken), type_said(dropped))) differs("rope_type");
  for (const auto& [key, value] : dropped.as_object()) {
    if (key == "rope_theta" || key == "rope_type" || key == "type") continue;
    if (const Json* other = taken.find(key); !other || !same(*other, value)) differs(key);
  }
  for (const auto& [key, value] : taken.as_object())
    if (key != "rope_theta" && key != "rope_type" && key != "type" && !dropped.find(key))
      differs(key);
  const Json *inside = taken.find("rope_theta"), *lost = dropped.find("rope_theta");
  if (inside || lost) {
    const Json outside = theta_outside(view).value;
    const Json counts = inside ? *inside : outside, other = lost ? *lost : outside;
    if (!same(counts, other))
      differs("rope_theta (" + plain(counts) + " and " + plain(other) + ")");
  }
  const std::string both =
      "the file has rope_scaling and rope_parameters; transformers takes "
      "rope_scaling whole and drops rope_parameters";
  if (differ.empty())
    view.report().note("both_spellings", both + ". Here they agree", view.where("rope_scaling"),
                       "keep one of them");
  else
    view.report().warn("both_spellings", both + ". They differ in " + differ,
                       view.where("rope_scaling"));
}

std::optional<Value> fraction_outside(const ConfigView& view) {
  if (const Json& forced = rope_rules(view).partial_forced; !forced.is_null())
    return Value{forced, Origin::class_default, view.class_name()};
  const auto own = own_key(view, "partial");
  const auto v = view.stated(own ? *own : "partial_rotary_factor");
  if (own) common_name_unread(view, "partial_rotary_factor", *own, v);
  if (v && (own || !v->value.is_null())) return v;
  if (v) return std::nullopt;  // null stands in the place of the class's fraction, and is dropped
  // MiniMax-M2: rotary_dim / head_dim
  if (const std::string& from = rope_rules(view).partial_from; !from.empty())
    if (auto width = view.integer(from, 1, 65536))
      if (auto head = view.integer("head_dim", 1, 65536))
        return Value{static_cast<double>(width->value) / static_cast<double>(head->value),
                     Origin::derived, width->where + " / head_dim"};
  if (const Json& held = view.rules().fraction; !held.is_null())
    return Value{held, Origin::class_default, view.class_name()};
  return std::nullopt;
}

// What stands in for a missing original_max_position_embeddings.
std::optional<Value> maximum_as_original(const ConfigView& view) {
  const auto v = view.value("max_position_embeddings");
  if (!v || v->value.is_null()) return std::nullopt;
  return Value{v->value, v->origin == Origin::user ? Origin::user : Origin::derived,
               "max_position_embeddings (" + v->where + ") stands in"};
}

}  // namespace

bool needs_original(const std::string& type) {
  const ScalingType* t = scaling_type(type);
  return t && t->find("original_max_position_embeddings");
}

void complete(const ConfigView& view, Dict& d, bool nested) {
  const Value* type = d.find("type");
  d.set_default("rope_type",
                type ? *type : Value{"default", Origin::class_default, view.class_name()});
  const auto name = rope_type(d);
  if (!name || !needs_original(*name)) return;
  if (!nested) {
    auto outside = view.stated("original_max_position_embeddings");
    if (!outside && rope_rules(view).fixed_original)
      outside = view.value("original_max_position_embeddings");
    if (outside) {
      d.set("original_max_position_embeddings", *outside);
      return;
    }
  }
  if (auto stand_in = maximum_as_original(view))
    d.set_default("original_max_position_embeddings", *stand_in);
}

namespace {

void rename_type(const ConfigView& view, Dict& d, const NameMap& names) {
  const auto name = rope_type(d);
  const std::string* to = name ? names.find(*name) : nullptr;
  if (!to) return;
  const Value* old = d.find("rope_type") ? d.find("rope_type") : d.find("type");
  if (*name == "yarn" && (d.find("short_factor") || d.find("long_factor")))
    view.report().note("yarn_with_lists",
                       "rope_type yarn with lists is " + *to + " for " + view.class_name() +
                           "; other classes compute YaRN and ignore the lists",
                       old->where, "write rope_type " + *to);
  d.set("rope_type",
        {*to, Origin::derived, old->where + " (" + *name + " means " + *to + " here)"});
}

}  // namespace

std::vector<std::string> labels_of(const ConfigView& view, const Json& object,
                                   const std::vector<std::string>& layer_types) {
  // Only a class that has layer types reads nested dictionaries.
  const bool typed =
      view.rules().typed && (!view.rules().labels_if_typed || view.stated("layer_types"));
  std::vector<std::string> known = typed ? layer_types : std::vector<std::string>{};
  for (const std::string& label : rope_rules(view).labels) known.push_back(label);
  std::vector<std::string> found;
  for (const auto& [key, value] : object.as_object())
    if (std::find(known.begin(), known.end(), key) != known.end()) found.push_back(key);
  return found;
}

std::optional<Value> chosen(const ConfigView& view, RopeSet& set) {
  const Stated s = stated_dicts(view);
  compare_spellings(view, s);
  if (rope_rules(view).ignores_scaling && s.scaling && truthy(s.scaling->value)) {
    view.report().warn("key_ignored", "rope_scaling is not read by " + view.class_name(),
                       s.scaling->where, "write rope_parameters");
  } else if (s.scaling && truthy(s.scaling->value)) {
    set.spelling = "rope_scaling";
    return s.scaling;
  }
  if (s.parameters && s.parameters->value.is_object()) {
    set.spelling = "rope_parameters";
    return s.parameters;
  }
  if (const Json& held = view.rules().rope_parameters; !held.is_null()) {
    set.spelling = "class";
    return Value{held, Origin::class_default, view.class_name()};
  }
  return std::nullopt;
}

bool add_nested(const ConfigView& view, RopeSet& set, const Value& all,
                const std::vector<std::string>& labels) {
  set.nested = true;
  for (const auto& label : labels) {
    const Json& object = *all.value.find(label);
    RopeSet::Part part{label, true, {}};
    if (object.is_null()) {
      part.turns = false;
    } else if (!object.is_object()) {
      view.report().error("wrong_type", "must be an object or null, got " + shown(object),
                          all.where + "/" + label, "write {\"rope_type\": ...}");
      return false;
    } else {
      part.dict = dict_of(
          view, object, all.where + (all.origin == Origin::stated ? "/" + label : ""), all.origin);
    }
    set.parts.push_back(std::move(part));
  }
  for (const auto& [key, value] : all.value.as_object())
    if (std::find(labels.begin(), labels.end(), key) == labels.end() &&
        all.origin == Origin::stated && key != "rope_theta" && key != "rope_type")
      view.report().warn("key_ignored",
                         key + " stands beside the layer types and is not read there",
                         all.where + "/" + key, "move it into each layer type");
  return true;
}

namespace {

// The value inside the dictionary wins over the one beside it.
void stated_twice(const ConfigView& view, const Dict& d, std::string_view key, const Value& outside,
                  const char* code) {
  const Value* inside = d.find(key);
  if (!inside || inside->origin != Origin::stated || outside.origin != Origin::stated ||
      same(inside->value, outside.value))
    return;
  view.report().warn(code,
                     std::string(key) + " is " + plain(inside->value) + " inside and " +
                         plain(outside.value) + " beside: the inner one counts",
                     outside.where, "keep the one that is right");
}

}  // namespace

void theta_beside(const ConfigView& view, RopeSet::Part& part, const Value& outside) {
  if (outside.origin != Origin::stated && outside.origin != Origin::user) return;
  part.theta_beside = true;
  stated_twice(view, part.dict, "rope_theta", outside, "both_spellings");
}

namespace {

// A class without layer types takes a dictionary by layer type for a flat one: its thetas and
// scalings are lost, also beside a list of layer_types.
void lost_theta(const ConfigView& view, const Value& all, const Value& theta) {
  for (const auto& [key, inner] : all.value.as_object()) {
    const Json* lost = inner.is_object() ? inner.find("rope_theta") : nullptr;
    if (!lost || all.value.find("rope_theta")) continue;
    view.report().warn(
        "theta_lost_v5",
        "rope_theta " + plain(*lost) + " stands under " + key + ", and " + view.class_name() +
            " keeps one set of rope_parameters for all layers: " + plain(theta.value) +
            " counts, and the scaling there does nothing",
        all.where + "/" + key + "/rope_theta", "state rope_parameters flat",
        theta.value.is_number() ? std::optional<double>(theta.value.as_number()) : std::nullopt);
  }
}

RopeSet flat(const ConfigView& view, const std::vector<std::string>& layer_types) {
  RopeSet set;
  const auto all = chosen(view, set);
  const auto labels = all ? labels_of(view, all->value, layer_types) : std::vector<std::string>{};
  if (!labels.empty() && view.rules().flat_only) {
    view.report().error("wrong_type",
                        view.class_name() +
                            " keeps one set of rope_parameters for all layers, and "
                            "transformers fails on one by layer type",
                        all->where, "state rope_type and its keys in rope_parameters itself");
    return set;
  }
  if (!labels.empty()) {
    if (!add_nested(view, set, *all, labels)) return set;
  } else {
    Dict d;
    if (all) d = dict_of(view, all->value, all->where, all->origin);
    set.parts.push_back({"", true, std::move(d)});
  }
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
    rename_type(view, part.dict, rope_rules(view).rename);
    complete(view, part.dict, set.nested);
    rename_type(view, part.dict, rope_rules(view).rename_late);
    for (const auto& [from, to] : rope_rules(view).aliases.pairs)
      if (const Value* v = part.dict.find(from)) part.dict.set_default(to, *v);
  }
  return set;
}

}  // namespace

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
  const std::string& rule = rope_rules(view).rule;
  const std::string name = rule.empty() ? "flat" : rule;
  if (auto own = rope_by_class(view, layer_types, name)) return std::move(*own);
  return flat(view, layer_types);
}

}  // namespace posenc::hf
