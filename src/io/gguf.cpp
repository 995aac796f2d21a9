// SPDX-License-Identifier: Apache-2.0
#include "posenc/io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "io/gguf_reader.h"
#include "io/gguf_types.h"
#include "posenc/core/printable.h"

namespace posenc::inline v0 {
namespace {

using gguf::Cursor;

constexpr std::uint64_t kMaxKey = 65535;      // gguf.md: keys
constexpr std::uint64_t kMaxTensorName = 64;  // gguf.md: tensor names

// Bytes of one value of a fixed-size type; 0 for strings and arrays.
constexpr std::uint64_t width(GgufType t) noexcept {
  switch (t) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      break;
  }
  return 0;
}

GgufType value_type(Cursor& c, std::string_view what) {
  const auto t = c.number<std::uint32_t>(what);
  if (t > static_cast<std::uint32_t>(GgufType::f64))
    c.fail("no value has type " + std::to_string(t));
  return static_cast<GgufType>(t);
}

bool read_bool(Cursor& c) {
  const auto b = c.number<std::uint8_t>("boolean");
  if (b > 1) c.fail("a boolean must be 0 or 1, got " + std::to_string(b));
  return b == 1;
}

GgufArray read_array(Cursor& c) {
  GgufArray a;
  a.type = value_type(c, "element type");
  if (a.type == GgufType::array) c.fail("arrays of arrays are not part of the format");
  a.count = c.number<std::uint64_t>("array length");
  if (const auto w = width(a.type); w != 0) {
    if (a.count > c.left() / w)
      c.fail("array of " + std::to_string(a.count) + " elements reaches past the end of the file");
    a.bytes = c.take(a.count * w, "array");
    return a;
  }
  if (a.count > c.left() / 8)  // a string has at least its length
    c.fail("array of " + std::to_string(a.count) + " strings reaches past the end of the file");
  Cursor begin = c;
  for (std::uint64_t i = 0; i < a.count; ++i) c.text("string");
  a.bytes = begin.take(c.at() - begin.at(), "array");
  return a;
}

void read_value(Cursor& c, GgufValue& v) {
  switch (v.type) {
    case GgufType::u8:
      v.value = std::uint64_t{c.number<std::uint8_t>("value")};
      return;
    case GgufType::i8:
      v.value = std::int64_t{c.number<std::int8_t>("value")};
      return;
    case GgufType::u16:
      v.value = std::uint64_t{c.number<std::uint16_t>("value")};
      return;
    case GgufType::i16:
      v.value = std::int64_t{c.number<std::int16_t>("value")};
      return;
    case GgufType::u32:
      v.value = std::uint64_t{c.number<std::uint32_t>("value")};
      return;
    case GgufType::i32:
      v.value = std::int64_t{c.number<std::int32_t>("value")};
      return;
    case GgufType::f32:
      v.value = static_cast<double>(c.number<float>("value"));
      return;
    case GgufType::boolean:
      v.value = read_bool(c);
      return;
    case GgufType::string:
      v.value = c.text("string");
      return;
    case GgufType::array:
      v.value = read_array(c);
      return;
    case GgufType::u64:
      v.value = c.number<std::uint64_t>("value");
      return;
    case GgufType::i64:
      v.value = c.number<std::int64_t>("value");
      return;
    case GgufType::f64:
      v.value = c.number<double>("value");
      return;
  }
}

// Names must differ. Sorted views: n log n, no matter how hostile.
template <class T, class Name>
void refuse_repeats(const std::vector<T>& items, Name name, const GgufFile& f,
                    std::string_view what) {
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(name(item));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw FormatError(f.file, printable(*twice), std::string(what) + " occurs twice");
}

void read_metadata(Cursor& c, GgufFile& f, std::uint64_t count) {
  constexpr std::uint64_t smallest = 8 + 1 + 4 + 1;  // key length, key, type, value
  if (count > c.left() / smallest)
    c.fail(std::to_string(count) + " keys do not fit into the " + std::to_string(c.left()) +
           " bytes that are left");
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufValue v;
    v.key = c.text("key");
    if (v.key.empty() || v.key.size() > kMaxKey)
      c.fail("a key must have 1 to 65535 bytes, got " + std::to_string(v.key.size()));
    c.place = printable(v.key);
    v.big_endian = f.big_endian;
    v.type = value_type(c, "value type");
    v.at = c.at();
    read_value(c, v);
    f.metadata.push_back(v);
    c.place.clear();
  }
  refuse_repeats(
      f.metadata, [](const GgufValue& v) { return v.key; }, f, "the key");
}

void read_alignment(GgufFile& f) {
  const GgufValue* v = f.find("general.alignment");
  if (v == nullptr) return;
  const auto* n = std::get_if<std::uint64_t>(&v->value);
  if (v->type != GgufType::u32 || n == nullptr)
    throw FormatError(f.file, "general.alignment",
                      "must be a u32, got " + std::string(gguf_type_name(v->type)));
  if (!std::has_single_bit(*n))
    throw FormatError(f.file, "general.alignment",
                      "must be a power of two, got " + std::to_string(*n));
  f.alignment = static_cast<std::uint32_t>(*n);
}

