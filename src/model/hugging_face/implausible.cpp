// SPDX-License-Identifier: Apache-2.0
// Sizes of a file that fit together in every published model: which, stands in the table of models.
#include <algorithm>
#include <cmath>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

bool fits(const std::string& rule, double value, double other) {
  if (rule == "divides") return std::fmod(value, other) == 0;
  if (rule == "not_above") return value <= other;
  if (rule == "below") return value < other;
  return rule == "above" ? value > other : value >= other;  // at_least
}

std::optional<Value> number(const ConfigView& view, std::string_view key) {
  if (!view.holds(key) && !view.report().asked.count(view.where(key))) return std::nullopt;
  auto v = view.value(key);
  const double size = v && v->value.is_number() ? v->value.as_number() : 0;
  return size > 0 && size <= 1'000'000 ? v : std::nullopt;  // others are errors of the reader
}

// Then the width need not be that of all heads.
bool says_the_head(const ConfigView& view) {
  for (const char* key : {"head_dim", "qk_rope_head_dim", "kv_channels"})
    if (view.value_or_none(key)) return true;
  return false;
}

// row: of the table.
void look(const ConfigView& view, const Json& row) {
  const auto text = [&](std::string_view member) {
    const Json* j = row.find(member);
    return j ? j->as_string() : std::string();
  };
  const std::string key = text("key"), rule = text("rule"), beside = text("other");
  const std::string with = text("with"), without = text("without");
  const auto value = number(view, key), other = number(view, beside);
  if (!value || !other) return;
  const auto held = [&](std::string_view name, const Value& v) {
    const Json* own = view.held_by_class(name);
    return v.origin == Origin::class_default || (own && *own == v.value);
  };
  if (held(key, *value) && (held(beside, *other) || rule == "not_above")) return;
  const double a = value->value.as_number(), b = other->value.as_number();
  const Json* least = row.find("least");
  const Json* published = row.find("published");  // two that do not fit, of a model all the same
  if (fits(rule, a, b) || (least && a < least->as_number()) ||
      (published && *published == Json::array({value->value, other->value})))
    return;
  const auto on = with.empty() ? std::nullopt : view.value(with);
  if ((!with.empty() && !(on && truthy(on->value))) ||
      (!without.empty() && view.stated_value(without)) ||
      (beside == "num_attention_heads" && says_the_head(view)))
    return;
  for (const Finding& f : view.report().findings())
    if (f.where == value->where || f.where == other->where) return;  // said better
  view.warn("implausible_value",
            {"{} is {} and {} {}: {} ({})", key, value->value, beside, other->value,
             text("message"), table_member("usual_source").as_string()},
            value->origin == Origin::class_default ? *other : *value,
            "check the two: one of them is not the model's", value->value.as_number());
}

// Longformer's list of windows: its attention refuses another length.
void windows_of_layers(const ConfigView& view) {
  const Json* list = view.object().find("attention_window");
  const auto layers = number(view, "num_hidden_layers");
  if (!list || !list->is_array() || !layers ||
      layers->value.as_number() == static_cast<double>(list->as_array().size()))
    return;
  view.warn(
      "list_length",
      {"attention_window has {} windows for {} layers", list->as_array().size(), layers->value},
      view.where("attention_window"), "one window for each layer");
}

}  // namespace

void implausible_sizes(const ConfigView& view) {
  const bool heads = view.rules().scheme == "rope" || view.rules().scheme == "alibi";
  for (const Json& row : table_member("usual_sizes").as_array())
    if (heads || row.at("other") != Json("num_attention_heads")) look(view, row);
  windows_of_layers(view);
}

}  // namespace posenc::v0::hf
