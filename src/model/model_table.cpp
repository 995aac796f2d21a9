// SPDX-License-Identifier: Apache-2.0
#include "model/config_view.h"

namespace posenc::data {
extern const std::string_view hugging_face_models;
}

namespace posenc::hf {

const Json* model_entry(std::string_view model_type) {
  static const Json table = parse_json(data::hugging_face_models, "hugging_face_models.json");
  return table.at("model_types").find(model_type);
}

}  // namespace posenc::hf
