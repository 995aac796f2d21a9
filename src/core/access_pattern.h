// SPDX-License-Identifier: Apache-2.0
// How a core gets most out of memory when a tensor is larger than the cache. Makers disagree by a
// factor of two in either direction (bench/NOTES.md has the numbers), so kernels know both orders.
#pragma once
#include <cstdint>

namespace posenc::inline v0::detail {

enum class AccessPattern : std::uint8_t {
  // One line after the other: the prefetchers see to it. Where they do not follow (parts of heads,
  // heads far apart, sines), the second cache is asked. AMD's (Zen 4 measured), and whatever nobody
  // has measured.
  sequential,
  // Several pages alternately, each prefetched a little ahead. Intel's servers (Sapphire Rapids
  // measured), whose prefetchers start anew with every page.
  interleave_pages,
};

// POSENC_ACCESS_PATTERN from the environment (sequential, interleave_pages), else by the
// processor's maker. Throws std::invalid_argument("[POSENC_ACCESS_PATTERN] ...").
AccessPattern access_pattern();
// For tests and measurements: this one from now on.
void force_access_pattern(AccessPattern) noexcept;
void reset_access_pattern() noexcept;

}  // namespace posenc::v0::detail
