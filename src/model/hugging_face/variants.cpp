// SPDX-License-Identifier: Apache-2.0
// Rules that stand in the place of the table's: of one of several ways that a key of the file or its
// release says, of the decoder of the same file; and classes that have no words here.
#include <algorithm>

#include "model/hugging_face/layers.h"

namespace posenc::hf {

// null takes a fact away.
Json overlaid(const Json& entry, const Json& more) {
  Json out = Json::object();
  for (const auto& [key, value] : entry.as_object())
    if (!more.find(key)) out.set(key, value);
  for (const auto& [key, value] : more.as_object())
    if (!value.is_null()) out.set(key, value);
  return out;
}

namespace {

Json overlaid_once(const Json& entry, const Json& more) {
  return overlaid(overlaid(entry, Json::object({{"variants", nullptr}})), more);
}

bool states_one(const ConfigView& view, const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return view.stated_value(key).has_value(); });
}

// Releases that share a model type, told by which of their keys the file states and by a size.
bool is_case(const ConfigView& view, const VariantCase& one) {
  if (!one.states.empty() && !states_one(view, one.states)) return false;
  if (states_one(view, one.lacks)) return false;
  if (one.equals.is_object())
    for (const auto& [key, want] : one.equals.as_object())
      if (const auto v = view.value(key); !v || v->value != want) return false;
  return true;
}

}  // namespace

std::optional<Json> variant_entry(const ConfigView& view) {
  const Variants& rule = *view.rules().variants;
  for (const VariantCase& one : rule.cases)
    if (is_case(view, one)) return overlaid_once(view.entry(), one.is);
  if (!rule.cases.empty())
    return overlaid_once(view.entry(),
                         Json::object({{"refused", rule.why}, {"refused_mend", rule.mend}}));
  const auto v = view.value(rule.key);
  const Json value = v ? v->value : Json(nullptr);
  // true, false and null stand for themselves; of texts the text
  const bool word = value.is_string() || value.is_null();
  const Json* found = word || value.is_bool()
                          ? rule.of.find(value.is_string() ? value.as_string() : value.dump())
                          : nullptr;
  if (!found && word && !rule.otherwise.is_null()) found = &rule.otherwise;
  if (found) return overlaid_once(view.entry(), *found);
  std::vector<std::string> names;
  for (const auto& [one, more] : rule.of.pairs) names.push_back(one);
  view.wrong_type(message("{} must be one of {}, got {}: {} refuses anything else", rule.key,
                          listed(names), value, view.class_name()),
                  view.place(v, rule.key), "state " + rule.key);
  return std::nullopt;
}

// The same file seen by its decoder: its count of layers, its rows at the input, causal.
Json decoder_entry(const ConfigView& encoder) {
  const ClassRules& rules = encoder.rules();
  const std::string &count = rules.decoder, rows = "max_position_embeddings";
  Json defaults = rules.defaults, names = as_json(rules.names);
  const Json* held = defaults.find(count);
  if (held && held->is_null()) held = nullptr;
  // BART counts the layers of its decoder by themselves; T5 as its encoder's unless stated.
  if (held || encoder.stated_value(count)) names.set("num_hidden_layers", count);
  if (held) defaults.set("num_hidden_layers", Json(*held));
  Json more = Json::object({{"side", "decoder"},
                            {"bidirectional", nullptr},
                            {"decoder", nullptr},
                            {"decoder_is", nullptr}});
  if (!rules.decoder_input.empty()) {
    const std::string& key = rules.decoder_input.back();
    names.set(rows, key);
    if (const Json* n = defaults.find(key)) defaults.set(rows, Json(*n));
    for (const char* name : {"decoder_input", "input_keeps"}) more.set(name, nullptr);
    more.set("input", rules.decoder_input.front());
    more.set("input_text", "");
  }
  more.set("names", names);
  more.set("defaults", defaults);
  const Json entry = overlaid(encoder.entry(), more);
  return rules.decoder_is.is_null() ? entry : overlaid(entry, rules.decoder_is);
}

bool refused_by_name(const ConfigView& view) {
  const ClassRules& rules = view.rules();
  if (rules.refused.empty()) return false;
  const bool mend = !rules.refused_mend.empty();
  view.error("layout_not_covered",
             (mend ? view.class_name() + ": "
                   : "positions of " + view.class_name() + " have no scheme here: ") +
                 rules.refused,
             view.where("model_type"),
             mend ? rules.refused_mend : "use the class itself for its positions");
  return true;
}

}  // namespace posenc::hf
