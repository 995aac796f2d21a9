// SPDX-License-Identifier: Apache-2.0
#include "io/widen.h"

#include <cstring>

#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

template <class From, class To>
std::vector<std::byte> convert(const std::vector<std::byte>& data) {
  const std::size_t n = data.size() / sizeof(From);
  std::vector<std::byte> wide(n * sizeof(To));
  for (std::size_t i = 0; i < n; ++i) {
    From from;
    std::memcpy(&from, data.data() + i * sizeof from, sizeof from);
    const auto to = static_cast<To>(from);
    std::memcpy(wide.data() + i * sizeof to, &to, sizeof to);
  }
  return wide;
}

void check_bools(const std::vector<std::byte>& data, const std::string& file,
                 const std::string& place) {
  for (const std::byte b : data)
    if (b > std::byte{1})
      throw FormatError(file, place,
                        "a bool must be 0 or 1, got " + std::to_string(std::to_integer<int>(b)));
}

void check_u64(const std::vector<std::byte>& data, const std::string& file,
               const std::string& place) {
  for (std::size_t i = 7; i < data.size(); i += 8)
    if (data[i] > std::byte{0x7f})
      throw FormatError(file, place, "an unsigned 64-bit value does not fit 63 bits");
}

}  // namespace

std::size_t file_size(FileType t) noexcept {
  constexpr std::size_t kSizes[] = {8, 4, 2, 2, 8, 4, 1, 1, 1, 2, 2, 4, 8};
  return kSizes[static_cast<std::size_t>(t)];
}

std::size_t checked_file_bytes(FileType type, const std::vector<Index>& shape,
                               const std::string& file, const std::string& place) {
  // Twice the size, because widening may double it (bytes become four).
  Index n = static_cast<Index>(file_size(type)) * 4;
  bool none = false;
  for (const Index s : shape) {
    if (s < 0)
      throw FormatError(file, place, "sizes must not be negative, got " + std::to_string(s));
    none = none || s == 0;
    if (s > 0 && n > kUnbounded / s)
      throw FormatError(file, place, "the product of the sizes does not fit 63 bits");
    if (s > 0) n *= s;
  }
  return none ? 0 : static_cast<std::size_t>(n / 4);
}

Array widen(FileType type, std::vector<Index> shape, std::vector<std::byte> data,
            const std::string& file, const std::string& place) {
  Array a;
  a.shape = std::move(shape);
  switch (type) {
    case FileType::boolean:
      check_bools(data, file, place);
      a.dtype = DType::u8;
      break;
    case FileType::i8:
      data = convert<std::int8_t, std::int32_t>(data);
      a.dtype = DType::i32;
      break;
    case FileType::i16:
      data = convert<std::int16_t, std::int32_t>(data);
      a.dtype = DType::i32;
      break;
    case FileType::u16:
      data = convert<std::uint16_t, std::int32_t>(data);
      a.dtype = DType::i32;
      break;
    case FileType::u32:
      data = convert<std::uint32_t, std::int64_t>(data);
      a.dtype = DType::i64;
      break;
    case FileType::u64:
      check_u64(data, file, place);
      a.dtype = DType::i64;
      break;
    default:  // the types that tensors have, in the order of DType
      a.dtype = static_cast<DType>(type);
  }
  a.bytes = std::move(data);
  return a;
}

void check_array(const Array& a, std::string_view who) {
  Index n = size_of(a.dtype);
  bool none = false;
  for (const Index s : a.shape) {
    if (s < 0) refuse_field(who, "sizes", "must not be negative", s);
    none = none || s == 0;
    if (s > 0 && n > kUnbounded / s) refuse(who, "the product of the sizes must fit 63 bits");
    if (s > 0) n *= s;
  }
  if (static_cast<std::size_t>(none ? 0 : n) != a.bytes.size())
    refuse_field(who, "bytes", "must be as many as the shape needs",
                 static_cast<Index>(a.bytes.size()));
}

}  // namespace posenc::v0
