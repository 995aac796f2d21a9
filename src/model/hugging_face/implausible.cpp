// SPDX-License-Identifier: Apache-2.0
// Sizes of a file that fit together in every published model: a table of them.
#include <algorithm>
#include <cmath>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

enum class Rule : std::uint8_t { divides, not_above, below, above, at_least };
struct Sizes {
  std::string_view key;
  Rule rule;
  std::string_view other;
  std::string_view with, without;  // only where this key is on, and where that one is not stated
  std::string_view message;
  double least = 0;  // smaller values are those of tests
};
constexpr Sizes kSizes[] = {
    {"image_size", Rule::at_least, "patch_size", "", "", "no patch fits into the image"},
    {"relative_attention_max_distance", Rule::above, "relative_attention_num_buckets", "", "",
     "no bucket is left for distances on the logarithmic scale", 16},
    {"image_size", Rule::divides, "patch_size", "", "",
     "the image is no whole number of patches: what is left at its edges is dropped", 128},
    {"hidden_size", Rule::divides, "num_attention_heads", "", "",
     "the width is no whole number of heads"},
    {"max_window_layers", Rule::below, "num_hidden_layers", "use_sliding_window", "layer_types",
     "no layer has the window that use_sliding_window asks for"},
    {"sliding_window_pattern", Rule::not_above, "num_hidden_layers", "", "layer_types",
     "no layer sees everything"},
    {"global_attn_every_n_layers", Rule::not_above, "num_hidden_layers", "", "layer_types",
     "only the first layer sees everything"}};
constexpr std::string_view kSource =
    "published configs: the class defaults of transformers 5.23 and the conformance suites";

bool fits(Rule rule, double value, double other) {
  switch (rule) {
    case Rule::divides:
      return std::fmod(value, other) == 0;
    case Rule::not_above:
      return value <= other;
    case Rule::below:
      return value < other;
    case Rule::above:
      return value > other;
    case Rule::at_least:
      return value >= other;
  }
  return true;
}

// SigLIP's so400m, published, has 384 pixels in patches of 14.
bool is_so400m(double image, double patch) {
  return image == 384 && patch == 14;
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

void look(const ConfigView& view, const Sizes& row) {
  const auto value = number(view, row.key), other = number(view, row.other);
  if (!value || !other) return;
  const auto held = [&](std::string_view key, const Value& v) {
    const Json* own = view.held_by_class(key);
    return v.origin == Origin::class_default || (own && *own == v.value);
  };
  if (held(row.key, *value) && (held(row.other, *other) || row.rule == Rule::not_above)) return;
  const double a = value->value.as_number(), b = other->value.as_number();
  if (fits(row.rule, a, b) || a < row.least || is_so400m(a, b)) return;
  const auto on = row.with.empty() ? std::nullopt : view.value(row.with);
  if ((!row.with.empty() && !(on && truthy(on->value))) ||
      (!row.without.empty() && view.stated_value(row.without)) ||
      (row.other == "num_attention_heads" && says_the_head(view)))
    return;
  for (const Finding& f : view.report().findings())
    if (f.where == value->where || f.where == other->where) return;  // said better
  view.warn("implausible_value",
            {"{} is {} and {} {}: {} ({})", row.key, value->value, row.other, other->value,
             row.message, kSource},
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
  for (const Sizes& row : kSizes)
    if (heads || row.other != "num_attention_heads") look(view, row);
  windows_of_layers(view);
}

}  // namespace posenc::v0::hf
