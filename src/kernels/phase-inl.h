// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of one token's pairs, without a table: turns x position by integer arithmetic,
// the nearest quarter turn by integers too, a polynomial for the rest (at most 1/8 of a turn).
// float32: within 1.0e-7 (1.1e-7 without FMA) for |p| <= 2^37; double: within 3e-16.
#include <cmath>
#include <cstdint>

#include "kernels/token.h"
#include "posenc/rotary/plan.h"

#if defined(POSENC_KERNELS_PHASE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_PHASE_INL_H_
#undef POSENC_KERNELS_PHASE_INL_H_
#else
#define POSENC_KERNELS_PHASE_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
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

// turn: 2^32 is a whole one. Coefficients: floats searched for the smallest largest error of this
// very arithmetic over 1/8 of a turn, 7.9e-8 with FMA and 8.6e-8 without (rounded minimax
// ones: 9.9e-8 and 1.06e-7).
template <class D, class VU>
HWY_INLINE void SinCosOfTurn(D d, VU turn, hn::Vec<D>& sine, hn::Vec<D>& cosine) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto quarter = hn::ShiftRight<30>(hn::Add(turn, hn::Set(du, 0x20000000u)));
  const auto rest = hn::BitCast(di, hn::Sub(turn, hn::ShiftLeft<30>(quarter)));
  const auto q = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 0x1p-30f));
  const auto z = hn::Mul(q, q);
  auto s = hn::MulAdd(z, hn::Set(d, 1.58209659e-4f), hn::Set(d, -4.67789872e-3f));
  s = hn::MulAdd(z, s, hn::Set(d, 0.079692021f));
  s = hn::MulAdd(z, s, hn::Set(d, -0.645964324f));
  s = hn::Mul(q, hn::MulAdd(z, s, hn::Set(d, 1.57079637f)));
  auto c = hn::MulAdd(z, hn::Set(d, 9.18655132e-4f), hn::Set(d, -0.0208606068f));
  c = hn::MulAdd(z, c, hn::Set(d, 0.253668398f));
  c = hn::MulAdd(z, c, hn::Set(d, -1.23370051f));
  c = hn::MulAdd(z, c, hn::Set(d, 1.0f));
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(du, 1u)));
  const auto two = hn::Set(du, 2u);
  const auto sine_sign = hn::ShiftLeft<30>(hn::And(quarter, two));
  const auto cosine_sign = hn::ShiftLeft<30>(hn::And(hn::Add(quarter, hn::Set(du, 1u)), two));
  sine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), sine_sign));
  cosine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), cosine_sign));
}

// The same in double; a turn is 2^64.
template <class D>
HWY_INLINE void SinCosOfWideTurn(D d, hn::Vec<hn::RebindToUnsigned<D>> turn, hn::Vec<D>& sine,
                                 hn::Vec<D>& cosine) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto quarter = hn::ShiftRight<62>(hn::Add(turn, hn::Set(du, std::uint64_t{1} << 61)));
  const auto rest = hn::BitCast(di, hn::Sub(turn, hn::ShiftLeft<62>(quarter)));
  const auto q = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 0x1p-62));
  const auto z = hn::Mul(q, q);
  auto s = hn::MulAdd(z, hn::Set(d, 0x1.e4a9d9166f052p-25), hn::Set(d, -0x1.e3027dea82bd7p-19));
  s = hn::MulAdd(z, s, hn::Set(d, 0x1.50783208843ebp-13));
  s = hn::MulAdd(z, s, hn::Set(d, -0x1.32d2cce500387p-8));
  s = hn::MulAdd(z, s, hn::Set(d, 0x1.466bc6775a476p-4));
  s = hn::MulAdd(z, s, hn::Set(d, -0x1.4abbce625be52p-1));
  s = hn::Mul(q, hn::MulAdd(z, s, hn::Set(d, 0x1.921fb54442d18p+0)));
  auto c = hn::MulAdd(z, hn::Set(d, -0x1.b2f3eb054afcdp-28), hn::Set(d, 0x1.f9ce245cada0bp-22));
  c = hn::MulAdd(z, c, hn::Set(d, -0x1.a6d1eef479be1p-16));
  c = hn::MulAdd(z, c, hn::Set(d, 0x1.e1f5068688d5bp-11));
  c = hn::MulAdd(z, c, hn::Set(d, -0x1.55d3c7e3cb241p-6));
  c = hn::MulAdd(z, c, hn::Set(d, 0x1.03c1f081b5ac0p-2));
  c = hn::MulAdd(z, c, hn::Set(d, -0x1.3bd3cc9be45dep+0));
  c = hn::MulAdd(z, c, hn::Set(d, 1.0));
  const auto one = hn::Set(du, std::uint64_t{1}), two = hn::Set(du, std::uint64_t{2});
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, one));
  const auto sine_sign = hn::ShiftLeft<62>(hn::And(quarter, two));
  const auto cosine_sign = hn::ShiftLeft<62>(hn::And(hn::Add(quarter, one), two));
  sine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), sine_sign));
  cosine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), cosine_sign));
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
    SinCosOfWideTurn(d, hn::LoadU(du, turn + i), sine, cosine);
    hn::StoreU(hn::Mul(cosine, hn::Set(d, gain_cos)), d, c + i);
    hn::StoreU(hn::Mul(sine, hn::Set(d, gain_sin)), d, s + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
