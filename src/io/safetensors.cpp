// SPDX-License-Identifier: Apache-2.0
// safetensors: https://github.com/huggingface/safetensors#format. Length of the header (u64,
// little-endian), the header {"name": {"dtype", "shape", "data_offsets": [begin, end]}} in JSON
// padded with blanks, then the data without holes.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "io/files.h"
#include "io/safetensors_header.h"
#include "io/widen.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/io/array.h"
#include "posenc/io/json.h"

namespace posenc::inline v0 {
namespace {

struct Entry {
  const std::string* name;
  FileType type;
  std::vector<Index> shape;
  Index begin, end;
};

std::optional<FileType> file_type(std::string_view text) {
  constexpr std::pair<std::string_view, FileType> kTypes[] = {
      {"F64", FileType::f64},     {"F32", FileType::f32}, {"F16", FileType::f16},
      {"BF16", FileType::bf16},   {"I64", FileType::i64}, {"I32", FileType::i32},
      {"I16", FileType::i16},     {"I8", FileType::i8},   {"U64", FileType::u64},
      {"U32", FileType::u32},     {"U16", FileType::u16}, {"U8", FileType::u8},
      {"BOOL", FileType::boolean}};
  for (const auto& [name, type] : kTypes)
    if (name == text) return type;
  return std::nullopt;
}

class SafetensorsReader {
 public:
  SafetensorsReader(std::span<const std::byte> data, const std::string& file)
      : data_(data), file_(file) {}

  Arrays read(const Json& header) {
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.as_object()) {
      if (name == kMetadata)
        check_metadata(value);
      else
        entries.push_back(entry(name, value));
    }
    check_layout(entries);
    Arrays arrays;
    for (Entry& e : entries) {
      const auto part = data_.subspan(static_cast<std::size_t>(e.begin),
                                      static_cast<std::size_t>(e.end - e.begin));
      arrays.emplace(*e.name, widen(e.type, std::move(e.shape), {part.begin(), part.end()}, file_,
                                    place(*e.name)));
    }
    return arrays;
  }

 private:
  static std::string place(const std::string& name) { return "#/" + printable(name); }
  [[noreturn]] void fail(const std::string& name, const std::string& problem) const {
    throw FormatError(file_, place(name), problem);
  }

  void check_metadata(const Json& value) const {
    if (!value.is_object()) fail(std::string(kMetadata), "must be an object of strings");
    for (const auto& [key, text] : value.as_object())
      if (!text.is_string())
        fail(std::string(kMetadata) + "/" + printable(key), "must be a string");
  }

  const Json& member(const std::string& name, const Json& value, std::string_view key) const {
    const Json* m = value.find(key);
    if (!m) fail(name, "must have " + std::string(key));
    return *m;
  }
  Index size(const std::string& name, const Json& v, std::string_view what) const {
    if (!v.is_integer() || v.as_integer() < 0)
      fail(name, std::string(what) + " must hold non-negative 63-bit integers");
    return v.as_integer();
  }

  Entry entry(const std::string& name, const Json& value) const {
    if (!value.is_object()) fail(name, "must be an object with dtype, shape and data_offsets");
    const Json& dtype = member(name, value, "dtype");
    const auto type = dtype.is_string() ? file_type(dtype.as_string()) : std::nullopt;
    if (!type)
      fail(name, "dtype must be F64, F32, F16, BF16, I64..I8, U64..U8 or BOOL, got " +
                     printable(dtype.is_string() ? dtype.as_string() : "no string"));
    Entry e{&name, *type, {}, 0, 0};
    const Json& shape = member(name, value, "shape");
    if (!shape.is_array()) fail(name, "shape must be a list");
    for (const Json& s : shape.as_array()) e.shape.push_back(size(name, s, "shape"));
    const Json& offsets = member(name, value, "data_offsets");
    if (!offsets.is_array() || offsets.as_array().size() != 2)
      fail(name, "data_offsets must be a list of two");
    e.begin = size(name, offsets.as_array()[0], "data_offsets");
    e.end = size(name, offsets.as_array()[1], "data_offsets");
    if (e.begin > e.end || static_cast<std::size_t>(e.end) > data_.size())
      fail(name, "data_offsets must lie in order inside the " + std::to_string(data_.size()) +
                     " bytes of data, got " + std::to_string(e.begin) + ", " +
                     std::to_string(e.end));
    const std::size_t need = checked_file_bytes(*type, e.shape, file_, place(name));
    if (need != static_cast<std::size_t>(e.end - e.begin))
      fail(name, "dtype and shape need " + std::to_string(need) + " bytes, data_offsets give " +
                     std::to_string(e.end - e.begin));
    return e;
  }

