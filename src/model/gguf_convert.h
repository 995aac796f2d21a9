// SPDX-License-Identifier: Apache-2.0
// A config.json read as llama.cpp reads the model after its converter.
#pragma once
#include <string>

#include "model/config_view.h"

namespace posenc::hf {

ModelSpec read_as_llama_cpp(const Json& config, const std::string& file, const std::string& name,
                            const ReadOptions&);

}  // namespace posenc::hf
