// SPDX-License-Identifier: Apache-2.0
// Sizes of a file that fit together in every published model: which, stands in the table of models.
#include <algorithm>
#include <cmath>

#include "model/hugging_face/checks.h"

namespace posenc::inline v0::hf {
namespace {

bool fits(const std::string& rule, double value, double other) {
  if (rule == "divides") return std::fmod(value, other) == 0;
  if (rule == "not_above") return value <= other;
  if (rule == "above_half") return value > other / 2;
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

// A warning or an error points at the key, under either of its names.
bool said_better(const ConfigView& view, const std::string& key) {
  const std::string* own = view.rules().names.find(key);
  const std::string places[] = {view.where(key), own ? view.where(*own) : ""};
  return std::ranges::any_of(view.report().findings(), [&](const Finding& f) {
    return f.severity != Severity::note && contains(places, f.where);
  });
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
  const Json *least = row.find("least"), *other_least = row.find("other_least");
  const Json* published = row.find("published");  // two that do not fit, of a model all the same
  if (fits(rule, a, b) || (least && a < least->as_number()) ||
      (other_least && b < other_least->as_number()) ||
      (published && *published == Json::array({value->value, other->value})))
    return;
  const auto on = with.empty() ? std::nullopt : view.value(with);
  if ((!with.empty() && !(on && truthy(on->value))) ||
      (!without.empty() && view.stated_value(without)) ||
      (beside == "num_attention_heads" && says_the_head(view)))
    return;
  if (said_better(view, key) || said_better(view, beside)) return;
  view.warn("implausible_value",
            {"{} is {} and {} {}: {} ({})", key, value->value, beside, other->value,
             text("message"), table_member("usual_source").as_string()},
            value->origin == Origin::class_default ? *other : *value,
            "check both: one of them is not the model's", value->value.as_number());
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

// Swin: each stage is twice as wide as the one before; its class refuses heads that do not divide it.
void heads_of_stages(const ConfigView& view) {
  const auto width = number(view, "embed_dim");
  const Json* heads = view.object().find("num_heads");
  if (!width || !heads || !heads->is_array() || !view.holds("embed_dim") ||
      !view.rules().layer_count || view.rules().layer_count->sum != "depths")
    return;
  double wide = width->value.as_number();
  for (std::size_t i = 0; i < heads->as_array().size(); ++i, wide *= 2) {
    const Json& n = heads->as_array()[i];
    if (!n.is_number() || n.as_number() <= 0 || std::fmod(wide, n.as_number()) == 0) continue;
    view.wrong_type({"stage {} is {} wide and has {} heads: the width must be a multiple of them, "
                     "else {class} refuses the file",
                     i, wide, n},
                    message("{}/{}", view.where("num_heads"), i));
  }
}

}  // namespace

void implausible_sizes(const ConfigView& view) {
  const bool heads = view.rules().no_transformer.empty();
  for (const Json& row : table_member("usual_sizes").as_array())
    if (heads || row.at("other") != Json("num_attention_heads")) look(view, row);
  windows_of_layers(view);
  heads_of_stages(view);
}

}  // namespace posenc::v0::hf
