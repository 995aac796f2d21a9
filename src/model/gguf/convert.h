// SPDX-License-Identifier: Apache-2.0
// A config.json read as llama.cpp reads the model after its converter, and a GGUF file as
// transformers loads it.
#pragma once
#include <string>

#include "model/hugging_face/config_view.h"
#include "posenc/io/gguf.h"
#include "posenc/model/read.h"

namespace posenc::gguf {

// As llama.cpp reads it.
ModelSpec read_file(const GgufFile&, const ReadOptions&);

}  // namespace posenc::gguf
namespace posenc::hf {

// data/gguf_conversion.json
const Json& gguf_conversions();

ModelSpec read_as_llama_cpp(const Json& config, const std::string& file, const std::string& name,
                            const ReadOptions&);
ModelSpec read_as_transformers(const GgufFile&, const std::string& file, const ReadOptions&);

}  // namespace posenc::hf
