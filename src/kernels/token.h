// SPDX-License-Identifier: Apache-2.0
// One token's position, split into whole and fraction, and the turns made of it. Always inlined:
// files compiled with other flags include this, and the linker must not mix their copies.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/element.h"
#include "posenc/core/rotation.h"

namespace posenc::inline v0::detail {

inline constexpr Index kMaxAxes = 16;
inline constexpr Index kChunk = 256;   // pairs worked on at once
inline constexpr Index kPadding = 64;  // lanes of the widest vector

struct TokenPosition {
  std::uint64_t whole[kMaxAxes];  // two's complement
  double fraction[kMaxAxes];      // [0, 1), set when fractional
  bool fractional;
};

// Positions that are not finite or beyond 2^62 are refused by the plan.
[[gnu::always_inline]] inline void read_position(const Positions& p, Index axes, Index batch,
                                                 Index token, TokenPosition& out) noexcept {
  const Index at = batch * p.batch_stride + token * p.token_stride;
  out.fractional = false;
  for (Index a = 0; a < axes; ++a) {
    const Index i = at + a * p.axis_stride;
    if (p.type != DType::f64) {
      out.whole[a] = static_cast<std::uint64_t>(integer_element(p.data, p.type, i));
    } else {
      const double x = static_cast<const double*>(p.data)[i], floor = std::floor(x);
      out.whole[a] = static_cast<std::uint64_t>(static_cast<std::int64_t>(floor));
      out.fraction[a] = x - floor;
      out.fractional = out.fractional || x != floor;
    }
  }
}

// The fractions' part of a turn, mod 1, of the pair at `at` (first axis).
[[gnu::always_inline]] inline double FractionOfTurn(const RotaryTables& t, Index at,
                                                    const TokenPosition& p) noexcept {
  double turn = 0;
  for (Index a = 0; a < t.axes; ++a) turn += t.per_unit[at + a * t.pairs] * p.fraction[a];
  turn -= std::floor(turn);
  return turn < 1 ? turn : 0;
}

// Upper 64 bits of position x turns mod 2^128, a turn being 2^128; hi and lo are the turns' halves.
[[gnu::always_inline]] inline std::uint64_t wide_turn(std::uint64_t hi, std::uint64_t lo,
                                                      std::uint64_t p) noexcept {
  __extension__ using U128 = unsigned __int128;
  const auto carry = static_cast<std::uint64_t>((static_cast<U128>(lo) * p) >> 64);
  return hi * p + carry - (static_cast<std::int64_t>(p) < 0 ? lo : 0);
}
[[gnu::always_inline]] inline std::uint64_t WideTurn(const RotaryTables& t, Index at,
                                                     std::uint64_t p) noexcept {
  return wide_turn(t.wide_hi[at], t.wide_lo[at], p);
}

// The position as a real number.
[[gnu::always_inline]] inline double RealPosition(const TokenPosition& p, Index axis) noexcept {
  return static_cast<double>(static_cast<std::int64_t>(p.whole[axis])) +
         (p.fractional ? p.fraction[axis] : 0);
}

}  // namespace posenc::v0::detail
