// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine: Philox4x32-10, a bijection of a counter under
// a key. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// No state: a draw is a function of its index, so any part may be computed anywhere, in any
// order, on any number of threads.
#pragma once
#include <array>
#include <cstdint>

#include "posenc/core/export.h"

namespace posenc::inline v0 {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// Ten rounds, section 4.3 of the paper.
constexpr PhiloxBlock philox4x32(PhiloxBlock c, PhiloxKey k) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k = {k[0] + 0x9E3779B9U, k[1] + 0xBB67AE85U};
  }
  return c;
}

// Draws of one sequence at one step of a run. The key is derived from all three (philox4x32 of step
// and sequence under the seed), the counter is the number of the draw and its `purpose`, so that
// two kinds of draws of one sequence are independent. Every function is pure; the double results
// are made of additions, multiplications, divisions and square roots alone, in the library, and are
// the same bits everywhere.
class Draws {
 public:
  constexpr explicit Draws(std::uint64_t seed, std::uint64_t step = 0, std::uint64_t sequence = 0,
                           std::uint32_t purpose = 0) noexcept
      : purpose_(purpose) {
    const PhiloxBlock b =
        philox4x32({low(step), high(step), low(sequence), high(sequence)}, {low(seed), high(seed)});
    key_ = {b[0], b[1]};
  }

  // 64 random bits: number `index`, attempt `attempt` (for rejection sampling).
  constexpr std::uint64_t bits(std::uint64_t index, std::uint32_t attempt = 0) const noexcept {
    const PhiloxBlock b = philox4x32({low(index), high(index), purpose_, attempt}, key_);
    return std::uint64_t{b[0]} << 32 | b[1];
  }
  // [0, 1), a multiple of 2^-53.
  constexpr double uniform(std::uint64_t index) const noexcept {
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
  }
  // Standard normal, by the inverse of its distribution function: |value| < 8.21.
  POSENC_API double normal(std::uint64_t index) const noexcept;
  // The same within two deviations (drawn again until it is), as TensorFlow and JAX truncate.
  POSENC_API double truncated_normal(std::uint64_t index) const noexcept;
  // 0 .. n - 1, every value as likely as any other; 0 for n = 0.
  POSENC_API std::uint64_t below(std::uint64_t index, std::uint64_t n) const noexcept;

 private:
  static constexpr std::uint32_t low(std::uint64_t x) noexcept {
    return static_cast<std::uint32_t>(x);
  }
  static constexpr std::uint32_t high(std::uint64_t x) noexcept {
    return static_cast<std::uint32_t>(x >> 32);
  }
  PhiloxKey key_{};
  std::uint32_t purpose_ = 0;
};

// x with P(N(0, 1) <= x) = p, 0 < p < 1, relative error about 1e-15: Wichura, Algorithm AS 241
// (PPND16), Applied Statistics 37 (1988). The same bits on every machine. NaN outside (0, 1).
POSENC_API double normal_quantile(double p) noexcept;

}  // namespace posenc::v0
