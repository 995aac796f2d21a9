// SPDX-License-Identifier: Apache-2.0
// Block sizes of ggml's tensor types: how many elements make how many bytes.
#pragma once
#include <cstdint>
#include <optional>

namespace posenc::inline v0::gguf {

struct BlockSize {
  std::uint32_t elements, bytes;
};
// Nothing for numbers nobody uses and for layouts that were withdrawn (4, 5, 31 to 33, 36 to 38).
std::optional<BlockSize> block_size(std::uint32_t tensor_type) noexcept;

}  // namespace posenc::v0::gguf
