// SPDX-License-Identifier: Apache-2.0
// One node of ONNX's tests against its tensors, of any shapes: an outcome, and a report that is JSON.
// {"op": "Attention", "inputs": ["Q", ...], "outputs": ["Y"], "integers": {}, "floats": {}, "tensors": {...}}
#include "conformance/runner/onnx_node.h"
#include "fuzz/law.h"
#include "fuzz/written_arrays.h"
#include "posenc/core/error.h"

namespace {

std::vector<std::string> names(const posenc::Json* list) {
  std::vector<std::string> all;
  if (list != nullptr && list->is_array())
    for (const posenc::Json& name : list->as_array())
      all.push_back(name.is_string() ? name.as_string() : "");
  return all;
}

posenc::conformance::OnnxNode node_of(const posenc::Json& input) {
  posenc::conformance::OnnxNode node;
  const posenc::Json* op = input.find("op");
  node.op_type = op != nullptr && op->is_string() ? op->as_string() : "Attention";
  node.inputs = names(input.find("inputs"));
  node.outputs = names(input.find("outputs"));
  if (const posenc::Json* integers = input.find("integers"); integers && integers->is_object())
    for (const auto& [name, x] : integers->as_object())
      if (x.is_integer()) node.integers[name] = x.as_integer();
  if (const posenc::Json* floats = input.find("floats"); floats && floats->is_object())
    for (const auto& [name, x] : floats->as_object())
      if (x.is_number()) node.floats[name] = static_cast<float>(x.as_number());
  return node;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace posenc;
  Json input;
  try {
    input = parse_json(fuzz::text(data, size), "input");
  } catch (const FormatError&) {
    return 0;
  }
  const Json report = conformance::onnx_case(
      "node",
      conformance::run_onnx_node(node_of(input), fuzz::written_arrays(input.find("tensors"))));
  const std::string& outcome = report.at("outcome").as_string();
  fuzz::law(outcome == "pass" || outcome == "fail" || outcome == "not_expressible", "an outcome");
  fuzz::law(parse_json(report.dump(), "report") == report, "parse(dump(x)) == x");
  return 0;
}
