// SPDX-License-Identifier: Apache-2.0
// Classes that place positions in one of several ways, as a key of the file says; and those whose
// way has no words here.
#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

// `entry` with what `more` says over it; null takes a fact away.
Json overlaid(const Json& entry, const Json& more) {
  Json out = Json::object();
  for (const auto& [key, value] : entry.as_object())
    if (const Json* over = more.find(key); key != "variants" && !(over && over->is_null()))
      out.set(key, value);
  for (const auto& [key, value] : more.as_object())
    if (!value.is_null()) out.set(key, value);
  return out;
}

bool states_one(const ConfigView& view, const Json& keys) {
  for (const Json& key : keys.as_array())
    if (const auto v = view.stated(key.as_string()); v && !v->value.is_null()) return true;
  return false;
}

// Releases that share a model type, told by which of their keys the file states and by a size.
bool is_case(const ConfigView& view, const Json& one) {
  if (const Json* any = one.find("states"); any && !states_one(view, *any)) return false;
  if (const Json* none = one.find("lacks"); none && states_one(view, *none)) return false;
  if (const Json* sizes = one.find("equals"))
    for (const auto& [key, want] : sizes->as_object())
      if (const auto v = view.value(key); !v || v->value != want) return false;
  return true;
}

Json case_entry(const ConfigView& view, const Json& rule) {
  for (const Json& one : rule.at("cases").as_array())
    if (is_case(view, one)) return overlaid(view.entry(), one.at("is"));
  Json none = Json::object();
  none.set("refused", rule.at("why"));
  none.set("refused_mend", rule.at("mend"));
  return overlaid(view.entry(), none);
}

}  // namespace

std::optional<Json> variant_entry(const ConfigView& view) {
  const Json& rule = view.entry().at("variants");
  if (rule.find("cases")) return case_entry(view, rule);
  const std::string key = rule.at("key").as_string();
  const auto v = view.value(key);
  const Json value = v ? v->value : Json(nullptr);
  // true, false and null stand for themselves; of texts the text
  const std::string name = value.is_string() ? value.as_string() : value.dump();
  const Json& all = rule.at("of");
  const bool word = value.is_bool() || value.is_string() || value.is_null();
  const Json* found = word ? all.find(name) : nullptr;
  if (!found && word && !value.is_bool()) found = rule.find("otherwise");
  if (found) return overlaid(view.entry(), *found);
  std::string names;
  for (const auto& [one, more] : all.as_object()) names += (names.empty() ? "" : ", ") + one;
  view.report().error("wrong_type",
                      key + " must be one of " + names + ", got " + shown(value) + ": " +
                          view.class_name() + " refuses anything else",
                      v ? v->where : view.where(key), "state " + key);
  return std::nullopt;
}

bool refused_by_name(const ConfigView& view) {
  const Json* why = view.entry().find("refused");
  if (!why) return false;
  const Json* mend = view.entry().find("refused_mend");
  view.report().error("layout_not_covered",
                      (mend ? view.class_name() + ": "
                            : "positions of " + view.class_name() + " have no scheme here: ") +
                          why->as_string(),
                      view.where("model_type"),
                      mend ? mend->as_string() : "use the class itself for its positions");
  return true;
}

}  // namespace posenc::v0::hf
