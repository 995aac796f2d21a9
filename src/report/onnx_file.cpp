// SPDX-License-Identifier: Apache-2.0
// Protobuf's encoding: a message is a run of fields; a field is its number and wire type as one
// varint, then a varint (0), a length and bytes (2) or four bytes (5).
#include "onnx_file.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <string_view>

#include "common.h"
#include "posenc/version.h"

namespace posenc::report {
namespace {

constexpr Index kLargest = (Index{1} << 31) - 1;

class Message {
 public:
  Message& number(unsigned field, Index value) {
    varint(field << 3);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& bytes(unsigned field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    text_ += value;
    return *this;
  }
  Message& real(unsigned field, float value) {
    varint(field << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) text_ += static_cast<char>(bits >> (8 * i) & 255);
    return *this;
  }
  Message& inner(unsigned field, const Message& m) { return bytes(field, m.text_); }
  std::string take() { return std::move(text_); }

 private:
  void varint(std::uint64_t v) {
    for (; v > 127; v >>= 7) text_ += static_cast<char>((v & 127) | 128);
    text_ += static_cast<char>(v);
  }
  std::string text_;
};

// TensorProto: dims 1, data_type 2, name 8, raw_data 9.
Message tensor_message(const std::string& name, const Array& a) {
  Message m;
  for (const Index n : a.shape) m.number(1, n);
  m.number(2, onnx_type(a.dtype)).bytes(8, name);
  m.bytes(9, {reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size()});
  return m;
}

// ValueInfoProto: name 1, type 2, whose tensor_type 1 has elem_type 1 and shape 2 of dim 1: a
// dim_value 1 or a dim_param 2.
Message value_message(const OnnxNode::Value& v) {
  Message shape, type, whole;
  for (const auto& axis : v.shape) {
    Message dim;
    if (const Index* n = std::get_if<Index>(&axis)) dim.number(1, *n);
    if (const std::string* word = std::get_if<std::string>(&axis)) dim.bytes(2, *word);
    shape.inner(1, dim);
  }
  type.number(1, onnx_type(v.dtype)).inner(2, shape);
  return whole.bytes(1, v.name).inner(2, Message().inner(1, type));
}

// NodeProto: input 1, output 2, name 3, op_type 4, attribute 5. AttributeProto: name 1, f 2, i 3,
// type 20: 1 a float, 2 an integer.
Message node_message(const OnnxNode& n) {
  Message m;
  for (const std::string& name : n.inputs) m.bytes(1, name);
  m.bytes(2, n.output.name).bytes(3, n.op_type).bytes(4, n.op_type);
  for (const auto& [name, value] : n.attributes) {
    Message a;
    a.bytes(1, name);
    if (const float* f = std::get_if<float>(&value)) a.real(2, *f).number(20, 1);
    if (const Index* i = std::get_if<Index>(&value)) a.number(3, *i).number(20, 2);
    m.inner(5, a);
  }
  return m;
}

}  // namespace

Index onnx_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1;
    case DType::i64:
      return 7;
    case DType::f16:
      return 10;
    case DType::bf16:
      return 16;
    default:
      throw InputError(
          fmt::format("RotaryEmbedding and Attention of ONNX take f32, f16 and bf16, "
                      "got {}",
                      dtype_name(dtype)));
  }
}

// ModelProto: ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8 (version
// 2). GraphProto: node 1, name 2, initializer 5, doc_string 10, input 11, output 12.
std::string onnx_bytes(const OnnxNode& n, Index operator_set) {
  Index size = 4096;
  for (const auto& [name, array] : n.held) size += static_cast<Index>(array.bytes.size());
  if (size > kLargest)
    throw InputError(
        fmt::format("an ONNX file holds at most {} bytes, these tensors are {}", kLargest, size));
  Message graph;
  graph.inner(1, node_message(n)).bytes(2, "posenc");
  for (const auto& [name, array] : n.held) graph.inner(5, tensor_message(name, array));
  graph.bytes(10, n.text);
  for (const OnnxNode::Value& v : n.given) graph.inner(11, value_message(v));
  graph.inner(12, value_message(n.output));
  Message model;
  model.number(1, 11).bytes(2, "posenc").bytes(3, kVersion).inner(7, graph);
  return model.inner(8, Message().bytes(1, "").number(2, operator_set)).take();
}

}  // namespace posenc::report
