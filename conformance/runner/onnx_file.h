// SPDX-License-Identifier: Apache-2.0
// As much of ONNX's protobuf as its node tests need: one graph with its nodes, and tensors. Every
// length is checked against the bytes that are there before it is used; what is not needed is
// stepped over. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "posenc/io/array.h"

namespace posenc::conformance {

struct OnnxNode {
  std::string op_type, domain;
  std::vector<std::string> inputs, outputs;  // "" = an optional one left out
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, float> floats;
};

struct OnnxModel {
  std::vector<OnnxNode> nodes;
  std::vector<std::string> inputs;  // of the graph, in order; initializers not among them
  std::map<std::string, Array> initializers;
};

// Throw FormatError(file, "byte N" or a name, problem): truncated, nested too deep, a tensor whose
// elements are not as many as its dims say, a type that is not f64 f32 f16 bf16 i64 i32 u8 bool, data
// that lie in another file.
OnnxModel parse_onnx_model(std::span<const std::byte>, const std::string& file);
Array parse_onnx_tensor(std::span<const std::byte>, const std::string& file);

}  // namespace posenc::conformance
