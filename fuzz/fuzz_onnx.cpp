// SPDX-License-Identifier: Apache-2.0
// ONNX models and tensors of the node tests: refused by FormatError, or whole. A model whose initializers are all its
// tensors is run; its report is JSON, whatever bytes its names hold.
#include "conformance/runner/onnx_node.h"
#include "conformance/runner/suite.h"
#include "fuzz/law.h"
#include "posenc/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  const auto input = fuzz::bytes(data, size);
  try {
    const conformance::OnnxModel model = conformance::parse_onnx_model(input, "input");
    for (const auto& [name, a] : model.initializers)
      fuzz::law(static_cast<Index>(a.doubles().size()) == a.count(), "initializers are whole");
    const conformance::OnnxNode& node = conformance::only_node(model);
    const Json report =
        conformance::onnx_case(node.op_type, conformance::run_onnx_node(node, model.initializers));
    fuzz::law(parse_json(report.dump(), "report") == report, "parse(dump(x)) == x");
  } catch (const FormatError&) {
  } catch (const conformance::NotExpressible&) {
  }
  try {
    const Array a = conformance::parse_onnx_tensor(input, "input");
    fuzz::law(static_cast<Index>(a.doubles().size()) == a.count(), "tensors are whole");
  } catch (const FormatError&) {
  }
  return 0;
}
