// SPDX-License-Identifier: Apache-2.0
// How rows are composed with token embeddings: what input plans and their kernels share.
#pragma once
#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// add x + p, multiply x p, one_plus x (1 + p), concat [x | p].
enum class Compose : std::uint8_t { add, multiply, one_plus, concat };
template <>
struct EnumNames<Compose> {
  static constexpr std::array<std::string_view, 4> value{"add", "multiply", "one_plus", "concat"};
};

// Channels of a row of a phase, pairs (s_m, c_m) = (sin, cos)(p * frequency_m):
//   interleaved s0 c0 s1 c1 ..; halves s0 s1 .. c0 c1 ..; halves_cos_first c0 c1 .. s0 s1 ..;
//   sines s0 s1 ..; cosines c0 c1 .. (one channel a pair)
enum class SineLayout : std::uint8_t { interleaved, halves, halves_cos_first, sines, cosines };
template <>
struct EnumNames<SineLayout> {
  static constexpr std::array<std::string_view, 5> value{"interleaved", "halves",
                                                         "halves_cos_first", "sines", "cosines"};
};
// Channels of n pairs.
constexpr Index sine_channels(SineLayout layout, Index pairs) noexcept {
  return layout == SineLayout::sines || layout == SineLayout::cosines ? pairs : 2 * pairs;
}

// What a position without a row reads. extend: rows n .. n^2 - 1 of the hierarchical
// decomposition (extend.h), P[r mod n] + extension (P[r / n] - P[0]).
enum class Beyond : std::uint8_t { error, clamp, zero, extend };
template <>
struct EnumNames<Beyond> {
  static constexpr std::array<std::string_view, 4> value{"error", "clamp", "zero", "extend"};
};

}  // namespace posenc::v0
