// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/architecture.h"

#include "model/contains.h"

namespace posenc::data {
extern const std::string_view gguf_architectures;
}

namespace posenc::inline v0::gguf {

const Json* Architecture::fact(std::string_view field, bool (Json::*is)() const) const {
  const Json* j = facts_.find(field);
  return j != nullptr && (j->*is)() ? j : nullptr;
}

bool Architecture::flag(std::string_view field) const {
  const Json* j = fact(field, &Json::is_bool);
  return j != nullptr && j->as_bool();
}

std::string_view Architecture::text(std::string_view field) const {
  const Json* j = fact(field, &Json::is_string);
  return j != nullptr ? std::string_view(j->as_string()) : std::string_view();
}

std::int64_t Architecture::number(std::string_view field, std::int64_t absent) const {
  const Json* j = fact(field, &Json::is_integer);
  return j != nullptr ? j->as_integer() : absent;
}

bool Architecture::lists(std::string_view field, std::string_view item) const {
  const Json* j = fact(field, &Json::is_array);
  return j != nullptr && contains(j->as_array(), Json(item));
}

std::optional<Architecture> Architecture::group(std::string_view field) const {
  const Json* j = fact(field, &Json::is_object);
  return j != nullptr ? std::optional(Architecture(name_, *j)) : std::nullopt;
}

// The file has one architecture a line, so that one line is parsed and not all.
std::optional<Architecture> find_architecture(std::string_view name) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz0123456789_-.";
  if (name.empty() || name.find_first_not_of(allowed) != std::string_view::npos)
    return std::nullopt;
  std::string_view text = data::gguf_architectures;
  text.remove_prefix(text.find("\"architectures\": {"));
  const std::string key = "\n    \"" + std::string(name) + "\": ";
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view line = text.substr(at + key.size());
  line = line.substr(0, line.find_first_of("\n"));
  line = line.substr(0, line.find_last_of('}') + 1);
  return Architecture(std::string(name), parse_json(line, "gguf_architectures.json"));
}

}  // namespace posenc::v0::gguf
