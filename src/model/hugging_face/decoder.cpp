// SPDX-License-Identifier: Apache-2.0
// Encoder and decoder in one file (T5, BART, Whisper): the layers of the model are the decoder's,
// as in a GGUF file of the same model; the encoder is a tower.
#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {

// The same file seen by its decoder: its count of layers, its rows at the input, causal.
Json decoder_entry(const ConfigView& encoder) {
  const std::string count = encoder.entry().at("decoder").as_string();
  Json entry = Json::object();
  entry.set("side", "decoder");
  const auto own = encoder.stated(count);
  const Json* held = encoder.entry().at("defaults").find(count);
  // BART counts the layers of its decoder by themselves; T5 as its encoder's unless stated.
  const bool apart = (own && !own->value.is_null()) || (held && !held->is_null());
  for (const auto& [key, value] : encoder.entry().as_object()) {
    if (key == "bidirectional" || key == "decoder" || key == "decoder_input" ||
        key == "decoder_is" || (key == "input_keeps" && encoder.entry().find("decoder_input")))
      continue;
    if (key == "names" && apart) {
      Json names = value;
      names.set("num_hidden_layers", count);
      entry.set(key, names);
    } else if (key == "defaults") {
      Json defaults = value;
      if (held && !held->is_null()) defaults.set("num_hidden_layers", *held);
      entry.set(key, defaults);
    } else {
      entry.set(key, value);
    }
  }
  if (const Json* input = encoder.entry().find("decoder_input")) {
    Json rows = entry.find("names") ? entry.at("names") : Json::object();
    rows.set("max_position_embeddings", input->as_array()[1]);
    entry.set("names", rows);
    entry.set("input", input->as_array()[0]);
    entry.set("input_text", "");
    if (const Json* n = entry.at("defaults").find(input->as_array()[1].as_string())) {
      Json defaults = entry.at("defaults");
      defaults.set("max_position_embeddings", *n);
      entry.set("defaults", defaults);
    }
  }
  if (const Json* more = encoder.entry().find("decoder_is"))
    for (const auto& [key, value] : more->as_object()) entry.set(key, value);
  return entry;
}

}  // namespace posenc::v0::hf
