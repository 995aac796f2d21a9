// SPDX-License-Identifier: Apache-2.0
#include "posenc/registry/complete.h"

#include <algorithm>

#include "posenc/registry/fields.h"
#include "registry/encoding_fields.h"
#include "registry/grammar.h"

namespace posenc::inline v0 {
namespace {

Index width_of(const ModelSizes& s) {
  return s.width != 0 ? s.width : s.heads * s.head_dim;
}

std::string text_of(Index size) {
  return size == 0 ? "" : std::to_string(size);
}

bool is_given(const grammar::Part& part, std::string_view key) {
  return std::any_of(part.values.begin(), part.values.end(),
                     [&](const auto& v) { return v.first == key; });
}

// The rows of these count positions; those of `indexed` are the caller's.
bool has_row_a_position(std::string_view scheme) {
  for (const std::string_view name :
       {"learned", "transformer_xl_learned", "conformer_absolute_key"})
    if (scheme == name) return true;
  return false;
}

// The width of these is that of the hidden state; elsewhere in the score it is a network's.
bool has_model_width(std::string_view scheme, bool relative) {
  return !relative || scheme == "relative_projection";
}

// The value of a required field; empty: no size gives it.
std::string value_of(std::string_view field, std::string_view scheme, bool relative,
                     const ModelSizes& s) {
  if (field == "head_dim") return text_of(s.head_dim);
  if (field == "d_model" || (field == "width" && has_model_width(scheme, relative)))
    return text_of(width_of(s));
  if (field == "rows" && has_row_a_position(scheme)) return text_of(s.rows);
  if (field == "bidirectional" && s.causal) return *s.causal ? "false" : "true";
  return "";
}

std::string preset_size(std::string_view key, const ModelSizes& s) {
  if (key == "heads") return text_of(s.heads);
  if (key == "head_dim") return text_of(s.head_dim);
  if (key == "width" || key == "d_model") return text_of(width_of(s));
  if (key == "positions" || key == "length") return text_of(s.rows);
  return "";
}

// Adds what follows to the first part, the scheme.
std::vector<std::string> fill(grammar::Part& part, Scheme scheme, const ModelSizes& sizes) {
  std::vector<std::string> filled;
  const auto add = [&](std::string_view key, std::string value) {
    if (value.empty() || is_given(part, key)) return;
    part.values.emplace_back(key, std::move(value));
    filled.emplace_back(key);
  };
  const auto preset = std::find_if(part.values.begin(), part.values.end(),
                                   [](const auto& v) { return v.first == "preset"; });
  if (preset == part.values.end()) {
    const bool relative = is_relative(scheme);
    for (const FieldRef& f : field_refs(scheme))
      if (f.field.required) add(f.name, value_of(f.name, part.name, relative, sizes));
    return filled;
  }
  const std::string wanted = preset->second;
  for (const SchemeInfo& info : all_schemes())
    for (const PresetInfo& p : info.presets)
      if (info.card.name == part.name && p.name == wanted)
        for (const std::string_view key : p.sizes) add(key, preset_size(key, sizes));
  return filled;
}

std::string joined(const std::vector<grammar::Part>& parts) {
  std::string text;
  for (const grammar::Part& part : parts) {
    text += (text.empty() ? "" : " + ") + part.name;
    for (const auto& [key, value] : part.values) text.append(" ").append(key + "=" + value);
  }
  return text;
}

}  // namespace

Completed complete(std::string_view scheme, const ModelSizes& sizes) {
  return complete(scheme, sizes, ArrayLookup());
}

Completed complete(std::string_view scheme, const ModelSizes& sizes, const ArrayLookup& arrays) {
  std::vector<grammar::Part> parts = grammar::split(scheme);
  const std::optional<Scheme> known = default_scheme(parts.front().name);
  if (!known) return {parse_encoding(scheme, arrays), {}};  // says what is wrong
  std::vector<std::string> filled = fill(parts.front(), *known, sizes);
  if (filled.empty()) return {parse_encoding(scheme, arrays), {}};
  return {parse_encoding(joined(parts), arrays), std::move(filled)};
}

}  // namespace posenc::v0
