// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of one token's pairs, without a table: turns x position by integer arithmetic,
// the nearest quarter turn by integers too, a polynomial for the rest (at most 1/8 of a turn).
// float32: within 1.0e-7 (1.1e-7 without FMA) for |p| <= 2^37; double: within 3e-16.
#include <cmath>
#include <cstdint>

#include "kernels/math-inl.h"
#include "kernels/token.h"

#if defined(POSENC_KERNELS_PHASE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_PHASE_INL_H_
#undef POSENC_KERNELS_PHASE_INL_H_
#else
#define POSENC_KERNELS_PHASE_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Upper 32 bits of position x turns mod 2^64, a turn being 2^64; lo and hi are the turns' halves.
// Two's complement serves negative positions.
template <class DU>
HWY_INLINE hn::Vec<DU> TurnOf(DU du, const std::uint32_t* hi, const std::uint32_t* lo,
                              std::uint64_t p) {
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t turn = (std::uint64_t{*hi} << 32) | *lo;
  return hn::Set(du, static_cast<std::uint32_t>((turn * p) >> 32));
#else
  const hn::RepartitionToWide<DU> dw;
  const auto position = hn::Set(du, static_cast<std::uint32_t>(p));
  const auto low = hn::LoadU(du, lo);
  const auto even = hn::MulEven(low, position);
  const auto odd = hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dw, low))), position);
  const auto upper = hn::OddEven(hn::BitCast(du, odd), hn::BitCast(du, hn::ShiftRight<32>(even)));
  auto turn = hn::Add(upper, hn::Mul(hn::LoadU(du, hi), position));
  const auto far = static_cast<std::uint32_t>(p >> 32);
  if (far != 0) turn = hn::Add(turn, hn::Mul(low, hn::Set(du, far)));
  return turn;
#endif
}

// Pairs [first, first + n) of one head, at most kChunk: c = gain_cos * cos, s = gain_sin * sin.
// Stores whole vectors: c and s have room for n rounded up to a vector, and the plan's turns are
// padded.
HWY_INLINE void Phase(const RotaryTables& t, Index head, const TokenPosition& p, Index first,
                      Index n, double gain_cos, double gain_sin, float* c, float* s) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto gc = hn::Set(d, static_cast<float>(gain_cos));
  const auto gs = hn::Set(d, static_cast<float>(gain_sin));
  const Index base = head * t.axes * t.pairs + first;
  std::uint32_t fraction[kChunk + kPadding];
  if (p.fractional) {
    for (Index i = 0; i < n; ++i)
      fraction[i] = static_cast<std::uint32_t>(
          static_cast<std::int64_t>(FractionOfTurn(t, base + i, p) * 0x1p32));
    for (Index i = n; i < n + lanes; ++i) fraction[i] = 0;
  }
  for (Index i = 0; i < n; i += lanes) {
    const std::uint32_t *hi = t.turns_hi + base + i, *lo = t.turns_lo + base + i;
    auto turn = TurnOf(du, hi, lo, p.whole[0]);
    for (Index a = 1; a < t.axes; ++a)
      turn = hn::Add(turn, TurnOf(du, hi + a * t.pairs, lo + a * t.pairs, p.whole[a]));
    if (p.fractional) turn = hn::Add(turn, hn::LoadU(du, fraction + i));
    hn::Vec<decltype(d)> sine, cosine;
    SinCosOfTurn(d, turn, sine, cosine);
    hn::StoreU(hn::Mul(cosine, gc), d, c + i);
    hn::StoreU(hn::Mul(sine, gs), d, s + i);
  }
}

HWY_INLINE void Phase(const RotaryTables& t, Index head, const TokenPosition& p, Index first,
                      Index n, double gain_cos, double gain_sin, double* c, double* s) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Index base = head * t.axes * t.pairs + first;
  std::uint64_t turn[kChunk + kPadding];
  for (Index i = 0; i < n; ++i) turn[i] = WideTurn(t, base + i, p.whole[0]);
  for (Index a = 1; a < t.axes; ++a)
    for (Index i = 0; i < n; ++i) turn[i] += WideTurn(t, base + a * t.pairs + i, p.whole[a]);
  if (p.fractional)
    for (Index i = 0; i < n; ++i)
      turn[i] += static_cast<std::uint64_t>(FractionOfTurn(t, base + i, p) * 0x1p64);
  for (Index i = n; i < n + lanes; ++i) turn[i] = 0;
  const hn::RebindToUnsigned<decltype(d)> du;
  for (Index i = 0; i < n; i += lanes) {
    hn::Vec<decltype(d)> sine, cosine;
    SinCosOfWideTurn<false>(d, hn::LoadU(du, turn + i), sine, cosine);
    hn::StoreU(hn::Mul(cosine, hn::Set(d, gain_cos)), d, c + i);
    hn::StoreU(hn::Mul(sine, hn::Set(d, gain_sin)), d, s + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
