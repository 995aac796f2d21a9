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

// What the sizes of a model say of a scheme's fields.
struct Sized {
  bool rows = false;   // one a position; the rows of `indexed` are the caller's
  bool width = false;  // that of the hidden state; of most in the score it is a network's
};

Sized sized_by_model(const Scheme& scheme) {
  return std::visit(
      [&]<class T>(const T&) {
        Sized out{.width = !is_relative(scheme)};
        if constexpr (requires { T::rows_count_positions; }) out.rows = T::rows_count_positions;
        if constexpr (requires { T::width_is_of_model; }) out.width = T::width_is_of_model;
        return out;
      },
      static_cast<const Schemes::Variant&>(scheme));
}

// The value of a required field; empty: no size gives it.
std::string value_of(std::string_view field, const Sized& sized, const ModelSizes& s) {
  if (field == "head_dim") return text_of(s.head_dim);
  if (field == "d_model" || (field == "width" && sized.width)) return text_of(width_of(s));
  if (field == "rows" && sized.rows) return text_of(s.rows);
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
    const Sized sized = sized_by_model(scheme);
    for (const FieldRef& f : field_refs(scheme))
      if (f.field.required) add(f.name, value_of(f.name, sized, sizes));
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
