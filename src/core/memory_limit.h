// SPDX-License-Identifier: Apache-2.0
// What this process may use at most: a request beyond it is refused before its memory is written,
// since the system would give the addresses and stop a process later.
#pragma once
#include <cstddef>
#include <string_view>

namespace posenc::inline v0::detail {

// Bytes of memory and swap of the machine, or of the control group where that has less; looked up
// once. 0: not known.
std::size_t memory_limit() noexcept;
// Throws OutOfMemory: more bytes than that.
void check_memory(std::string_view who, std::string_view what, std::size_t bytes);
// Throws OutOfMemory: of a request that the system refused.
[[noreturn]] void refuse_memory(std::string_view who, std::string_view what, std::size_t bytes);

}  // namespace posenc::v0::detail
