// SPDX-License-Identifier: Apache-2.0
// Whose code computes the positions, where it is not transformers' own.
#pragma once
#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {

// Whose code is meant, where it is not transformers' own: a note.
void remote_code(const ConfigView&);
// The code that auto_map names beside a type of transformers: a note. After it `own_code` says which
// code; empty where there is none.
void code_of_known_type(const ConfigView& whole, const ConfigView& text);
std::string own_code(const ConfigView&);
// What auto_map of one object names for the model, else for its configuration; empty: nothing.
std::string code_of(const Json& object);

}  // namespace posenc::v0::hf
