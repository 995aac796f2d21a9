// SPDX-License-Identifier: Apache-2.0
// A config of diffusers, by its _class_name.
#pragma once
#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

bool is_diffusers(const Json& config);
void read_diffusers(const Json& config, Report&, ModelSpec&);

}  // namespace posenc::v0::hf
