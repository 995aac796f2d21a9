// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/config_view.h"

namespace posenc::data {
extern const std::string_view hugging_face_models;
}

namespace posenc::hf {

const Json& model_entries() {
  static const Json table = parse_json(data::hugging_face_models, "hugging_face_models.json");
  return table.at("model_types");
}

const Json* model_entry(std::string_view model_type) {
  return model_entries().find(model_type);
}

}  // namespace posenc::hf
