// SPDX-License-Identifier: Apache-2.0
// The parts of a composite file (text_config, vision_config): which object holds a part, of which
// class it is, and what the class around it holds for what the part does not say.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {

struct Part {
  std::string pointer, model_type;
  const Json* object = nullptr;       // never null: an empty one for a part that is missing
  const ClassRules* rules = nullptr;  // null: the model type is not known
  Dict held;                          // stands under the object's keys
  std::shared_ptr<const Json> made;   // the object, where the file has no single one
  std::shared_ptr<const ClassRules> own_rules;  // `rules`, where the class around it has its own
  bool missing = false;  // the file has none, and no keys of it at its top level

  ConfigView view(Report& report) const { return {*object, pointer, *rules, report, &held}; }
};

// None after a finding. `about`: what the table says of the part.
std::optional<Part> part_of(const ConfigView& whole, const std::string& key,
                            const PartRules& about);

// Findings: a text part that is missing, and keys of it that stand where nobody looks.
void text_keys_outside(const ConfigView& whole, const Part&, const std::string& key);

}  // namespace posenc::v0::hf
