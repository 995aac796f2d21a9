// SPDX-License-Identifier: Apache-2.0
// config.json: what is no JSON is refused by FormatError; everything else is read into a model
// whose findings say what is wrong, and both reports are JSON that reads back.
#include "fuzz/law.h"
#include "posenc/core/error.h"
#include "posenc/model/read.h"

namespace {

void examine(const posenc::Json& config, const char* reader) {
  using namespace posenc;
  ReadOptions options;
  options.reader = reader;
  const ModelSpec model = read_hugging_face(config, "input", options);
  const Json explained = explain_json(model);
  fuzz::law(parse_json(explained.dump(), "explain") == explained, "parse(dump(x)) == x");
  const Json examined = doctor_json(doctor(model));
  fuzz::law(parse_json(examined.dump(), "doctor") == examined, "parse(dump(x)) == x");
  for (const LayerSpec& layer : model.layers)
    if (layer.rotary) check_rotary(*layer.rotary);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  posenc::Json config;
  try {
    config = posenc::parse_config(posenc::fuzz::text(data, size), "input");
  } catch (const posenc::FormatError&) {
    return 0;
  }
  examine(config, "");
  examine(config, "llama_cpp");  // the converter's file must always be one that can be parsed
  return 0;
}
