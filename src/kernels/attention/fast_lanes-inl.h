// SPDX-License-Identifier: Apache-2.0
// Vectors of floats that may be elements of an array, and their exponential. Where vectors have no size known here
// (SVE) a vector is one float, and the compiler makes vectors of the loops.
#include "kernels/attention/fast_strips.h"

#if defined(POSENC_KERNELS_FAST_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_LANES_INL_H_
#undef POSENC_KERNELS_FAST_LANES_INL_H_
#else
#define POSENC_KERNELS_FAST_LANES_INL_H_
#endif
#include <hwy/highway.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_HAVE_SCALABLE
using F = float;
inline constexpr Index kLanes = 1;
HWY_INLINE F SetF(float x) {
  return x;
}
HWY_INLINE F LoadF(const float* p) {
  return *p;
}
HWY_INLINE void StoreF(float* p, F x) {
  *p = x;
}
HWY_INLINE F AddF(F a, F b) {
  return a + b;
}
HWY_INLINE F MulF(F a, F b) {
  return a * b;
}
HWY_INLINE F MulAddF(F a, F b, F c) {
  return __builtin_fmaf(a, b, c);
}
// c - a b
HWY_INLINE F NegMulAddF(F a, F b, F c) {
  return __builtin_fmaf(-a, b, c);
}
HWY_INLINE F AbsF(F a) {
  return std::fabs(a);
}
// b where either is NaN: a chain of these keeps no NaN of a.
HWY_INLINE F MaxF(F a, F b) {
  return a > b ? a : b;
}
HWY_INLINE float LargestF(F a) {
  return a;
}
HWY_INLINE float SumF(F a) {
  return a;
}
HWY_INLINE bool AllBelowF(F a, float limit) {
  return std::fabs(a) <= limit;
}
HWY_INLINE bool AllAtMostF(F a, float limit) {
  return a <= limit;
}
// -inf where the start value hides the key.
HWY_INLINE F HideF(F score, F start) {
  return start == -HUGE_VALF ? start : score;
}
HWY_INLINE F Exp2F(F x) {
  return x < kSmallestExponent ? 0 : std::exp2(x);
}
#else
using FTag = hn::ScalableTag<float>;
using F = hn::Vec<FTag>;
inline constexpr Index kLanes = static_cast<Index>(hn::MaxLanes(FTag()));
HWY_INLINE F SetF(float x) {
  return hn::Set(FTag(), x);
}
HWY_INLINE F LoadF(const float* p) {
  return hn::LoadU(FTag(), p);
}
HWY_INLINE void StoreF(float* p, F x) {
  hn::StoreU(x, FTag(), p);
}
HWY_INLINE F AddF(F a, F b) {
  return hn::Add(a, b);
}
HWY_INLINE F MulF(F a, F b) {
  return hn::Mul(a, b);
}
HWY_INLINE F MulAddF(F a, F b, F c) {
  return hn::MulAdd(a, b, c);
}
HWY_INLINE F NegMulAddF(F a, F b, F c) {
  return hn::NegMulAdd(a, b, c);
}
HWY_INLINE F AbsF(F a) {
  return hn::Abs(a);
}
HWY_INLINE F MaxF(F a, F b) {
  return hn::Max(a, b);
}
HWY_INLINE float LargestF(F a) {
  return hn::GetLane(hn::MaxOfLanes(FTag(), a));
}
HWY_INLINE float SumF(F a) {
  return hn::GetLane(hn::SumOfLanes(FTag(), a));
}
HWY_INLINE bool AllBelowF(F a, float limit) {
  return hn::AllTrue(FTag(), hn::Le(hn::Abs(a), SetF(limit)));
}
HWY_INLINE bool AllAtMostF(F a, float limit) {
  return hn::AllTrue(FTag(), hn::Le(a, SetF(limit)));
}
HWY_INLINE F HideF(F score, F start) {
  return hn::IfThenElse(hn::Eq(start, SetF(-HUGE_VALF)), start, score);
}
// 2^x for x up to 127; 0 below kSmallestExponent: weights that small count for nothing, and their products with values
// would be subnormal, which Intel's cores compute a hundred times as slowly.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Highway has no word for x - floor(x) in one operation, nor for a factor 2^floor(x). A polynomial of degree 6 (least
// relative error) on [0, 1] is off by 4e-9: with rounding 7e-8, and whole numbers are exact.
HWY_INLINE F Exp2F(F x) {
  const F f{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF)};
  F p = hn::MulAdd(SetF(0.00021702255f), f, SetF(0.0012439687f));
  p = hn::MulAdd(p, f, SetF(0.009678842f));
  p = hn::MulAdd(p, f, SetF(0.05548334f));
  p = hn::MulAdd(p, f, SetF(0.24022982f));
  p = hn::MulAdd(p, f, SetF(0.693147f));
  p = hn::MulAdd(p, f, SetF(1.0f));
  const __mmask16 counts = _mm512_cmp_ps_mask(x.raw, SetF(kSmallestExponent).raw, _CMP_NLT_UQ);
  return F{_mm512_maskz_scalef_ps(counts, p.raw, x.raw)};
}
#else
// 2^n, n = round(x), is made of the lowest bits of x + 1.5 * 2^23 + 127; the rest lies in [-1/2, 1/2], where a
// polynomial of degree 6 (least relative error) is off by 2.4e-8: with rounding 1.5e-7.
HWY_INLINE F Exp2F(F x) {
  const hn::RebindToSigned<FTag> di;
  const F magic = SetF(12582912.0f + 127.0f);
  x = hn::IfThenElse(hn::Lt(x, SetF(kSmallestExponent)), SetF(-127.0f), x);
  const F t = hn::Add(x, magic), f = hn::Sub(x, hn::Sub(t, magic));
  F p = hn::MulAdd(SetF(0.0013276472f), f, SetF(0.00967554133f));
  p = hn::MulAdd(p, f, SetF(0.0555071327f));
  p = hn::MulAdd(p, f, SetF(0.240221197f));
  p = hn::MulAdd(p, f, SetF(0.693146967f));
  p = hn::MulAdd(p, f, SetF(1.00000007f));
  return hn::Mul(p, hn::BitCast(FTag(), hn::ShiftLeft<23>(hn::BitCast(di, t))));
}
#endif
#endif

// SVE and 32 registers of AVX-512 and Arm hold 24 sums, 16 registers 12.
#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
inline constexpr Index kStripRows = 12, kFewRows = 8, kBlockKeys = 128;
#else
inline constexpr Index kStripRows = 6, kFewRows = 4, kBlockKeys = 64;
#endif
static_assert(kStripRows <= kMostStripRows && kLanes <= kMostLanes);

// Tiles of the backward pass: p, s and a block of q and g stay in the second cache; k and v are read from there too.
inline constexpr Index kTileRows = kStripRows == 12 ? 96 : 48;
inline constexpr Index kTileKeys = kStripRows == 12 ? 128 : 192;
// Behind the keys of a row stand zeros of a vector or of a strip of rows, and consecutive rows meet other sets of the cache.
inline constexpr Index kBehind = kLanes == 1 || kStripRows == 12 ? 16 : 8;
inline constexpr Index kTileStride = kTileKeys + (kLanes > kBehind ? kLanes : kBehind);
static_assert(kTileStride - kTileKeys >= kStripRows);

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
