// SPDX-License-Identifier: Apache-2.0
// A cache as a .safetensors file: keys and values as they are stored, orders, positions, token arrays, and the rotation
// of the keys. Evicted tokens are not written.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "posenc/cache/key_cache.h"

namespace posenc::inline v0 {

// Written to a temporary file and renamed: under its name the file is complete, or the one before. Throws
// std::system_error.
POSENC_API void save_key_cache(const KeyCache&, const std::filesystem::path&);
POSENC_API std::vector<std::byte> key_cache_bytes(const KeyCache&);

// A sequence of the pool with the tokens of a snapshot. Its keys follow `rotary` as by KeyCache::rescale: kept, moved or
// refused. Throws FormatError: a file that is cut off, changed or written by another program; [key_cache]: sizes,
// types or token arrays that differ from the pool's, what rescale refuses; OutOfPages. The pool is then as before.
POSENC_API KeyCache load_key_cache(const std::filesystem::path&, const PagePool&,
                                   const RotarySpec& rotary, const RescaleOptions& = {},
                                   const Executor& = default_executor());
// The same from memory; errors name `file`.
POSENC_API KeyCache parse_key_cache(std::span<const std::byte>, const std::string& file,
                                    const PagePool&, const RotarySpec& rotary,
                                    const RescaleOptions& = {},
                                    const Executor& = default_executor());

}  // namespace posenc::v0
