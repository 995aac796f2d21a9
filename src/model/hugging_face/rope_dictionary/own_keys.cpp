// SPDX-License-Identifier: Apache-2.0
// Classes of a model's own repository (remote code) whose rotary reads keys of its own: what the
// table says under "rope" with the rule own_keys (tools/model_table/remote_code.py).
#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/hugging_face/head_size.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"

namespace posenc::inline v0::hf {
namespace {

// The base: the class's own key, one value for all files, or what the class holds.
Value base_of(const ConfigView& view) {
  if (rope_rules(view).fixed) return theta_of_code(view);
  const Value theta = theta_outside(view);
  if (theta.origin != Origin::class_default) return theta;
  const std::string* own = view.rules().keys.find("rope_theta");
  const std::string key = own ? *own : "rope_theta";
  view.note("missing_key", {"no {}: the default of {class}, {}, is used", key, theta.value},
            view.where(key), {"state {}", key});
  return theta;
}

// The file's own name says of which generation it is.
bool named(const ConfigView& view, const std::vector<std::string>& words) {
  const auto v = view.stated(rope_rules(view).times_name);
  if (!v || !v->value.is_string()) return false;
  std::string name = v->value.as_string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::any_of(
      words, [&](const std::string& word) { return name.find(word) != std::string::npos; });
}

// ChatGLM's rope_ratio: ChatGLM2 divides positions by it, the later ones multiply the base.
bool times(const ConfigView& view, const RopeRules& rule, Dict& d, Value& theta) {
  const auto v = view.stated(rule.times);
  if (!v) return true;
  if (!(number_of(v->value) > 0))
    return view.must_be(rule.times, "a number above 0", *v,
                        "write the ratio that the model was trained with");
  const double ratio = v->value.as_number();
  if (ratio == 1) return true;
  const bool divides = named(view, rule.times_divides);
  if (divides == named(view, rule.times_multiplies))
    return view.error("layout_not_covered", {"{} is {}: {}", rule.times, v->value, rule.times_why},
                      *v,
                      {"--assume /{}=chatglm2 divides positions, =chatglm3 multiplies the base",
                       rule.times_name});
  if (divides) {
    d.set("rope_type", derived("linear", v->where + ", " + view.where(rule.times_name)));
    d.set("factor", *v);
  } else {
    theta = derived(theta.value.as_number() * ratio,
                    message("{} * {} ({})", theta.value, rule.times, v->where));
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
std::optional<Value> type_of(const ConfigView& view, const OwnScalingRules& rule, const Dict& said,
                             const std::string& place) {
  const Value* type = said.find(key_of_type(rule, said));
  const std::string* known =
      type && type->value.is_string() ? rule.types.find(type->value.as_string()) : nullptr;
  if (known) return Value{*known, type->origin, type->where};
  const std::string names = listed(rule.types.names());
  if (type)
    return view.error("unknown_rope_type",
                      {"{class} knows no type {}, only {}", type->value, names}, *type,
                      {"state type: {}", names});
  return view.error("missing_key",
                    {"{} has no type, by which {class} tells {}{}", rule.key, names,
                     said.find("rope_type") ? ": rope_type is not read" : ""},
                    place + "/type", {"state type: {}", names});
}

// What the class checks on loading: type, a float of 1 or more as factor and nothing else (pair), or
// how many entries there are (Phi-3-vision).
bool accepted(const ConfigView& view, const OwnScalingRules& rule, const Value& v,
              const Dict& said) {
  const auto size = static_cast<Index>(v.value.as_object().size());
  const Value* factor = said.find("factor");
  const bool number = factor && factor->value.is_number() && !factor->value.is_integer();
  const bool low = number && factor->value.as_number() < 1;
  if (rule.pair && (!number || low || size != 2))
    return view.error(!factor ? "missing_key"
                      : low   ? "factor_below_one"
                              : "wrong_type",
                      {"{} must have type, a factor of 1.0 or more, written with a point, and "
                       "nothing else, got {}: {class} refuses the file",
                       rule.key, v.value},
                      v, "write {\"type\": ..., \"factor\": ...}");
  if (!rule.fields || size == *rule.fields) return true;
  return view.wrong_type({"{} must have {} entries, got {}: {class} refuses the file", rule.key,
                          *rule.fields, v.value},
                         v, "remove what the class does not read");
}

// DeepSeek's gain, mscale(m) / mscale(all) with mscale(x) = 0.1 x ln(factor) + 1, where m is 1 when
// it is missing. Where both are stated and not 0 the common rule is the same.
void deepseek_gain(Dict& d) {
  const Value* m = d.find("mscale");
  const auto a = number_of(m), b = number_of(d.find("mscale_all_dim")),
             factor = number_of(d.find("factor"));
  if (!a || !b || !factor) return;  // the common rule says what is wrong
  if (*a != 0 && *b != 0) return;
  const double log = *factor > 1 ? 0.1 * std::log(*factor) : 0;
  d.set("attention_factor", derived((log * *a + 1) / (log * *b + 1),
                                    "0.1 mscale ln(factor) + 1, over the same of mscale_all_dim"));
  d.set("mscale", {Json(), m->origin, m->where});
}

// What stands in the dictionary: factor, base, what the type reads; the rest is not read.
void take_stated(const ConfigView& view, const OwnScalingRules& rule, const Dict& said, bool scales,
                 const Json* reads, Dict& d, Value& theta) {
  const std::string type_key = key_of_type(rule, said);
  for (const auto& [name, value] : said.items())
    if (name == rule.base)
      theta = value;
    else if (scales && name == (rule.factor.empty() ? "factor" : rule.factor))
      d.set("factor", value);
    else if (reads && reads->find(name))
      d.set(name, value);
    else if (name != type_key)
      view.warn("key_ignored",
                {"{} is not read by {class} with type {}", name, said.find(type_key)->value}, value,
                "remove it, or write the type it belongs to");
}

// rope_scaling {"type", "factor"} of InternLM2, rotary {"type", "base"} of InternLM.
bool scaling(const ConfigView& view, const OwnScalingRules& rule, Dict& d, Value& theta) {
  const auto v = view.stated_value(rule.key);
  if (!v) return true;
  if (!v->value.is_object())
    return view.must_be(rule.key, "an object with type", *v, "write {\"type\": ..., ...} or null");
  const Dict said = dict_of(view, *v);
  const auto type = type_of(view, rule, said, v->where);
  if (!type || !accepted(view, rule, *v, said)) return false;
  const std::string& name = type->value.as_string();
  d.set("rope_type", *type);
  const bool scales = name != "default" && name != "longrope";
  const Json* reads = rule.reads.find(name);
  take_stated(view, rule, said, scales, reads, d, theta);
  if (reads)
    for (const auto& [key, held] : reads->as_object())
      if (!held.is_null()) d.set_default(key, view.of_class(held));
  if (const auto* keys = rule.outside.find(name))
    for (const std::string& key : *keys)
      if (const auto beside = view.value(key)) d.set(key, *beside);
  if (name == "yarn") deepseek_gain(d);
  if (!rule.factor_default.is_null() && scales)
    d.set_default("factor", view.of_class(rule.factor_default));
  if (rule.base.empty() || said.find(rule.base)) return true;
  return view.error("missing_key", {"{} has no {}", rule.key, rule.base},
                    v->where + "/" + rule.base, {"state {}", rule.base});
}

// MiniMax-Text-01's rotary_dim: the turned channels of a head, all of them where it is missing.
bool width(const ConfigView& view, const std::string& key, Dict& d) {
  if (!view.stated(key)) return true;
  const auto turned = view.integer(key, 1, 65536, true);
  const auto head = head_of(view, "");
  if (!turned || !head) return false;
  d.set("partial_rotary_factor",
        derived(static_cast<double>(turned->value) / static_cast<double>(head->q_dim.value),
                turned->where + " / head_dim"));
  return true;
}

// Qwen's use_dynamic_ntk: dynamic NTK in steps beyond seq_length.
bool stepwise(const ConfigView& view, const RopeRules& rule, Dict& d) {
  const auto n = view.integer(rule.steps_length, 1, kUnbounded / 4, true);
  if (!n) return false;
  if (!view.flag(rule.steps, true)) return true;
  const auto v = view.value(rule.steps);
  d.set("rope_type", derived("qwen_dynamic", v ? v->where : view.class_name()));
  d.set("trained_length", {n->value, n->origin, n->where});
  return true;
}

}  // namespace

RopeSet own_keys(const ConfigView& view, const std::vector<std::string>&) {
  const RopeRules& rule = rope_rules(view);
  Dict d;
  d.set("rope_type", view.of_class("default"));
  Value theta = base_of(view);
  for (const std::string_view key : kRotaryKeys)
    if ((key != "rope_theta" || rule.fixed) && !(rule.scaling && rule.scaling->key == key))
      not_read(view, {key}, " by " + view.class_name() + ", a class of the model's own repository",
               "remove it, or use the code that reads it");
  if ((!rule.times.empty() && !times(view, rule, d, theta)) ||
      (rule.scaling && !scaling(view, *rule.scaling, d, theta)) ||
      (!rule.steps.empty() && !stepwise(view, rule, d)) ||
      (!rule.width.empty() && !width(view, rule.width, d)))
    return {};
  d.set("rope_theta", theta);
  if (!rule.fraction.empty())
    if (const auto v = view.value(rule.fraction)) d.set("partial_rotary_factor", *v);
  if (!view.rules().fraction.is_null())
    d.set_default("partial_rotary_factor", view.of_class(view.rules().fraction));
  return {false, {{"", true, std::move(d)}}, ""};
}

}  // namespace posenc::v0::hf
