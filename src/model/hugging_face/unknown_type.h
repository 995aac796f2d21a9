// SPDX-License-Identifier: Apache-2.0
// A model type that the table does not have.
#pragma once
#include <string_view>

#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {

// What a person can do about a model type that is not known.
std::string advice_on_type(std::string_view type, const Json& config);

}  // namespace posenc::v0::hf
