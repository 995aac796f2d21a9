// SPDX-License-Identifier: Apache-2.0
// Rules that replace those of the table: for a variant that a key of the file or its release names, for
// the decoder of the same file; and classes that have no words here.
#include <algorithm>
#include <utility>

#include "model/hugging_face/own_code.h"
#include "model/hugging_face/variants.h"

namespace posenc::inline v0::hf {

namespace {

ClassRules overlaid(ClassRules rules, const Json& more) {
  rules.variants.reset();
  return with(std::move(rules), more);
}

bool states_one(const ConfigView& view, const std::vector<std::string>& keys) {
  return std::ranges::any_of(
      keys, [&](const std::string& key) { return view.stated_value(key).has_value(); });
}

// Releases that share a model type, told by which of their keys the file states, by a size, and by
// the code that auto_map names.
bool is_case(const ConfigView& view, const VariantCase& one) {
  if (code_of(view.object()).find(one.code) == std::string::npos) return false;
  if (!one.states.empty() && !states_one(view, one.states)) return false;
  if (states_one(view, one.lacks)) return false;
  if (one.equals.is_object())
    for (const auto& [key, want] : one.equals.as_object())
      if (const auto v = view.value(key); !v || v->value != want) return false;
  return true;
}

}  // namespace

std::optional<ClassRules> variant_rules(const ConfigView& view) {
  const ClassRules& rules = view.rules();
  const Variants& rule = *rules.variants;
  for (const VariantCase& one : rule.cases)
    if (is_case(view, one)) return overlaid(one.as.empty() ? rules : *class_rules(one.as), one.is);
  if (!rule.cases.empty())
    return overlaid(rules, Json::object({{"refused", rule.why}, {"refused_fix", rule.fix}}));
  const auto v = view.value(rule.key);
  const Json value = v ? v->value : Json(nullptr);
  // true, false and null stand for themselves; of texts the text
  const bool word = value.is_string() || value.is_null();
  const Json* found = word || value.is_bool()
                          ? rule.of.find(value.is_string() ? value.as_string() : value.dump())
                          : nullptr;
  if (!found && word && !rule.otherwise.is_null()) found = &rule.otherwise;
  if (found) return overlaid(rules, *found);
  return view.wrong_type({"{} must be one of {}, got {}: {class} refuses anything else", rule.key,
                          listed(rule.of.names()), value},
                         view.place(v, rule.key), {"state {}", rule.key});
}

// The same file seen by its decoder: its count of layers, its rows at the input, causal.
ClassRules decoder_rules(const ConfigView& encoder) {
  ClassRules rules = encoder.rules();
  const Json* held = rules.defaults.find(rules.decoder);
  if (held && held->is_null()) held = nullptr;
  // BART counts the layers of its decoder by themselves; T5 as its encoder's unless stated.
  if (held || encoder.stated_value(rules.decoder))
    rules.names.set("num_hidden_layers", rules.decoder);
  if (held) rules.defaults.set("num_hidden_layers", Json(*held));
  rules.side = "decoder";
  rules.bidirectional = false;
  rules.decoder.clear();
  if (!rules.decoder_input.empty()) {
    const std::string rows = "max_position_embeddings", key = rules.decoder_input.back();
    rules.names.set(rows, key);
    if (const Json* n = rules.defaults.find(key)) rules.defaults.set(rows, Json(*n));
    rules.input = rules.decoder_input.front();
    rules.input_text = "";
    rules.input_keeps.clear();
    rules.decoder_input.clear();
  }
  const Json more = rules.decoder_is;
  return more.is_null() ? rules : with(std::move(rules), more);
}

bool refused_by_name(const ConfigView& view) {
  const ClassRules& rules = view.rules();
  if (rules.refused.empty()) return false;
  const bool has_fix = !rules.refused_fix.empty();
  view.error(
      "layout_not_covered",
      (has_fix ? view.class_name() + ": "
               : "the reader does not describe the positions of " + view.class_name() + ": ") +
          rules.refused,
      view.where("model_type"),
      has_fix ? rules.refused_fix : "use the class itself for its positions");
  return true;
}

}  // namespace posenc::v0::hf
