// SPDX-License-Identifier: Apache-2.0
// The GGUF container, versions 2 and 3, both byte orders: metadata, tensor descriptions and the
// data of small float tensors. Nothing is copied but the index; every length is checked against
// the file before it is used. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// Rejected as broken (FormatError with the byte or the key): wrong magic, versions 0, 1, 4 and
// above, anything that reaches past the end, unknown types, arrays of arrays, empty or
// repeated names, more than 4 dimensions, sizes that overflow, an alignment that is no power of
// two, tensors that do not follow each other without gaps (as ggml requires). Sound, but without a value:
// tensors whose data a file that was cut off lacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/core/export.h"

namespace posenc::inline v0 {

enum class GgufType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};
POSENC_API std::string_view gguf_type_name(GgufType) noexcept;

struct GgufArray {
  GgufType type = GgufType::u8;  // of the elements; never array
  std::uint64_t count = 0;
  std::span<const std::byte> bytes;  // as stored, in the file's byte order
};

struct GgufValue {
  std::string_view key;
  GgufType type = GgufType::u8;
  // u8 u16 u32 u64 | i8 i16 i32 i64 | f32 f64 (widened exactly) | boolean | string | array
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
  bool big_endian = false;
  std::uint64_t at = 0;  // byte of the value in the file

  // The value as a number of that kind when the file stores one that fits; nothing otherwise.
  // integer: any integer type that fits 63 bits. number: integers and floats.
  POSENC_API std::optional<Index> integer() const noexcept;
  POSENC_API std::optional<double> number() const noexcept;
  POSENC_API std::optional<bool> boolean() const noexcept;
  POSENC_API std::optional<std::string_view> text() const noexcept;
  // An array of integers (booleans count 0 and 1); nothing for another type or more than `limit`.
  POSENC_API std::optional<std::vector<Index>> integers(std::uint64_t limit = 1u << 20) const;
};

struct GgufTensor {
  std::string_view name;
  std::uint32_t type = 0;              // ggml's number: 0 f32, 1 f16, 28 f64, 30 bf16 ...
  std::vector<std::uint64_t> shape;    // innermost first, 1 to 4 dimensions
  std::uint64_t offset = 0, size = 0;  // bytes, offset from the start of the file
  bool complete = false;               // all its data are inside the file
};

// Views into the bytes it was parsed from, which must outlive it.
struct GgufFile {
  std::string file;
  std::uint32_t version = 0;
  bool big_endian = false;
  std::uint32_t alignment = 32;
  std::span<const std::byte> bytes;
  std::vector<GgufValue> metadata;  // in the order of the file
  std::vector<GgufTensor> tensors;

  POSENC_API const GgufValue* find(std::string_view key) const noexcept;
  POSENC_API const GgufTensor* tensor(std::string_view name) const noexcept;
  // Elements of an f32, f16, bf16 or f64 tensor, widened. Throws FormatError: another type, more
  // than `limit` elements, data that the file lacks.
  POSENC_API std::vector<double> values(const GgufTensor&, std::uint64_t limit = 1u << 20) const;
};

// Errors name `file`.
POSENC_API GgufFile parse_gguf(std::span<const std::byte>, const std::string& file);

// A file mapped read-only, so that gigabytes of weights are never read for a page of metadata.
// Regular files only. While it is mapped, the file must not become shorter: reading bytes that are
// no longer there raises SIGBUS, which ends the process. Replace files by renaming instead.
class POSENC_API MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path&);  // throws FormatError
  ~MappedFile();
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace posenc::v0
