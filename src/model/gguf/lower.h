// SPDX-License-Identifier: Apache-2.0
// From llama.cpp's operators to encodings, rotary specs and fields with their origin.
#pragma once
#include "model/gguf/hparams.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::gguf {

// Appended to the fields of a layer, each with where it came from.
inline void add_field(LayerSpec& layer, std::string name, Json value, Origin origin,
                      std::string where) {
  layer.fields.push_back({std::move(name), std::move(value), origin, std::move(where)});
}
template <class T>
void add_field(LayerSpec& layer, std::string name, const Sourced<T>& v) {
  add_field(layer, std::move(name), Json(v.value), v.origin, v.where);
}

// One layer, resolved for a context of `length` tokens. Refusals become findings of `keys`.
LayerSpec lower_layer(const Architecture&, const Hparams&, const DivisorTensors&, Keys&,
                      Index layer, Index length);
// The encoding of an operator: scheme and chain of scalings; fields are appended to `layer`.
Encoding lower_operator(const Architecture&, const Hparams&, const DivisorTensors&,
                        const RopeOperator&, LayerSpec& layer);
// The norm of q and k, where the layer's tensors have one and the architecture says which
// (score.cpp).
void add_qk_norm(const Architecture&, const Hparams&, const Keys&, LayerSpec&);
// scale, softcap and sinks of a layer that attends (score.cpp).
void add_score(const Architecture&, const Hparams&, Keys&, LayerSpec&);
// What GGUF loses, what llama.cpp ignores or does otherwise: findings about the whole file.
void note_losses(const Architecture&, const Hparams&, const DivisorTensors&, Keys&,
                 const ModelSpec&);

}  // namespace posenc::v0::gguf
