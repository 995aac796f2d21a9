// SPDX-License-Identifier: Apache-2.0
// What reading and editing know of a safetensors header.
#pragma once
#include <cstdint>
#include <string_view>

namespace posenc::inline v0 {

inline constexpr std::uint64_t kMaxHeader = 100'000'000;
inline constexpr std::string_view kMetadata = "__metadata__";

}  // namespace posenc::v0
