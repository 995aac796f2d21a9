// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/onnx_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

using Bytes = std::span<const std::byte>;

// One field of a message: a number (varint, fixed32, fixed64) or a run of bytes.
struct Field {
  std::uint64_t number = 0, wire = 0, value = 0;
  Bytes bytes;
};

// Steps through the fields of one message.
class Message {
 public:
  Message(Bytes bytes, const std::byte* file_begin, const std::string& file)
      : bytes_(bytes), begin_(file_begin), file_(file) {}

  std::optional<Field> next() {
    if (at_ == bytes_.size()) return {};
    Field f;
    const std::uint64_t key = varint();
    f.number = key >> 3;
    f.wire = key & 7;
    if (f.number == 0) fail("a field has number 0");
    if (f.wire == 0) {
      f.value = varint();
    } else if (f.wire == 1 || f.wire == 5) {
      f.bytes = take(f.wire == 1 ? 8 : 4);
    } else if (f.wire == 2) {
      f.bytes = take(varint());
    } else {
      fail("a field has wire type " + std::to_string(f.wire));
    }
    return f;
  }
  // Repeated numbers come packed in one run or one field each.
  void varints(const Field& f, std::vector<std::int64_t>& out) const {
    if (f.wire == 0) {
      out.push_back(static_cast<std::int64_t>(f.value));
      return;
    }
    expect_wire(f, 2);
    Message packed(f.bytes, begin_, file_);
    while (packed.at_ < packed.bytes_.size())
      out.push_back(static_cast<std::int64_t>(packed.varint()));
  }
  Message inner(const Field& f) const {
    expect_wire(f, 2);
    return {f.bytes, begin_, file_};
  }
  std::string text(const Field& f) const {
    expect_wire(f, 2);
    return {reinterpret_cast<const char*>(f.bytes.data()), f.bytes.size()};
  }
  std::int64_t integer(const Field& f) const {
    expect_wire(f, 0);
    return static_cast<std::int64_t>(f.value);
  }
  void expect_wire(const Field& f, std::uint64_t wire) const {
    if (f.wire != wire) fail("field " + std::to_string(f.number) + " has another wire type");
  }
  [[noreturn]] void fail(const std::string& problem) const {
    const auto byte = bytes_.data() - begin_ + static_cast<std::ptrdiff_t>(at_);
    throw FormatError(file_, "byte " + std::to_string(byte), problem);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at_ == bytes_.size()) fail("the file ends inside a number");
      const auto b = std::to_integer<std::uint64_t>(bytes_[at_++]);
      if (shift == 63 && b > 1) fail("a number does not fit 64 bits");
      value |= (b & 127) << shift;
      if (b < 128) return value;
    }
    fail("a number is longer than 10 bytes");
  }
  Bytes take(std::uint64_t size) {
    if (size > bytes_.size() - at_)
      fail("a length of " + std::to_string(size) + " reaches past the end");
    const Bytes run = bytes_.subspan(at_, size);
    at_ += size;
    return run;
  }

  Bytes bytes_;
  const std::byte* begin_;
  const std::string& file_;
  std::size_t at_ = 0;
};

DType dtype_from_onnx(const Message& m, std::int64_t type) {
  switch (type) {
    case 1:
      return DType::f32;
    case 2:
    case 9:  // bool, a byte each
      return DType::u8;
    case 6:
      return DType::i32;
    case 7:
      return DType::i64;
    case 10:
      return DType::f16;
    case 11:
      return DType::f64;
    case 16:
      return DType::bf16;
    default:
      m.fail("tensor type " + std::to_string(type) + " is not read here");
  }
}

// Elements as they come; raw_data wins, as ONNX says.
struct Elements {
  std::vector<std::int64_t> dims, integers;
  std::int64_t type = 0;
  std::string name;
  bool raw = false, external = false;
  std::vector<std::byte> bytes;  // raw_data, float_data or double_data
};

Elements elements_of(Message& m) {
  Elements e;
  std::vector<std::byte> typed;
  while (const auto f = m.next()) {
    if (f->number == 1) m.varints(*f, e.dims);
    if (f->number == 2) e.type = m.integer(*f);
    if (f->number == 4 || f->number == 10)
      typed.insert(typed.end(), f->bytes.begin(), f->bytes.end());
    if (f->number == 5 || f->number == 7) m.varints(*f, e.integers);
    if (f->number == 8) e.name = m.text(*f);
    if (f->number == 9) {
      m.expect_wire(*f, 2);
      e.raw = true;
      e.bytes.assign(f->bytes.begin(), f->bytes.end());
    }
    if (f->number == 13 || (f->number == 14 && f->value != 0)) e.external = true;
  }
  if (!e.raw) e.bytes = std::move(typed);
  return e;
}

