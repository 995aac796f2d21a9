// SPDX-License-Identifier: Apache-2.0
// How a core gets most out of memory when a tensor is larger than the cache. Makers disagree by a
// factor of two in either direction (bench/NOTES.md has the numbers), so kernels know both ways.
#pragma once
#include <cstdint>

namespace posenc::detail {

enum class MemoryWay : std::uint8_t {
  // One line after the other: the prefetchers see to it. Where they do not follow (parts of heads,
  // heads far apart, sines), the second cache is asked. AMD's (Zen 4 measured), and whatever nobody
  // has measured.
  as_it_lies,
  // Several pages in turns, each a little asked for early. Intel's servers (Sapphire Rapids
  // measured), whose prefetchers start anew with every page.
  several_pages,
};

// POSENC_MEMORY_WAY from the environment (as_it_lies, several_pages), else by the processor's
// maker. Throws std::invalid_argument("[POSENC_MEMORY_WAY] ...").
MemoryWay memory_way();
// For tests and measurements: this one from now on.
void force_memory_way(MemoryWay) noexcept;
void reset_memory_way() noexcept;

}  // namespace posenc::detail
