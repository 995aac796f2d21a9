// SPDX-License-Identifier: Apache-2.0
// Element types that files have and tensors have not, widened where the value is kept.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/io/array.h"

namespace posenc::inline v0 {

enum class FileType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  i64,
  i32,
  u8,
  boolean,
  i8,
  i16,
  u16,
  u32,
  u64
};

std::size_t file_size(FileType) noexcept;
// Shape x size. Throws FormatError(file, place, ...) for negative sizes and what does not fit.
std::size_t checked_file_bytes(FileType, const std::vector<Index>& shape, const std::string& file,
                               const std::string& place);
// i8, i16, u16 -> i32; u32 -> i64; u64 -> i64 where it fits; bool (0 or 1) -> u8. Row-major,
// little-endian data of just the size that the shape needs.
Array widen(FileType, std::vector<Index> shape, std::vector<std::byte> data,
            const std::string& file, const std::string& place);
// Throws std::invalid_argument("[who] ...") unless the bytes are as many as the shape needs.
void check_array(const Array&, std::string_view who);

}  // namespace posenc::v0
