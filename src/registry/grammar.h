// SPDX-License-Identifier: Apache-2.0
// The SCHEME grammar without types: words, values, text. registry.cpp puts the types in.
//   encoding = part *(" + " part)      part = name *(blank key "=" value)
//   value = number | word | "text" | [number,number] | @array | none
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/array_lookup.h"
#include "posenc/registry/fields.h"
#include "registry/field_ref.h"

namespace posenc::inline v0::grammar {

struct Part {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // key, value as written
  bool preset = false;  // a preset was taken out of it, which sets what is required
};
// At least one part. Throws [scheme] on a stray "+", a missing "=", an open bracket or quote.
std::vector<Part> split(std::string_view text);

// A name that stands for settings, and the numbers that must be given with it.
struct PresetName {
  std::string_view name;
  std::vector<std::string_view> sizes;
};
struct ChosenPreset {
  std::size_t index;  // in the list
  std::vector<Index> sizes;
};
// Takes preset=NAME out of the part, and the sizes that are no fields of the scheme; none where no
// preset is named. Throws [scheme].
std::optional<ChosenPreset> take_preset(Part& part, const std::vector<PresetName>& known,
                                        const std::vector<FieldRef>& fields);

// Sets the fields that `part` gives and checks all of it: unknown and repeated keys, types, ranges,
// what is required and no preset has set. `fields` refer to a value that holds the defaults, or
// what a preset made of them; `defaults` to the defaults.
void assign(const Part& part, const std::vector<FieldRef>& fields,
            const std::vector<FieldRef>& defaults, const ArrayLookup& arrays);

// Sets one field by its name and checks its type and range; a text is read as `assign` reads it.
// The index of the field in `fields`. `part`: the name of the scheme, for errors.
std::size_t set_value(std::string_view part, std::string_view name,
                      const std::vector<FieldRef>& fields, const Json& value);

// "name key=value ...": required fields, and those whose text differs from the default's.
std::string print(std::string_view name, const std::vector<FieldRef>& fields,
                  const std::vector<FieldRef>& defaults);

// Throws [scheme]: unknown, the nearest of `known` if one is near, and all of them. `field`: what the value was for.
[[noreturn]] void refuse_unknown(std::string_view what, std::string_view got,
                                 const std::vector<std::string_view>& known,
                                 std::string_view field = {});

std::string value_text(const ValueRef&);
Json value_json(const ValueRef&);
FieldInfo field_info(const FieldRef& of_default);

}  // namespace posenc::v0::grammar
