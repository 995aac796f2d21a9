// SPDX-License-Identifier: Apache-2.0
// ONNX models and tensors of the node tests: refused by FormatError, or whole.
#include "conformance/runner/onnx_file.h"
#include "fuzz/law.h"
#include "posenc/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  const auto input = fuzz::bytes(data, size);
  try {
    for (const auto& [name, a] : conformance::parse_onnx_model(input, "input").initializers)
      fuzz::law(static_cast<Index>(a.doubles().size()) == a.count(), "initializers are whole");
  } catch (const FormatError&) {
  }
  try {
    const Array a = conformance::parse_onnx_tensor(input, "input");
    fuzz::law(static_cast<Index>(a.doubles().size()) == a.count(), "tensors are whole");
  } catch (const FormatError&) {
  }
  return 0;
}
