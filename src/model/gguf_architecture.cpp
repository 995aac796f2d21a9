// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_architecture.h"

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

std::optional<Architecture> find_architecture(std::string_view name) {
  const Json table = parse_json(data::gguf_architectures, "gguf_architectures.json");
  const Json* facts = table.at("architectures").find(name);
  if (facts == nullptr) return std::nullopt;
  return Architecture(std::string(name), *facts);
}

std::string other_prefix(std::string_view key) {
  const std::string_view prefix = key.substr(0, key.find('.'));
  return find_architecture(prefix) ? std::string(prefix) : std::string();
}

}  // namespace posenc::gguf
