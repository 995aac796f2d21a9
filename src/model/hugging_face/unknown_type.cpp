// SPDX-License-Identifier: Apache-2.0
// What a person can do about a model type that is not known, by its spelling and by what the file
// says.
#include "model/hugging_face/unknown_type.h"
#include "model/hugging_face/own_code.h"
#include "model/hugging_face/scheme_signs.h"
#include "posenc/registry/fields.h"

namespace posenc::inline v0::hf {
namespace {

// Whether a key of the file, or of its text part, begins with one of the words.
bool speaks_of(const Json& config, const std::vector<std::string>& words) {
  for (const auto& [key, value] : config.as_object()) {
    for (const std::string& word : words)
      if (key.starts_with(word) && truthy(value)) return true;
    if (value.is_object() && (key.ends_with("_config") || key == "decoder") &&
        speaks_of(value, words))
      return true;
  }
  return false;
}

// The scheme of which the file speaks; null: of none.
const SchemeSigns* scheme_said(const Json& config) {
  const Json* type = config.find("position_embedding_type");
  const std::string said = type && type->is_string() ? type->as_string() : "";
  for (const SchemeSigns& s : all_scheme_signs())
    if (contains(s.words, said) ||
        (!s.word_part.empty() && said.find(s.word_part) != std::string::npos))
      return &s;
  for (const SchemeSigns& s : all_scheme_signs())
    if (speaks_of(config, s.signs)) return &s;
  return nullptr;
}

bool may_have(const ClassRules& rules, const SchemeSigns* said) {
  return !said || rules.scheme == said->scheme || rules.variants ||
         (rules.rotary_if && rules.rotary_if->otherwise == said->scheme);
}

// Keys of the file that some class reads, and how many of them this class does.
struct Shared {
  std::size_t keys = 0, known = 0;
  bool fits() const { return 5 * known >= 4 * keys; }
};
Shared shared(const Json& config, const ClassRules& rules) {
  static const std::set<std::string> all = keys_of_classes();
  Shared out;
  for (const auto& [key, value] : config.as_object()) {
    if (value.is_null() || !all.count(key) || contains(table_words("other_keys"), key)) continue;
    ++out.keys;
    out.known += rules.defaults.find(key) != nullptr || names_key(rules, key) ||
                 (rules.rotates() && contains(kRotaryKeys, key));
  }
  return out;
}

// "did you mean llama? ": a class whose name is near, unless the file contradicts it or brings code of
// its own.
std::string by_spelling(std::string_view type, const Json& config, const SchemeSigns* said) {
  if (type.empty() || !code_of(config).empty()) return "";
  std::vector<std::string_view> known;
  for (const auto& [name, rules] : all_class_rules()) known.push_back(name);
  const std::string_view meant = nearest_word(type, known);
  if (meant.empty()) return "";
  const ClassRules& rules = *class_rules(meant);
  const Shared s = shared(config, rules);
  return may_have(rules, said) && (s.keys < 3 || s.fits())
             ? "did you mean " + std::string(meant) + "? "
             : "";
}

// "its keys are those of gpt2 (GPT2Config); ": of the classes that read the most of them a common one,
// or the only one.
std::string by_keys(const Json& config, const SchemeSigns* said) {
  constexpr std::size_t kFewest = 4;
  const std::pair<std::string, ClassRules>* best = nullptr;
  std::size_t most = 0, equal = 0;
  bool common = false;
  for (const auto& one : all_class_rules()) {
    const Shared s = shared(config, one.second);
    if (s.keys < kFewest || !s.fits() || s.known < most || one.second.scheme.empty()) continue;
    equal = s.known > most ? 1 : equal + 1;
    const bool usual = contains(table_words("common_types"), one.first);
    if (s.known > most || (usual && !common)) best = &one, common = usual;
    most = s.known;
  }
  if (!best || (!common && equal > 1)) return "";
  const auto& [name, rules] = *best;
  const bool other = !may_have(rules, said);
  return message("its keys are those of {} ({}){}; ", name, rules.class_name,
                 other ? message(", which has no {}", said->called) : "");
}

std::string by_scheme(const SchemeSigns* said) {
  return said ? said->advice
              : "nothing in the file speaks of rotary: read the model's code; --assume "
                "model_type=... takes a known class's rules, as bert for learned positions";
}

}  // namespace

std::string advice_on_type(std::string_view type, const Json& config) {
  const SchemeSigns* said = scheme_said(config);
  const std::string code = code_of(config);
  std::string meant = by_spelling(type, config, said);
  if (meant.empty()) meant = by_keys(config, said);
  if (!code.empty())
    meant += message("its code is {} (auto_map), which says how channels pair and who sees whom; ",
                     code);
  return meant + by_scheme(said);
}

}  // namespace posenc::v0::hf
