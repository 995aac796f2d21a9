// SPDX-License-Identifier: Apache-2.0
// Replaces one tensor of a safetensors file by another, the rest byte for byte: gigabytes of
// weights are mapped and copied, never parsed.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/export.h"
#include "posenc/io/json.h"

namespace posenc::inline v0 {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // as written: F32, BF16, F8_E4M3 ...; any word
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// The header of a file and views of its data, which must outlive it.
struct SafetensorsIndex {
  std::string file;
  Json header;                            // with __metadata__, in the order of the file
  std::vector<SafetensorsEntry> tensors;  // in the order of the data
  std::span<const std::byte> data;        // behind the header
  POSENC_API const SafetensorsEntry* find(std::string_view name) const noexcept;
};
// Every length is checked against the file. Throws FormatError: no safetensors file, cut off,
// tensors that overlap or leave holes.
POSENC_API SafetensorsIndex index_safetensors(std::span<const std::byte>, const std::string& file);

// Writes the file with another shape and data under one name, its dtype kept. Data before
// the tensor keep their offsets, data behind it move. Written to a temporary file and renamed, so `to`
// may be the file itself. `progress` receives the bytes done and the total. Throws
// [safetensors]: no such tensor; std::system_error where writing fails.
POSENC_API void replace_tensor(
    const std::filesystem::path& to, const SafetensorsIndex&, std::string_view name,
    const std::vector<std::int64_t>& shape, std::span<const std::byte> data,
    const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace posenc::v0
