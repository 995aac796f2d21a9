// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "model/hugging_face/config_view.h"

namespace posenc::data {
extern const std::string_view hugging_face_models;
}

namespace posenc::hf {

const Json& table_member(std::string_view name) {
  static const Json table = parse_json(data::hugging_face_models, "hugging_face_models.json");
  return table.at(name);
}

const Json& model_entries() {
  return table_member("model_types");
}

std::shared_ptr<const ClassRules> rules_of(const Json& entry) {
  static const auto by_entry = [] {
    std::map<const Json*, const ClassRules*> out;
    for (const auto& [type, one] : model_entries().as_object())
      out.emplace(&one, class_rules(type));
    return out;
  }();
  if (const auto it = by_entry.find(&entry); it != by_entry.end())
    return {std::shared_ptr<const ClassRules>(), it->second};
  return std::make_shared<const ClassRules>(with({}, entry));
}

const Json* model_entry(std::string_view model_type) {
  return model_entries().find(model_type);
}

}  // namespace posenc::hf
