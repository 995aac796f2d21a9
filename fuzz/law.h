// SPDX-License-Identifier: Apache-2.0
// What every fuzz target uses: an input as text, and a law that must hold.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace posenc::fuzz {

inline void law(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "law broken: %s\n", what);
  std::abort();
}

inline std::string_view text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
inline std::span<const std::byte> bytes(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

}  // namespace posenc::fuzz
