// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/spec.h"

namespace posenc {
namespace {

// Added unless the reader has said it already, as itself or as a scheme's own field.
void add(LayerSpec& layer, const char* name, Json value, const std::string& where) {
  if (!layer.field(name)) layer.fields.push_back({name, std::move(value), Origin::derived, where});
}

}  // namespace

void complete_fields(LayerSpec& layer) {
  const std::string kind(enum_text(layer.attention.kind));
  add(layer, "attention", kind, "the layer's place");
  if (layer.attention.left || layer.attention.right)
    add(layer, "window", nullptr, "attention " + kind + ": nothing else limits what is seen");
  add(layer, "scheme", layer.scheme, "the layer's place");
  if (!layer.rotary || layer.rotary->blocks.empty()) return;
  const RotarySpec& spec = *layer.rotary;
  const RotaryBlock& first = spec.blocks.front();
  const std::string where = layer.encodings.empty() ? std::string("the definition")
                                                    : to_text(layer.encodings.front().value);
  add(layer, "head_dim", spec.head_dim, where);
  add(layer, "rotary_dim", first.width(), where);
  add(layer, "offset", first.offset, where);
  add(layer, "pairing", std::string(enum_text(first.pairing)), where);
  add(layer, "direction", static_cast<std::int64_t>(first.direction), where);
  add(layer, "output_order", std::string(enum_text(first.output_order)), where);
  add(layer, "attention_factor", first.spectrum.gain, where);
  add(layer, "logit_factor", spec.logit_factor(), where);
  add(layer, "inv_freq", where, "the text, resolved for the context");
  if (first.spectrum.axes > 1)
    add(layer, "axes", static_cast<std::int64_t>(first.spectrum.axes), where);
}

}  // namespace posenc
