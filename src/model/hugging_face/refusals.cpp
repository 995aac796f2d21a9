// SPDX-License-Identifier: Apache-2.0
// What a class of transformers refuses on loading, though nothing here would have asked for it.
#include <algorithm>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

// The layer types of transformers 5.23, old names among them, which it renames.
constexpr std::string_view kTypes[] = {"full_attention",
                                       "sliding_attention",
                                       "chunked_attention",
                                       "window_attention",
                                       "indexed_attention",
                                       "compressed_sparse_attention",
                                       "heavily_compressed_attention",
                                       "minimax_m3_sparse",
                                       "conv",
                                       "moe",
                                       "hybrid",
                                       "hybrid_sliding",
                                       "reference_sliding_attention",
                                       "linear_attention",
                                       "attention",
                                       "mamba",
                                       "deepseek_sparse_attention",
                                       "qwen_sparse_attention"};

bool said_already(const Report& report, const std::string& place) {
  return std::any_of(report.findings().begin(), report.findings().end(), [&](const Finding& f) {
    return f.severity == Severity::error && f.where.starts_with(place);
  });
}

// A list of layer types is checked whether the class reads it or not.
void layer_types(const ConfigView& view, std::size_t layers) {
  const Json* list = view.object().find("layer_types");
  if (!list || !list->is_array() || view.rules().typed || view.rules().other_layer_types ||
      said_already(view.report(), view.where("layer_types")))
    return;
  for (const Json& type : list->as_array())
    if (!type.is_string() ||
        std::find(std::begin(kTypes), std::end(kTypes), type.as_string()) == std::end(kTypes)) {
      view.report().error("wrong_type",
                          "layer_types holds " + shown(type) +
                              ", no layer type of transformers, which refuses the file",
                          view.where("layer_types"), "remove the key");
      return;
    }
  if (list->as_array().size() != layers)
    view.report().error(
        "layer_types_length",
        "layer_types has " + std::to_string(list->as_array().size()) + " entries for " +
            std::to_string(layers) + " layers: transformers refuses the file, though " +
            view.class_name() + " does not read them",
        view.where("layer_types"), "remove the key", static_cast<double>(list->as_array().size()));
}

void whole(const ConfigView& view, const std::string& spelled) {
  const Json* v = view.object().find(spelled);
  if (!v || !(v->is_string() || v->is_object() || v->is_bool()) ||
      said_already(view.report(), view.where(spelled)))
    return;
  view.report().error("wrong_type",
                      spelled + " must be a whole number, got " + shown(*v) + ": " +
                          view.class_name() + " refuses the file",
                      view.where(spelled), "state a number, or leave the key out");
}

// A whole number that the class holds cannot be a text, an object or a switch, whether it moves a
// position or not (run, every class). Other names of an attribute are not checked there, and the
// rule of the layers reads its own key (EXAONE's pattern may be letters).
void kinds(const ConfigView& view) {
  const ClassRules& rules = view.rules();
  for (const auto& [key, held] : rules.defaults.as_object()) {
    const bool both = contains(rules.own_unless_null, key);
    if (!held.is_integer() || (contains(rules.own_first, key) && !both)) continue;
    if (rules.layers && rules.layers->key == key) continue;
    const std::string* name = rules.names.find(key);
    whole(view, name ? *name : key);
    if (both) whole(view, key);
  }
}

// Sizes of which no attention can be made, though only memory or nothing here needs them.
void sizes(const ConfigView& view) {
  constexpr std::pair<std::string_view, Index> kMost[] = {{"num_attention_heads", 1'000'000},
                                                          {"hidden_size", 1'000'000'000}};
  for (const auto& [key, most] : kMost) {
    const auto v = view.holds(key) ? view.stated(key) : std::nullopt;
    if (!v || !v->value.is_number() || said_already(view.report(), v->where)) continue;
    const double n = v->value.as_number();
    if (!(n >= 1 && n <= static_cast<double>(most)))
      view.report().error("wrong_type",
                          std::string(key) + " must be a whole number from 1 to " +
                              std::to_string(most) + ", got " + shown(v->value),
                          v->where, "state the sizes of the model", n);
  }
}

}  // namespace

void refused_on_loading(const ConfigView& view, std::size_t layers) {
  const ClassRules& rules = view.rules();
  if (rules.defaults.is_null()) return;
  for (const auto& [key, held] : rules.defaults.as_object()) {
    if (!view.refuses_null(key)) continue;
    const std::string* name = rules.names.find(key);
    for (const std::string& spelled : {name ? *name : key, key}) {
      const Json* v = view.object().find(spelled);
      if (!v || !v->is_null() || (spelled != key && contains(rules.own_unless_null, key)) ||
          said_already(view.report(), view.where(spelled)) ||
          (spelled == key && name && contains(rules.own_only, key)))
        continue;
      view.report().error(
          "wrong_type",
          spelled + " is null, and " + view.class_name() + " refuses a file that says so",
          view.where(spelled), "state " + spelled + ", or leave the key out");
    }
  }
  kinds(view);
  sizes(view);
  layer_types(view, layers);
  if (view.class_name() == "IQuestCoderConfig")
    if (const Json* used = view.object().find("use_sliding_window"); used && truthy(*used))
      view.report().error("wrong_type",
                          "use_sliding_window must not be true: IQuestCoderConfig refuses the file",
                          view.where("use_sliding_window"), "remove the key");
}

}  // namespace posenc::v0::hf
