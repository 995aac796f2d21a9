// SPDX-License-Identifier: Apache-2.0
// Code of the model's own repository: classes that transformers does not have, and auto_map beside a
// type that it has.
#include "model/hugging_face/own_code.h"

namespace posenc::inline v0::hf {

// "modeling_x.Model"; a tokenizer or processor is no model.
std::string code_of(const Json& object) {
  const Json* map = object.find("auto_map");
  std::string config, model;
  if (map && map->is_object())
    for (const auto& [key, value] : map->as_object()) {
      if (!value.is_string() || value.as_string().empty()) continue;
      if (key == "AutoConfig") config = value.as_string();
      if (key.starts_with("AutoModel") && model.empty()) model = value.as_string();
    }
  return model.empty() ? config : model;
}

std::string own_code(const ConfigView& view) {
  const std::string inner = code_of(view.object());
  return inner.empty() ? view.report().own_code : inner;
}

void remote_code(const ConfigView& view) {
  const ClassRules& rules = view.rules();
  if (rules.remote.empty()) return;
  view.note("remote_code",
            {"{class} is not in transformers but in the model's own repository (auto_map); posenc "
             "follows {}",
             rules.remote},
            view.where("model_type"),
            "compare it with the code beside the weights if that was changed");
  if (!rules.remote_note.empty())
    view.note("encoding_not_covered", rules.remote_note, view.where("model_type"));
}

void code_of_known_type(const ConfigView& whole, const ConfigView& text) {
  whole.report().own_code = code_of(whole.object());
  const std::string code = own_code(text);
  if (code.empty() || !whole.rules().remote.empty() || !text.rules().remote.empty()) return;
  text.note("remote_code",
            {"auto_map names {}: with trust_remote_code that code runs, and its positions and "
             "masks may differ. posenc follows {class} of transformers",
             code},
            code_of(text.object()).empty() ? whole.where("auto_map") : text.where("auto_map"),
            "compare that code with transformers' class; nothing to do without trust_remote_code");
}

}  // namespace posenc::v0::hf
