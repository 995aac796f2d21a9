// SPDX-License-Identifier: Apache-2.0
// A set of slots of a page, of at most 256.
#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

inline constexpr Index kMostSlots = 256;

struct Slots {
  std::array<std::uint64_t, kMostSlots / 64> bits{};

  // [begin, end)
  static constexpr Slots range(Index begin, Index end) noexcept {
    Slots s;
    for (Index w = 0; w < kMostSlots / 64; ++w) {
      const Index from = begin - 64 * w, to = end - 64 * w;
      const auto below = [](Index n) {
        return n <= 0 ? 0 : n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
      };
      s.bits[static_cast<std::size_t>(w)] = below(to) & ~below(from);
    }
    return s;
  }
  constexpr bool has(Index slot) const noexcept {
    return (bits[static_cast<std::size_t>(slot / 64)] >> (slot % 64) & 1) != 0;
  }
  constexpr void remove(Index slot) noexcept {
    bits[static_cast<std::size_t>(slot / 64)] &= ~(std::uint64_t{1} << (slot % 64));
  }
  constexpr Slots operator&(const Slots& b) const noexcept {
    Slots s;
    for (std::size_t w = 0; w < bits.size(); ++w) s.bits[w] = bits[w] & b.bits[w];
    return s;
  }
  constexpr Slots operator|(const Slots& b) const noexcept {
    Slots s;
    for (std::size_t w = 0; w < bits.size(); ++w) s.bits[w] = bits[w] | b.bits[w];
    return s;
  }
  constexpr Slots without(const Slots& b) const noexcept {
    Slots s;
    for (std::size_t w = 0; w < bits.size(); ++w) s.bits[w] = bits[w] & ~b.bits[w];
    return s;
  }
  constexpr bool any() const noexcept { return (bits[0] | bits[1] | bits[2] | bits[3]) != 0; }
  constexpr Index count() const noexcept {
    Index n = 0;
    for (const std::uint64_t b :
         bits)  // most are runs from the first slot on, and popcount is slow without SSE4
      n += (b & (b + 1)) == 0 ? 64 - std::countl_zero(b) : std::popcount(b);
    return n;
  }
  // Of a set that has any.
  constexpr Index first() const noexcept {
    std::size_t w = 0;
    while (bits[w] == 0) ++w;
    return static_cast<Index>(64 * w) + std::countr_zero(bits[w]);
  }
  constexpr Index last() const noexcept {
    std::size_t w = bits.size() - 1;
    while (bits[w] == 0) --w;
    return static_cast<Index>(64 * w) + 63 - std::countl_zero(bits[w]);
  }
  constexpr bool operator==(const Slots&) const noexcept = default;
};

}  // namespace posenc::v0::detail
