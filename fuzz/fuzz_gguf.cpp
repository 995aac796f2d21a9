// SPDX-License-Identifier: Apache-2.0
// GGUF: a broken container is refused by FormatError; everything else is read into a model whose
// findings say what is wrong, and both reports are JSON that reads back.
#include "fuzz/law.h"
#include "posenc/core/error.h"
#include "posenc/model/read.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  ModelSpec model;
  try {
    model = read_gguf(fuzz::bytes(data, size), "input");
  } catch (const FormatError&) {
    return 0;
  }
  const Json explained = explain_json(model);
  fuzz::law(parse_json(explained.dump(), "explain") == explained, "parse(dump(x)) == x");
  const Json examined = doctor_json(doctor(model));
  fuzz::law(parse_json(examined.dump(), "doctor") == examined, "parse(dump(x)) == x");
  for (const LayerSpec& layer : model.layers)
    if (layer.rotary) check_rotary(*layer.rotary);
  return 0;
}
