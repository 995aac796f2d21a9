// SPDX-License-Identifier: Apache-2.0
// Classes of a model's own repository (remote code) whose rotary reads keys of its own: what the
// table says under "rope" with the rule own_keys (tools/model_table/remote_code.py).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/hugging_face/rope_dictionary/parts.h"
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::hf {
namespace {

Value of_class(const ConfigView& view, Json value, const std::string& why = "") {
  return {std::move(value), Origin::class_default, view.class_name() + why};
}

// Keys of the common rule that this class does not look at.
void not_read(const ConfigView& view, std::initializer_list<std::string_view> read) {
  for (const std::string_view key :
       {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"}) {
    if (std::find(read.begin(), read.end(), key) != read.end()) continue;
    if (const auto v = view.stated(key); v && truthy(v->value))
      view.report().warn("key_ignored",
                         std::string(key) + " is not read by " + view.class_name() +
                             ", a class of the model's own repository",
                         v->where, "remove it, or use the code that reads it");
  }
}

// The base: the class's own key, one value for all files, or what the class holds.
Value base_of(const ConfigView& view) {
  if (rope_rules(view).fixed) return of_class(view, view.rules().theta, ": fixed in the code");
  const Value theta = theta_outside(view);
  if (theta.origin == Origin::class_default) {
    const std::string own = view.rules().keys ? view.rules().keys->theta : "";
    const std::string key = own.empty() ? "rope_theta" : own;
    view.report().note(
        "missing_key",
        "no " + key + ": " + view.class_name() + "'s " + shown(theta.value) + " counts",
        view.where(key), "state " + key);
  }
  return theta;
}

// The file's own name says of which generation it is.
bool named(const ConfigView& view, const std::string& key, const Json& words) {
  const auto v = view.stated(key);
  if (!v || !v->value.is_string()) return false;
  std::string name = v->value.as_string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(words.as_array().begin(), words.as_array().end(), [&](const Json& word) {
    return name.find(word.as_string()) != std::string::npos;
  });
}

// ChatGLM's rope_ratio: ChatGLM2 divides positions by it, the later ones multiply the base.
bool times(const ConfigView& view, const Json& rule, Dict& d, Value& theta) {
  const std::string key = rule.at("key").as_string(), name = rule.at("name").as_string();
  const auto v = view.stated(key);
  if (!v) return true;
  if (!v->value.is_number() || !(v->value.as_number() > 0)) {
    view.report().wrong_type(key, "a number above 0", *v,
                             "write the ratio that the model was trained with");
    return false;
  }
  const double ratio = v->value.as_number();
  if (ratio == 1) return true;
  const bool divides = named(view, name, rule.at("divides"));
  if (divides == named(view, name, rule.at("multiplies"))) {
    view.report().error(
        "layout_not_covered", key + " is " + shown(v->value) + ": " + rule.at("why").as_string(),
        v->where,
        "--assume /" + name + "=chatglm2 divides positions, =chatglm3 multiplies the base");
    return false;
  }
  if (divides) {
    d.set("rope_type", {"linear", Origin::derived, v->where + ", " + view.where(name)});
    d.set("factor", *v);
  } else {
    theta = {theta.value.as_number() * ratio, Origin::derived,
             shown(theta.value) + " * " + key + " (" + v->where + ")"};
  }
  return true;
}

// The key of the type: by generation of the code where the rule names several.
std::string key_of_type(const OwnScalingRules& rule, const Dict& said) {
  for (const std::string& key : rule.type_keys)
    if (said.find(key)) return key;
  return "type";
}

// The type that the dictionary of the scaling states, in the words of transformers.
std::optional<Value> scaling_type(const ConfigView& view, const OwnScalingRules& rule,
                                  const Dict& said, const std::string& place) {
  const Value* type = said.find(key_of_type(rule, said));
  const std::string* known =
      type && type->value.is_string() ? rule.types.find(type->value.as_string()) : nullptr;
  if (known) return Value{*known, type->origin, type->where};
  std::string names;
  for (const auto& [one, means] : rule.types.pairs) names += (names.empty() ? "" : ", ") + one;
  if (type)
    view.report().error(
        "unknown_rope_type",
        view.class_name() + " knows no type " + shown(type->value) + ", only " + names, type->where,
        "state type: " + names);
  else
    view.report().error("missing_key",
                        rule.key + " has no type, by which " + view.class_name() + " tells " +
                            names + (said.find("rope_type") ? ": rope_type is not read" : ""),
                        place + "/type", "state type: " + names);
  return std::nullopt;
}

// The class checks on loading: type, a float of 1 or more as factor, and nothing else.
bool is_pair(const ConfigView& view, const std::string& key, const Value& v, const Dict& said) {
  const Value* factor = said.find("factor");
  const bool number = factor && factor->value.is_number() && !factor->value.is_integer();
  const bool low = number && factor->value.as_number() < 1;
  if (number && !low && v.value.as_object().size() == 2) return true;
  view.report().error(!factor ? "missing_key"
                      : low   ? "factor_below_one"
                              : "wrong_type",
                      key +
                          " must have type, a factor of 1.0 or more, written with a point, and "
                          "nothing else, got " +
                          shown(v.value) + ": " + view.class_name() + " refuses the file",
                      v.where, "write {\"type\": ..., \"factor\": ...}");
  return false;
}

// What a type reads beside its factor, and what stands in for it (null: nothing does).
const Json* read_by(const OwnScalingRules& rule, const Value& type) {
  return rule.reads.is_null() ? nullptr : rule.reads.find(type.value.as_string());
}

// DeepSeek's gain, mscale(m) / mscale(all) with mscale(x) = 0.1 x ln(factor) + 1, where m is 1 when
// it is missing. Where both are stated and not 0 the common rule is the same.
void deepseek_gain(Dict& d) {
  const Value *m = d.find("mscale"), *all = d.find("mscale_all_dim"), *factor = d.find("factor");
  const auto number = [](const Value* v) { return v && v->value.is_number(); };
  if (!number(m) || !number(all) || !number(factor)) return;  // the common rule says what is wrong
  const double a = m->value.as_number(), b = all->value.as_number();
  if (a != 0 && b != 0) return;
  const double log = factor->value.as_number() > 1 ? 0.1 * std::log(factor->value.as_number()) : 0;
  d.set("attention_factor", {(log * a + 1) / (log * b + 1), Origin::derived,
                             "0.1 mscale ln(factor) + 1, over the same of mscale_all_dim"});
  d.set("mscale", {Json(), m->origin, m->where});
}

// The class checks how many entries the dictionary has (Phi-3-vision).
bool has_fields(const ConfigView& view, const OwnScalingRules& rule, const Value& v) {
  const std::optional<Index>& fields = rule.fields;
  if (!fields || static_cast<Index>(v.value.as_object().size()) == *fields) return true;
  view.report().error("wrong_type",
                      rule.key + " must have " + std::to_string(*fields) + " entries, got " +
                          shown(v.value) + ": " + view.class_name() + " refuses the file",
                      v.where, "leave out what the class does not read");
  return false;
}

// What a type takes from beside its dictionary, or from the class.
void take_outside(const ConfigView& view, const OwnScalingRules& rule, const Value& type, Dict& d) {
  const Json& all = rule.outside;
  const Json* names = !all.is_null() ? all.find(type.value.as_string()) : nullptr;
  if (!names) return;
  for (const Json& name : names->as_array())
    if (const auto v = view.value(name.as_string())) d.set(name.as_string(), *v);
}

// rope_scaling {"type", "factor"} of InternLM2, rotary {"type", "base"} of InternLM.
bool scaling(const ConfigView& view, const OwnScalingRules& rule, Dict& d, Value& theta) {
  const std::string &key = rule.key, &base = rule.base;
  const auto v = view.stated(key);
  if (!v || v->value.is_null()) return true;
  if (!v->value.is_object()) {
    view.report().wrong_type(key, "an object with type", *v, "write {\"type\": ..., ...} or null");
    return false;
  }
  const Dict said = dict_of(view, v->value, v->where, v->origin);
  const auto type = scaling_type(view, rule, said, v->where);
  if (!type || (rule.pair && !is_pair(view, key, *v, said)) || !has_fields(view, rule, *v))
    return false;
  d.set("rope_type", *type);
  const bool scales = type->value != Json("default") && type->value != Json("longrope");
  const Json* reads = read_by(rule, *type);
  const std::string type_key = key_of_type(rule, said);
  for (const auto& [name, value] : said.items())
    if (name == base)
      theta = value;
    else if (scales && name == (rule.factor.empty() ? "factor" : rule.factor))
      d.set("factor", value);
    else if (reads && reads->find(name))
      d.set(name, value);
    else if (name != type_key)
      view.report().warn("key_ignored",
                         name + " is not read by " + view.class_name() + " with type " +
                             shown(said.find(type_key)->value),
                         value.where, "remove it, or write the type it belongs to");
  if (reads)
    for (const auto& [name, held] : reads->as_object())
      if (!held.is_null()) d.set_default(name, of_class(view, held));
  take_outside(view, rule, *type, d);
  if (type->value == Json("yarn")) deepseek_gain(d);
  if (!rule.factor_default.is_null() && scales)
    d.set_default("factor", of_class(view, rule.factor_default));
  if (base.empty() || said.find(base)) return true;
  view.report().error("missing_key", key + " has no " + base, v->where + "/" + base,
                      "state " + base);
  return false;
}

// MiniMax-Text-01's rotary_dim: the turned channels of a head, all of them where it is missing.
bool width(const ConfigView& view, const std::string& key, Dict& d) {
  if (!view.stated(key)) return true;
  const auto turned = view.integer(key, 1, 65536, true);
  const auto head = head_of(view, "");
  if (!turned || !head) return false;
  d.set("partial_rotary_factor",
        {static_cast<double>(turned->value) / static_cast<double>(head->q_dim.value),
         Origin::derived, turned->where + " / head_dim"});
  return true;
}

// Qwen's use_dynamic_ntk: dynamic NTK in steps beyond seq_length.
bool stepwise(const ConfigView& view, const Json& rule, Dict& d) {
  const auto n = view.integer(rule.at("length").as_string(), 1, kUnbounded / 4, true);
  if (!n) return false;
  const std::string key = rule.at("key").as_string();
  if (!view.flag(key, true)) return true;
  const auto v = view.value(key);
  d.set("rope_type", {"qwen_dynamic", Origin::derived, v ? v->where : view.class_name()});
  d.set("trained_length", {n->value, n->origin, n->where});
  return true;
}

}  // namespace

RopeSet own_keys(const ConfigView& view) {
  RopeSet set;
  Dict d;
  d.set("rope_type", of_class(view, "default"));
  Value theta = base_of(view);
  const RopeRules& rules = rope_rules(view);
  const std::optional<OwnScalingRules>& scaled = rules.scaling;
  const std::string scaled_key = scaled ? scaled->key : "";
  not_read(view, {rope_rules(view).fixed ? "" : "rope_theta", scaled_key});
  if ((!rules.times.is_null() && !times(view, rules.times, d, theta)) ||
      (scaled && !scaling(view, *scaled, d, theta)) ||
      (!rules.steps.is_null() && !stepwise(view, rules.steps, d)))
    return set;
  if (!rules.width.empty() && !width(view, rules.width, d)) return set;
  d.set("rope_theta", theta);
  if (!rules.fraction.empty())
    if (const auto v = view.value(rules.fraction)) d.set("partial_rotary_factor", *v);
  if (!view.rules().fraction.is_null())
    d.set_default("partial_rotary_factor", of_class(view, view.rules().fraction));
  set.parts.push_back({"", true, std::move(d)});
  return set;
}

}  // namespace posenc::hf
