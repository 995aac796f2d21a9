// SPDX-License-Identifier: Apache-2.0
// Classes that place positions in one of several ways, as a key of the file says; and those whose
// way has no words here.
#include "model/layers.h"

namespace posenc::hf {
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

}  // namespace

std::optional<Json> variant_entry(const ConfigView& view) {
  const Json& rule = view.entry().at("variants");
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
  view.reading().error("wrong_type",
                       key + " must be one of " + names + ", got " + shown(value) + ": " +
                           view.class_name() + " refuses anything else",
                       v ? v->where : view.where(key), "state " + key);
  return std::nullopt;
}

bool refused_by_name(const ConfigView& view) {
  const Json* why = view.entry().find("refused");
  if (why)
    view.reading().error(
        "layout_not_covered",
        "positions of " + view.class_name() + " have no scheme here: " + why->as_string(),
        view.where("model_type"), "use the class itself for its positions");
  return why != nullptr;
}

}  // namespace posenc::hf
