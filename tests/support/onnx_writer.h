// SPDX-License-Identifier: Apache-2.0
// ONNX tensors and one-node models as the onnx package writes them (protobuf), for tests and for
// the first inputs of the fuzzer. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "posenc/io/array.h"

namespace posenc::test::onnx {

inline std::string varint(std::uint64_t v) {
  std::string out;
  for (; v >= 128; v >>= 7) out += static_cast<char>((v & 127) | 128);
  return out + static_cast<char>(v);
}
inline std::string number(int field, std::uint64_t v) {
  return varint(static_cast<std::uint64_t>(field) << 3) + varint(v);
}
inline std::string run(int field, const std::string& bytes) {
  return varint((static_cast<std::uint64_t>(field) << 3) | 2) + varint(bytes.size()) + bytes;
}

inline std::uint64_t onnx_type(DType t) {
  switch (t) {
    case DType::f32:
      return 1;
    case DType::i32:
      return 6;
    case DType::i64:
      return 7;
    case DType::f16:
      return 10;
    case DType::f64:
      return 11;
    case DType::u8:  // bool
      return 9;
    default:
      return 16;
  }
}

inline std::string raw_bytes(const Array& a) {
  return {reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size()};
}

inline std::string tensor_head(const Array& a) {
  std::string dims;
  for (const Index d : a.shape) dims += number(1, static_cast<std::uint64_t>(d));
  return dims + number(2, onnx_type(a.dtype));
}
inline std::string tensor_pb(const Array& a, const std::string& name) {
  return tensor_head(a) + run(8, name) + run(9, raw_bytes(a));
}
// The same without raw_data: float_data, int64_data, or int32_data with the bits of 16-bit types.
inline std::string typed_tensor_pb(const Array& a) {
  std::string data;
  if (a.dtype == DType::f32) return tensor_head(a) + run(4, raw_bytes(a));
  if (a.dtype == DType::f64) return tensor_head(a) + run(10, raw_bytes(a));
  if (a.dtype == DType::i64) {
    for (const Index v : a.integers()) data += varint(static_cast<std::uint64_t>(v));
    return tensor_head(a) + run(7, data);
  }
  if (a.dtype == DType::u8) {
    for (const std::byte b : a.bytes) data += varint(std::to_integer<std::uint64_t>(b));
    return tensor_head(a) + run(5, data);
  }
  for (std::size_t i = 0; i < a.bytes.size(); i += 2) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, a.bytes.data() + i, 2);
    data += varint(bits);
  }
  return tensor_head(a) + run(5, data);
}

inline std::string attribute_pb(const std::string& name, std::int64_t v) {
  return run(1, name) + number(3, static_cast<std::uint64_t>(v)) + number(20, 2);
}

inline std::string attribute_pb(const std::string& name, float v) {
  std::string bits(4, '\0');
  std::memcpy(bits.data(), &v, 4);
  return run(1, name) + varint((2 << 3) | 5) + bits + number(20, 1);
}

// Any node: "" among inputs or outputs is an optional one left out; whole numbers of `attributes`
// named in `floats` are floats all the same.
inline std::string node_model_pb(const std::string& op, const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& outputs, const Json& attributes,
                                 const std::vector<std::string>& floats) {
  std::string node, graph;
  for (const std::string& name : inputs) node += run(1, name);
  for (const std::string& name : outputs) node += run(2, name);
  node += run(4, op);
  for (const auto& [name, value] : attributes.as_object()) {
    const bool real = std::find(floats.begin(), floats.end(), name) != floats.end();
    node += run(5, real ? attribute_pb(name, static_cast<float>(value.as_number()))
                        : attribute_pb(name, value.as_integer()));
  }
  graph += run(1, node) + run(2, "g");
  for (const std::string& name : inputs)
    if (!name.empty()) graph += run(11, run(1, name));
  for (const std::string& name : outputs)
    if (!name.empty()) graph += run(12, run(1, name));
  return number(1, 10) + run(7, graph) + run(8, run(1, "") + number(2, 24));
}

inline std::string model_pb(const std::vector<std::string>& inputs, const Json& attributes,
                            const std::string& op = "RotaryEmbedding") {
  std::string node, graph;
  for (const std::string& name : inputs) node += run(1, name);
  node += run(2, "output") + run(4, op);
  for (const auto& [name, value] : attributes.as_object())
    node += run(5, attribute_pb(name, value.as_integer()));
  graph += run(1, node) + run(2, "g");
  for (const std::string& name : inputs) graph += run(11, run(1, name));
  graph += run(12, run(1, "output"));
  return number(1, 10) + run(7, graph) + run(8, run(1, "") + number(2, 23));
}

}  // namespace posenc::test::onnx
