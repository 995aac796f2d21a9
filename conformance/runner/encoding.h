// SPDX-License-Identifier: Apache-2.0
// What a check is about: a scheme in the grammar, or a layer of a model.
#pragma once
#include "conformance/runner/check.h"
#include "posenc/model/read.h"
#include "posenc/rotary/spec.h"

namespace posenc::conformance {

// The check's `model`: "$config" an object of params, "$config_file" or "$file" a path in params,
// anything else a path; relative to the suite. `context`, `reader` and `assume` are handed on.
ModelSpec read_case_model(const Check&);
// The file of the check's `model`, for operations that read bytes.
std::filesystem::path model_path(const Check&);
// Index of the layer the check means: `layer` a number, or `layer_type` in transformers' words (the
// first layer with that attention and a rotation); default: the first layer with a rotation.
const LayerSpec& layer_of(const Check&, const ModelSpec&);

// `scheme` or `model` resolved for `context`; then `frequencies` (an array instead of those of the
// first block), `part: rotary` (the turned window alone) and `precision` are put in.
RotarySpec rotary_of(const Check&);
// The frequencies of `scheme` after its scalings, for schemes that are no rotation.
Spectrum spectrum_of(const Check&);
// The scheme as written, parsed with the case's arrays behind @name.
Encoding encoding_of(const Check&, std::string_view key = "scheme");

}  // namespace posenc::conformance
