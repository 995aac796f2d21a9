// SPDX-License-Identifier: Apache-2.0
#include "posenc/io/safetensors_edit.h"

#include <algorithm>
#include <cstring>

#include "io/files.h"
#include "io/safetensors_header.h"
#include "io/widen.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"

namespace posenc::inline v0 {
namespace {

[[noreturn]] void fail(const std::string& file, const std::string& name, const char* problem) {
  throw FormatError(file, "#/" + printable(name), problem);
}

SafetensorsEntry entry_of(const SafetensorsIndex& index, const std::string& name,
                          const Json& value) {
  SafetensorsEntry e;
  e.name = name;
  const Json* dtype = value.find("dtype");
  const Json* shape = value.find("shape");
  const Json* offsets = value.find("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || !shape->is_array() ||
      offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2)
    fail(index.file, name, "must be an object with dtype, shape and data_offsets");
  e.dtype = dtype->as_string();
  for (const Json& n : shape->as_array()) {
    if (!n.is_integer() || n.as_integer() < 0)
      fail(index.file, name, "shape must hold non-negative 63-bit integers");
    e.shape.push_back(n.as_integer());
  }
  const Json& begin = offsets->as_array()[0];
  const Json& end = offsets->as_array()[1];
  if (!begin.is_integer() || !end.is_integer() || begin.as_integer() < 0 ||
      end.as_integer() < begin.as_integer() ||
      static_cast<std::size_t>(end.as_integer()) > index.data.size())
    fail(index.file, name, "data_offsets must lie in order inside the data: is the file whole?");
  e.data = index.data.subspan(static_cast<std::size_t>(begin.as_integer()),
                              static_cast<std::size_t>(end.as_integer() - begin.as_integer()));
  return e;
}

}  // namespace

const SafetensorsEntry* SafetensorsIndex::find(std::string_view name) const noexcept {
  for (const SafetensorsEntry& e : tensors)
    if (e.name == name) return &e;
  return nullptr;
}

SafetensorsIndex index_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length)
    throw FormatError(file, "byte 0", "is not a safetensors file: shorter than 8 bytes");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader || length > bytes.size() - sizeof length)
    throw FormatError(file, "byte 0",
                      "is not a safetensors file: the header must be at most 100 MB and end inside "
                      "the file, got length " +
                          std::to_string(length));
  const auto* text = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  if (length == 0 || text[0] != '{')
    throw FormatError(file, "byte 8", "is not a safetensors file: the header must begin with '{'");
  SafetensorsIndex index;
  index.file = file;
  index.header = parse_json({text, static_cast<std::size_t>(length)}, file);
  index.data = bytes.subspan(sizeof length + static_cast<std::size_t>(length));
  for (const auto& [name, value] : index.header.as_object())
    if (name != kMetadata) index.tensors.push_back(entry_of(index, name, value));
  std::stable_sort(index.tensors.begin(), index.tensors.end(),
                   [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
                     return a.data.data() != b.data.data() ? a.data.data() < b.data.data()
                                                           : a.data.size() < b.data.size();
                   });
  const std::byte* at = index.data.data();
  for (const SafetensorsEntry& e : index.tensors) {
    if (e.data.data() != at) fail(file, e.name, "overlaps the tensor before it, or leaves a hole");
    at += e.data.size();
  }
  if (at != index.data.data() + index.data.size())
    throw FormatError(file, "#", "the tensors must cover the data");
  return index;
}

void replace_tensor(const std::filesystem::path& to, const SafetensorsIndex& index,
                    std::string_view name, const std::vector<std::int64_t>& shape,
                    std::span<const std::byte> data,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const SafetensorsEntry* old = index.find(name);
  if (old == nullptr) refuse("safetensors", "there must be a tensor of that name", name);
  const auto before = old->data.data() - index.data.data();
  const auto end = before + static_cast<std::ptrdiff_t>(old->data.size());
  const auto grown =
      static_cast<std::int64_t>(data.size()) - static_cast<std::int64_t>(old->data.size());
  Json header = index.header;
  for (auto& [key, value] : header.as_object()) {
    if (key == kMetadata) continue;
    const Json::Array& offsets = value.at("data_offsets").as_array();
    const std::int64_t from = offsets[0].as_integer(), until = offsets[1].as_integer();
    if (key == name) {
      Json list = Json::array();
      for (const std::int64_t n : shape) list.push(Json(n));
      value.set("shape", std::move(list));
      value.set("data_offsets", Json::array({Json(from), Json(until + grown)}));
    } else if (from >= end && !(from == end && until == end && old->data.empty())) {
      value.set("data_offsets", Json::array({Json(from + grown), Json(until + grown)}));
    }
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeader) refuse("safetensors", "the header must have at most 100 MB");
  const std::uint64_t length = text.size();
  const std::span<const std::byte> parts[] = {
      std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(text.data(), text.size())),
      index.data.first(static_cast<std::size_t>(before)), data,
      index.data.subspan(static_cast<std::size_t>(end))};
  std::size_t all = 0;
  for (const auto& part : parts) all += part.size();
  write_parts_atomically(to, parts, [&](std::size_t done) {
    if (progress) progress(static_cast<std::int64_t>(done), static_cast<std::int64_t>(all));
  });
}

}  // namespace posenc::v0
