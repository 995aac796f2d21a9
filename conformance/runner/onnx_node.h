// SPDX-License-Identifier: Apache-2.0
// One node of ONNX's tests against its tensors, without files.
#pragma once
#include <string>

#include "conformance/runner/onnx_file.h"
#include "posenc/io/json.h"

namespace posenc::conformance {

struct OnnxResult {
  std::string outcome = "pass", reason = {};  // pass | fail | not_expressible
  Json worst = Json(nullptr);
  std::string op = "rotate_rows";
};

// The node of a graph of one node that is ONNX's RotaryEmbedding or Attention. Throws NotExpressible.
const OnnxNode& only_node(const OnnxModel&);
// `tensors` by the names of the graph: inputs, initializers, and the outputs to compare with.
OnnxResult run_onnx_node(const OnnxNode&, const Arrays& tensors);
// A case of posenc.selftest/1. Names and reasons may hold bytes of a file that are not UTF-8.
Json onnx_case(const std::string& name, const OnnxResult&);

}  // namespace posenc::conformance