  // Every byte of the data belongs to one tensor: nothing overlaps, nothing hides between.
  void check_layout(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    Index at = 0;
    for (const Entry& e : entries) {
      if (e.begin != at)
        fail(*e.name, std::string(e.begin < at ? "overlaps" : "leaves a hole after") +
                          " the tensor before it: begins at " + std::to_string(e.begin) +
                          " where that ends at " + std::to_string(at));
      at = e.end;
    }
    if (static_cast<std::size_t>(at) != data_.size())
      throw FormatError(file_, "#",
                        "the tensors must cover the data: they end at " + std::to_string(at) +
                            " of " + std::to_string(data_.size()) + " bytes");
  }

  std::span<const std::byte> data_;
  const std::string& file_;
};

}  // namespace

Arrays parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length)
    throw FormatError(file, "byte 0", "is not a safetensors file: shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader || length > bytes.size() - sizeof length)
    throw FormatError(file, "byte 0",
                      "the header must be at most 100 MB and end inside the file, got length " +
                          std::to_string(length));
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  if (length == 0 || text[0] != '{')
    throw FormatError(file, "byte 8", "is not a safetensors file: the header must begin with '{'");
  const Json header = parse_json({text, static_cast<std::size_t>(length)}, file);
  return SafetensorsReader(bytes.subspan(sizeof length + static_cast<std::size_t>(length)), file)
      .read(header);
}

namespace {

// Bytes of the file as far as those that begin it tell.
std::size_t safetensors_bound(std::span<const std::byte> have, const std::string& file) {
  std::uint64_t length = 0;
  constexpr std::size_t kFirst = sizeof length + 1;
  if (have.size() < kFirst) return kFirst;
  std::memcpy(&length, have.data(), sizeof length);
  if (length > kMaxHeader || have[sizeof length] != std::byte{'{'}) return kFirst;
  const std::size_t header = sizeof length + static_cast<std::size_t>(length);
  if (have.size() < header) return header;
  const auto* text = reinterpret_cast<const char*>(have.data()) + sizeof length;
  const Json entries = parse_json({text, static_cast<std::size_t>(length)}, file);
  std::int64_t end = 0;
  for (const auto& [name, value] : entries.as_object())
    if (const Json* last = value.at_pointer("/data_offsets/1"); last && last->is_integer())
      end = std::max(end, last->as_integer());
  return header + static_cast<std::size_t>(end);
}

}  // namespace

Arrays read_safetensors(const std::filesystem::path& path) {
  return parse_safetensors(read_array_file(path,
                                           [&](std::span<const std::byte> have) {
                                             return safetensors_bound(have, path.string());
                                           }),
                           path.string());
}

std::vector<std::byte> safetensors_bytes(const Arrays& arrays,
                                         const std::map<std::string, std::string>& metadata) {
  constexpr std::string_view kNames[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8"};
  // Large elements first keeps every tensor aligned to its own size.
  std::vector<const Arrays::value_type*> order;
  for (const auto& item : arrays) {
    if (item.first == kMetadata) refuse("safetensors", "a tensor must not be named", kMetadata);
    check_array(item.second, "safetensors");
    order.push_back(&item);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return size_of(a->second.dtype) > size_of(b->second.dtype);
  });
  Json header = Json::object();
  if (!metadata.empty()) {
    Json::Object m;
    for (const auto& [key, text] : metadata) m.emplace_back(key, Json(text));
    header.as_object().emplace_back(kMetadata, Json(std::move(m)));
  }
  Index at = 0;
  for (const auto* item : order) {
    const Array& a = item->second;
    Json::Array shape;
    for (const Index s : a.shape) shape.emplace_back(s);
    const Index end = at + static_cast<Index>(a.bytes.size());
    header.as_object().emplace_back(
        item->first, Json::object({{"dtype", kNames[static_cast<std::size_t>(a.dtype)]},
                                   {"shape", Json(std::move(shape))},
                                   {"data_offsets", Json::array({Json(at), Json(end)})}}));
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeader) refuse("safetensors", "the header must have at most 100 MB");
  const std::uint64_t length = text.size();
  std::vector<std::byte> bytes;
  bytes.resize(sizeof length + text.size() + static_cast<std::size_t>(at));
  std::size_t done = 0;
  const auto append = [&](const void* p, std::size_t n) {
    if (n > 0) std::memcpy(bytes.data() + done, p, n);
    done += n;
  };
  append(&length, sizeof length);
  append(text.data(), text.size());
  for (const auto* item : order) append(item->second.bytes.data(), item->second.bytes.size());
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, const Arrays& arrays,
                       const std::map<std::string, std::string>& metadata) {
  write_file_atomically(path, safetensors_bytes(arrays, metadata));
}

}  // namespace posenc::v0