// Bytes of a tensor from its shape, or a refusal.
std::uint64_t tensor_bytes(const Cursor& c, const GgufTensor& t) {
  const auto block = gguf::block_size(t.type);
  if (!block) c.fail("no tensor has type " + std::to_string(t.type));
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  std::uint64_t count = 1;
  for (const std::uint64_t n : t.shape) {
    if (n > most || (n != 0 && count > most / n)) c.fail("has more than 2^63 elements");
    count *= n;
  }
  if (t.shape[0] % block->elements != 0)
    c.fail("rows of " + std::to_string(t.shape[0]) +
           " elements are not a multiple of the block size " + std::to_string(block->elements));
  if (count / block->elements > most / block->bytes) c.fail("has more than 2^63 bytes");
  return count / block->elements * block->bytes;
}

void read_tensor_infos(Cursor& c, GgufFile& f, std::uint64_t count) {
  constexpr std::uint64_t smallest = 8 + 1 + 4 + 8 + 4 + 8;  // name, rank, shape, type, offset
  if (count > c.left() / smallest)
    c.fail(std::to_string(count) + " tensors do not fit into the " + std::to_string(c.left()) +
           " bytes that are left");
  for (std::uint64_t i = 0; i < count; ++i) {
    GgufTensor t;
    t.name = c.text("tensor name");
    if (t.name.empty() || t.name.size() > kMaxTensorName)
      c.fail("a tensor's name must have 1 to 64 bytes, got " + std::to_string(t.name.size()));
    c.place = printable(t.name);
    const auto rank = c.number<std::uint32_t>("rank");
    if (rank < 1 || rank > 4) c.fail("must have 1 to 4 dimensions, got " + std::to_string(rank));
    for (std::uint32_t d = 0; d < rank; ++d)
      t.shape.push_back(c.number<std::uint64_t>("dimension"));
    t.type = c.number<std::uint32_t>("tensor type");
    t.offset = c.number<std::uint64_t>("tensor offset");
    t.size = tensor_bytes(c, t);
    f.tensors.push_back(std::move(t));
    c.place.clear();
  }
  refuse_repeats(
      f.tensors, [](const GgufTensor& t) { return t.name; }, f, "the tensor");
}

// ggml reads tensors that lie one behind the other, each padded to the alignment, and no others.
void place_tensors(const Cursor& c, GgufFile& f) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  const auto pad = [&](std::uint64_t n) {
    return (n + f.alignment - 1) / f.alignment * f.alignment;
  };
  const std::uint64_t data = f.tensors.empty() ? c.at() : pad(c.at());
  std::uint64_t expected = 0;
  for (GgufTensor& t : f.tensors) {
    if (t.offset != expected)
      throw FormatError(f.file, printable(t.name),
                        "must lie at offset " + std::to_string(expected) +
                            " of the data, behind the tensor before it, got " +
                            std::to_string(t.offset));
    const std::uint64_t room = most - data - expected;
    if (room < f.alignment || t.size > room - f.alignment)
      throw FormatError(f.file, printable(t.name), "the tensors have more than 2^63 bytes");
    expected += pad(t.size);
    t.offset += data;
    t.complete = t.offset <= f.bytes.size() && t.size <= f.bytes.size() - t.offset;
  }
}

void read_header(Cursor& c, GgufFile& f) {
  const auto magic = c.take(4, "magic");
  constexpr std::string_view expected = "GGUF";
  if (!std::equal(magic.begin(), magic.end(), expected.begin(),
                  [](std::byte a, char b) { return a == static_cast<std::byte>(b); }))
    throw FormatError(f.file, "byte 0", "does not begin with GGUF");
  const auto stored = c.take(4, "version");
  f.version = gguf::load<std::uint32_t>(stored.data(), false);
  f.big_endian = (f.version & 0xffffu) == 0;  // no version is that large
  if (f.big_endian) f.version = gguf::load<std::uint32_t>(stored.data(), true);
  c.big_endian = f.big_endian;
  if (f.version != 2 && f.version != 3)
    throw FormatError(f.file, "byte 4",
                      "versions 2 and 3 can be read, got " + std::to_string(f.version));
}

}  // namespace

std::string_view gguf_type_name(GgufType t) noexcept {
  static constexpr std::array<std::string_view, 13> names{"u8",  "i8",  "u16",  "i16",    "u32",
                                                          "i32", "f32", "bool", "string", "array",
                                                          "u64", "i64", "f64"};
  const auto i = static_cast<std::size_t>(t);
  return i < names.size() ? names[i] : "unknown";
}

GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& file) {
  GgufFile f;
  f.file = file;
  f.bytes = bytes;
  Cursor c(bytes, file);
  read_header(c, f);
  const auto tensors = c.number<std::uint64_t>("tensor count");
  const auto keys = c.number<std::uint64_t>("key count");
  read_metadata(c, f, keys);
  read_alignment(f);
  read_tensor_infos(c, f, tensors);
  place_tensors(c, f);
  return f;
}

}  // namespace posenc::v0
