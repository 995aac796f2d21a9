// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of position x frequency on the device: turns x position by 64-bit (double:
// 128-bit) integers, the nearest quarter turn by integers too. Two's complement serves negative
// positions.
#pragma once
#include <cstdint>

#include "posenc/rotary/plan.h"

namespace posenc::inline v0::cuda {

// One position, split into whole and fraction in [0, 1).
struct Position {
  std::uint64_t whole;
  double fraction;
};

__device__ __forceinline__ Position read_position(const Positions& p, Index batch, Index token,
                                                  Index axis) {
  const Index i = batch * p.batch_stride + token * p.token_stride + axis * p.axis_stride;
  if (p.type == DType::i64)
    return {static_cast<std::uint64_t>(static_cast<const std::int64_t*>(p.data)[i]), 0.0};
  if (p.type == DType::i32)
    return {static_cast<std::uint64_t>(
                static_cast<std::int64_t>(static_cast<const std::int32_t*>(p.data)[i])),
            0.0};
  const double x = static_cast<const double*>(p.data)[i], whole = floor(x);
  return {static_cast<std::uint64_t>(static_cast<std::int64_t>(whole)), x - whole};
}

// A fraction of a turn in [0, 1) as 64 bits.
__device__ __forceinline__ std::uint64_t turn_of_fraction(double per_unit, double fraction) {
  double turn = per_unit * fraction;
  turn -= floor(turn);
  return turn < 1 ? static_cast<std::uint64_t>(turn * 0x1p32) << 32 |
                        static_cast<std::uint32_t>((turn * 0x1p32 - floor(turn * 0x1p32)) * 0x1p32)
                  : 0;
}

// The turn of pair `at` (first axis) in 2^-64 of a turn, over all axes.
template <class C>
__device__ __forceinline__ std::uint64_t turn_of(const RotaryTables& t, Index at,
                                                 const Positions& p, Index batch, Index token) {
  std::uint64_t turn = 0;
  for (std::int32_t a = 0; a < t.axes; ++a) {
    const Index i = at + a * t.pairs;
    const Position x = read_position(p, batch, token, a);
    if constexpr (sizeof(C) == 8) {
      const std::uint64_t lo = t.wide_lo[i];
      turn += t.wide_hi[i] * x.whole + __umul64hi(lo, x.whole) -
              (static_cast<std::int64_t>(x.whole) < 0 ? lo : 0);
    } else {
      turn += ((static_cast<std::uint64_t>(t.turns_hi[i]) << 32) | t.turns_lo[i]) * x.whole;
    }
    if (x.fraction != 0) turn += turn_of_fraction(t.per_unit[i], x.fraction);
  }
  return turn;
}

// Exchanges and negates by whole quarter turns.
template <class C>
__device__ __forceinline__ void by_quarters(unsigned quarter, C& cosine, C& sine) {
  const C c = (quarter & 1) != 0 ? sine : cosine, s = (quarter & 1) != 0 ? cosine : sine;
  cosine = ((quarter + 1) & 2) != 0 ? -c : c;
  sine = (quarter & 2) != 0 ? -s : s;
}

// Within 1.0e-7. Minimax polynomials in (quarter turns)^2 on [0, 1/4], as the host's kernels.
__device__ __forceinline__ void sine_and_cosine(std::uint64_t turn, float& cosine, float& sine) {
  const auto upper = static_cast<std::uint32_t>(turn >> 32);
  const std::uint32_t quarter = (upper + 0x20000000u) >> 30;
  const float q = static_cast<float>(static_cast<std::int32_t>(upper - (quarter << 30))) * 0x1p-30f;
  const float z = q * q;
  float s = fmaf(z, 1.58206746e-4f, -4.68126648e-3f);
  s = fmaf(z, s, 0.0796925828f);
  s = fmaf(z, s, -0.645964096f);
  sine = q * fmaf(z, s, 1.57079633f);
  float c = fmaf(z, 9.19161767e-4f, -0.020863468f);
  c = fmaf(z, c, 0.253669507f);
  c = fmaf(z, c, -1.23370055f);
  cosine = fmaf(z, c, 1.0f);
  by_quarters(quarter, cosine, sine);
}
__device__ __forceinline__ void sine_and_cosine(std::uint64_t turn, double& cosine, double& sine) {
  const std::uint64_t quarter = (turn + (std::uint64_t{1} << 61)) >> 62;
  const auto rest = static_cast<std::int64_t>(turn - (quarter << 62));
  sincospi(static_cast<double>(rest) * 0x1p-63, &sine, &cosine);
  by_quarters(static_cast<unsigned>(quarter), cosine, sine);
}

}  // namespace posenc::v0::cuda
