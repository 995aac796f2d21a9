// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/architecture.h"

namespace posenc::data {
extern const std::string_view gguf_architectures;
}

namespace posenc::gguf {

bool Architecture::flag(std::string_view field) const {
  const Json* j = facts_.find(field);
  return j != nullptr && j->is_bool() && j->as_bool();
}

std::string_view Architecture::text(std::string_view field) const {
  const Json* j = facts_.find(field);
  return j != nullptr && j->is_string() ? std::string_view(j->as_string()) : std::string_view();
}

std::int64_t Architecture::number(std::string_view field, std::int64_t absent) const {
  const Json* j = facts_.find(field);
  return j != nullptr && j->is_integer() ? j->as_integer() : absent;
}

bool Architecture::lists(std::string_view field, std::string_view item) const {
  const Json* j = facts_.find(field);
  if (j == nullptr || !j->is_array()) return false;
  for (const Json& e : j->as_array())
    if (e.is_string() && e.as_string() == item) return true;
  return false;
}

std::optional<Architecture> Architecture::group(std::string_view field) const {
  const Json* j = facts_.find(field);
  if (j == nullptr || !j->is_object()) return std::nullopt;
  return Architecture(name_, *j);
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

std::string other_prefix(std::string_view key) {
  const std::string_view prefix = key.substr(0, key.find('.'));
  return find_architecture(prefix) ? std::string(prefix) : std::string();
}

}  // namespace posenc::gguf