// int32_data holds i32, bytes and, in its low half, the bits of f16 and bf16; int64_data i64.
void append_integers(const Message& m, const Elements& e, DType dtype, std::vector<std::byte>& to) {
  const auto size = static_cast<std::size_t>(size_of(dtype));
  for (const std::int64_t v : e.integers) {
    if (size == 1 && (v < 0 || v > 0xFF)) m.fail("a byte exceeds 8 bits");
    if (size == 2 && (v < 0 || v > 0xFFFF)) m.fail("bits of a 16-bit number exceed 16");
    if (size == 4 && v != static_cast<std::int32_t>(v)) m.fail("an i32 exceeds 32 bits");
    const auto bits = static_cast<std::uint64_t>(v);
    for (std::size_t i = 0; i < size; ++i)
      to.push_back(static_cast<std::byte>((bits >> (8 * i)) & 255));
  }
}

Array tensor_of(Message m, std::string* name) {
  Elements e = elements_of(m);
  if (e.external) m.fail("the tensor's data lie in another file");
  const DType dtype = dtype_from_onnx(m, e.type);
  if (!e.raw && dtype != DType::f32 && dtype != DType::f64) append_integers(m, e, dtype, e.bytes);
  // Dims beside one of 0 must fit too: strides are made of them.
  Index size = size_of(dtype);
  bool none = false;
  for (const std::int64_t d : e.dims) {
    if (d < 0 || (d > 0 && size > kUnbounded / d))
      m.fail("the tensor's dims must be 0 or more, and their product fit 2^63 bytes");
    size *= std::max<std::int64_t>(d, 1);
    none = none || d == 0;
  }
  if (none) size = 0;
  if (static_cast<std::uint64_t>(size) > e.bytes.size())
    m.fail("the tensor's dims ask for more data than it has");
  if (static_cast<std::uint64_t>(size) < e.bytes.size())
    m.fail("the tensor has more data than its dims ask for");
  if (name != nullptr) *name = e.name;
  Array a;
  a.dtype = dtype;
  a.shape.assign(e.dims.begin(), e.dims.end());
  a.bytes = std::move(e.bytes);
  return a;
}

void attribute_of(Message m, OnnxNode& node) {
  std::string name;
  std::optional<std::int64_t> i;
  std::optional<float> x;
  while (const auto f = m.next()) {
    if (f->number == 1) name = m.text(*f);
    if (f->number == 2) {
      m.expect_wire(*f, 5);
      float v = 0;
      std::memcpy(&v, f->bytes.data(), 4);
      x = v;
    }
    if (f->number == 3) i = m.integer(*f);
  }
  if (i) node.integers[name] = *i;
  if (x) node.floats[name] = *x;
}

OnnxNode node_of(Message m) {
  OnnxNode node;
  while (const auto f = m.next()) {
    if (f->number == 1) node.inputs.push_back(m.text(*f));
    if (f->number == 2) node.outputs.push_back(m.text(*f));
    if (f->number == 4) node.op_type = m.text(*f);
    if (f->number == 5) attribute_of(m.inner(*f), node);
    if (f->number == 7) node.domain = m.text(*f);
  }
  return node;
}

std::string value_name(Message m) {
  std::string name;
  while (const auto f = m.next())
    if (f->number == 1) name = m.text(*f);
  return name;
}

void graph_of(Message m, OnnxModel& model) {
  std::vector<std::string> inputs;
  while (const auto f = m.next()) {
    if (f->number == 1) model.nodes.push_back(node_of(m.inner(*f)));
    if (f->number == 5) {
      std::string name;
      Array value = tensor_of(m.inner(*f), &name);
      model.initializers[name] = std::move(value);
    }
    if (f->number == 11) inputs.push_back(value_name(m.inner(*f)));
  }
  for (std::string& name : inputs)
    if (model.initializers.count(name) == 0) model.inputs.push_back(std::move(name));
}

}  // namespace

OnnxModel parse_onnx_model(std::span<const std::byte> bytes, const std::string& file) {
  static_assert(std::endian::native == std::endian::little);
  OnnxModel model;
  bool graph = false;
  Message m(bytes, bytes.data(), file);
  while (const auto f = m.next())
    if (f->number == 7) {
      graph = true;
      graph_of(m.inner(*f), model);
    }
  if (!graph) throw FormatError(file, "byte 0", "holds no graph");
  return model;
}

Array parse_onnx_tensor(std::span<const std::byte> bytes, const std::string& file) {
  return tensor_of(Message(bytes, bytes.data(), file), nullptr);
}

}  // namespace posenc::conformance
