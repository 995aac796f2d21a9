// SPDX-License-Identifier: Apache-2.0
// The registry as data: for `posenc list`, JSON, docs and bindings.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/describe.h"
#include "posenc/io/json.h"
#include "posenc/registry.h"

namespace posenc::inline v0 {

struct FieldInfo {
  std::string_view name;
  std::string type;  // number, integer, boolean, text, list of numbers (integers, words), a|b|c
  std::string_view doc, unit;
  std::optional<double> min, max;  // inclusive; none = unbounded
  bool required = false;
  bool optional = false;                  // may be none
  std::string default_text;               // as the SCHEME grammar writes it
  Json default_value;                     // the same by its type; null: required, or none
  std::string_view default_from;          // the formula of other fields: "head_dim - offset"
  std::vector<std::string_view> choices;  // of a named enum or a list of it, else empty
};

// Settings of a program: "preset=NAME" with all of `sizes` in the SCHEME grammar.
struct PresetInfo {
  std::string_view name;
  std::string short_text;               // "sinusoidal preset=fairseq width=512", a usual size
  std::string text;                     // all fields that it sets there
  std::vector<std::string_view> sizes;  // keys that are required with it: width
  Json fields;                          // {name: value} of all fields there, by their types
};

struct SchemeInfo {
  Card card;
  std::string_view family;  // rotary, polar, absolute, input module, relative, scaling
  std::vector<FieldInfo> fields;
  std::vector<PresetInfo> presets;
};

// In the order of the registry.
POSENC_API std::vector<SchemeInfo> all_schemes();
POSENC_API std::vector<SchemeInfo> all_scalings();

// All of it as JSON: the "schemes" and "scalings" of posenc.list/1 (docs/interfaces.md).
POSENC_API Json to_json(const SchemeInfo&);
POSENC_API Json registry_json();

// One scaling as the SCHEME grammar writes it after a +: "yarn factor=4 original_context=4096".
// parse_scaling(to_text(s)) == s. Throws [scheme].
POSENC_API Scaling parse_scaling(std::string_view);

// The most similar word of `known`, by the fewest changed letters; empty if none is similar.
POSENC_API std::string_view nearest_word(std::string_view, std::span<const std::string_view> known);

// Every field with its value, in the order of describe: {"name": "rope", "fields": {...}}; enums as
// their text, empty optionals as null. An encoding adds "scalings": [...].
POSENC_API Json to_json(const Scheme&);
POSENC_API Json to_json(const Scaling&);
POSENC_API Json to_json(const Encoding&);

// Equal values have equal hashes, on every machine.
POSENC_API std::uint64_t hash(const Scheme&);
POSENC_API std::uint64_t hash(const Scaling&);
POSENC_API std::uint64_t hash(const Encoding&);

}  // namespace posenc::v0
