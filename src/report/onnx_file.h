// SPDX-License-Identifier: Apache-2.0
// An ONNX model of one node as bytes. Messages and their field numbers: onnx/onnx.proto of ONNX
// 1.18, IR version 11.
#pragma once
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "posenc/io/array.h"

namespace posenc::report {

struct OnnxNode {
  // A tensor that the caller gives or gets; an axis is a size or a name.
  struct Value {
    std::string name;
    DType dtype = DType::f32;
    std::vector<std::variant<Index, std::string>> shape{};
  };
  std::string op_type, text;  // text: of the graph, for people
  std::vector<std::pair<std::string, std::variant<Index, float>>> attributes{};
  std::vector<std::string> inputs{};                  // in the operator's order
  std::vector<Value> given{};                         // those of the caller
  std::vector<std::pair<std::string, Array>> held{};  // the others: initializers
  Value output{};
};
// The number of a type in onnx.proto. Throws InputError: f64 and others that no node here takes.
Index onnx_type(DType);
// Throws InputError where the model exceeds the 2 GiB of a protobuf message.
std::string onnx_bytes(const OnnxNode&, Index operator_set);

}  // namespace posenc::report
