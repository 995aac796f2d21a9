// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

namespace posenc {

// write_file_atomically of several parts, one behind the other; `progress` after every 64 MiB.
void write_parts_atomically(const std::filesystem::path&,
                            std::span<const std::span<const std::byte>> parts,
                            const std::function<void(std::size_t done)>& progress);

}  // namespace posenc
