// SPDX-License-Identifier: Apache-2.0
// Elements in memory and the vectors computed with: f32, f16 and bf16 in float, f64 in double.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/convert.h"

#ifndef POSENC_KERNELS_ELEMENT_ONCE_H_
#define POSENC_KERNELS_ELEMENT_ONCE_H_
namespace posenc::inline v0::detail {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
// The same in memory, narrowed by the machine's own instruction. Another type, so that no function
// of the file with its flags has the name of one without.
struct NativeBFloat16 {
  std::uint16_t bits;
};

template <class T>
inline constexpr bool kIsBFloat16 = false;
template <>
inline constexpr bool kIsBFloat16<BFloat16> = true;
template <>
inline constexpr bool kIsBFloat16<NativeBFloat16> = true;

template <class T>
struct ComputeOf {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

// One element.
[[gnu::always_inline]] inline float Widen(float x) {
  return x;
}
[[gnu::always_inline]] inline double Widen(double x) {
  return x;
}
[[gnu::always_inline]] inline float Widen(Float16 x) {
  return f32_from_f16(x.bits);
}
[[gnu::always_inline]] inline float Widen(BFloat16 x) {
  return f32_from_bf16(x.bits);
}
[[gnu::always_inline]] inline float Widen(NativeBFloat16 x) {
  return f32_from_bf16(x.bits);
}
template <class T>
[[gnu::always_inline]] inline T Narrow(Compute<T> x) {
  if constexpr (kIsBFloat16<T>)
    return T{bf16_from(x)};
  else if constexpr (sizeof(T) == 2)
    return T{f16_from(x)};
  else
    return x;
}

}  // namespace posenc::v0::detail
#endif

#if defined(POSENC_KERNELS_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ELEMENT_INL_H_
#undef POSENC_KERNELS_ELEMENT_INL_H_
#else
#define POSENC_KERNELS_ELEMENT_INL_H_
#endif
#include <hwy/highway.h>

#include "kernels/optimize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Not called Load: argument-dependent look-up would prefer Highway's, which wants aligned memory.
template <class D>
HWY_INLINE hn::Vec<D> ReadVector(D d, const hn::TFromD<D>* p) {
  return hn::LoadU(d, p);
}
template <bool kStream, class D>
HWY_INLINE void WriteVector(hn::Vec<D> v, D d, hn::TFromD<D>* p) {
  if constexpr (kStream)
    hn::Stream(v, d, p);
  else
    hn::StoreU(v, d, p);
}

// bfloat16 is the upper half of a float. (Highway 1.0.3 truncates.)
template <class D, class VF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundToUpperHalf(D, VF v) {
  const hn::RebindToUnsigned<D> du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd);
  const auto quiet = hn::Or(u, hn::Set(du, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::Eq(v, v)), rounded, quiet);
}
template <class D, class B>
HWY_INLINE hn::Vec<D> LoadBFloat16(D d, const B* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto u = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, u)));
}
template <class D>
HWY_INLINE hn::Vec<D> ReadVector(D d, const BFloat16* p) {
  return LoadBFloat16(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> ReadVector(D d, const NativeBFloat16* p) {
  return LoadBFloat16(d, p);
}

// float16. AVX2 and AVX-512 machines convert, rounding to nearest even; elsewhere by integers.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || \
    (HWY_ARCH_ARM_A64 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
template <class D>
HWY_INLINE hn::Vec<D> ReadVector(D d, const Float16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> ToFloat16(D, hn::Vec<D> v) {
  const hn::Rebind<hwy::float16_t, D> d16;
  const hn::Rebind<std::uint16_t, D> du16;
  return hn::BitCast(du16, hn::DemoteTo(d16, v));
}
#else
template <class D>
HWY_INLINE hn::Vec<D> ReadVector(D d, const Float16* p) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto u = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
  const auto magnitude = hn::And(u, hn::Set(du, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::And(u, hn::Set(du, 0x8000u)));
  const auto m = hn::BitCast(di, magnitude);
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, 112u << 23));
  const auto subnormal = hn::BitCast(du, hn::Mul(hn::ConvertTo(d, m), hn::Set(d, 0x1p-24f)));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7f800000u));
  const auto quiet = hn::Or(special, hn::Set(du, 0x400000u));
  auto r = hn::IfThenElse(hn::RebindMask(du, hn::Lt(m, hn::Set(di, 0x400))), subnormal, normal);
  r = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, 0x7bff))), special, r);
  r = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, 0x7c00))), quiet, r);
  return hn::BitCast(d, hn::Or(r, sign));
}
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> ToFloat16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto u = hn::BitCast(du, v);
  const auto sign = hn::ShiftRight<16>(hn::And(u, hn::Set(du, 0x80000000u)));
  const auto magnitude = hn::And(u, hn::Set(du, 0x7fffffffu));
  const auto m = hn::BitCast(di, magnitude);
  // 2^-14 and more: the fraction is rounded where it stands, the exponent moves by 112.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(hn::Add(magnitude, hn::Set(du, 0xfffu)), odd), hn::Set(du, 112u << 23)));
  // Below: adding 1/2 rounds to multiples of 2^-24, the unit of a subnormal.
  const auto half = hn::Set(d, 0.5f);
  const auto subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(du, half));
  const auto nan =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu)), hn::Set(du, 0x7e00u));
  auto r =
      hn::IfThenElse(hn::RebindMask(du, hn::Lt(m, hn::Set(di, 0x38800000))), subnormal, normal);
  r = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, 0x477fefff))), hn::Set(du, 0x7c00u),
                     r);
  r = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, 0x7f800000))), nan, r);
  return hn::DemoteTo(d16, hn::BitCast(di, hn::Or(r, sign)));
}
#endif
template <bool kStream, class D>
HWY_INLINE void WriteVector(hn::Vec<D> v, D d, Float16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  auto* to = reinterpret_cast<std::uint16_t*>(p);
  if constexpr (kStream && hn::MaxLanes(d16) >= 8)  // 16 bytes is the least
    hn::Stream(ToFloat16(d, v), d16, to);
  else
    hn::StoreU(ToFloat16(d, v), d16, to);
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D>> ToBFloat16(D d, hn::Vec<D> v) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(RoundToUpperHalf(d, v))));
}
template <bool kStream, class D>
HWY_INLINE void WriteVector(hn::Vec<D> v, D d, BFloat16* p) {
  const hn::Rebind<std::uint16_t, D> d16;
  hn::StoreU(ToBFloat16(d, v), d16, reinterpret_cast<std::uint16_t*>(p));
}
// Words of 32 bits hold two numbers each, which are widened without a shuffle.
template <class D, class B>
HWY_INLINE void LoadWords(D d, const B* p, hn::Vec<D>& even, hn::Vec<D>& odd) {
  const hn::RebindToUnsigned<D> du;
  const auto u = hn::LoadU(du, reinterpret_cast<const std::uint32_t*>(p));
  even = hn::BitCast(d, hn::ShiftLeft<16>(u));
  odd = hn::BitCast(d, hn::And(u, hn::Set(du, 0xffff0000u)));
}
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
// Upper and lower halves of even and odd numbers side by side, so that 16-bit lanes round twice as many numbers. The upper
// half grows by 1 where the lower is above 0x8000, or 0x8000 and the upper is odd: where lower, less 1 if the upper is
// even and not below 0, has its first bit. A NaN must have a lower half
// below 0x8000, as all have that arithmetic makes of bfloat16 and numbers.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> PackNumbers(D, hn::Vec<D> even, hn::Vec<D> odd) {
  const hn::RebindToUnsigned<D> du;
  const hn::Repartition<std::uint16_t, D> d16;
  const auto e = hn::BitCast(du, even), o = hn::BitCast(du, odd);
  const auto upper = hn::OddEven(hn::BitCast(d16, o), hn::BitCast(d16, hn::ShiftRight<16>(e)));
  const auto lower = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(o)), hn::BitCast(d16, e));
  const auto even_upper = hn::AndNot(upper, hn::Set(d16, 1));
  return hn::BitCast(du, hn::Add(upper, hn::ShiftRight<15>(hn::SaturatedSub(lower, even_upper))));
}
#endif
// The machine's conversion: to nearest even; numbers below 2^-126 become 0. Narrower vectors, for
// what is left over, are rounded by integers.
template <bool kStream, class D>
HWY_INLINE void WriteVector(hn::Vec<D> v, D d, NativeBFloat16* p) {
#if defined(__AVX512BF16__) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<D, hn::ScalableTag<float>>) {
    const __m256bh bits = _mm512_cvtneps_pbh(v.raw);
    __builtin_memcpy(p, &bits, sizeof bits);
    return;
  }
#endif
  WriteVector<kStream>(v, d, reinterpret_cast<BFloat16*>(p));
}

// Two vectors side by side.
template <bool kStream, class D, class T>
HWY_INLINE void WritePair(hn::Vec<D> low, hn::Vec<D> high, D d, T* p) {
  WriteVector<kStream>(low, d, p);
  WriteVector<kStream>(high, d, p + hn::Lanes(d));
}
// What goes around the cache goes in whole lines where two vectors of halves make one.
template <bool kStream, class D>
HWY_INLINE void WritePair(hn::Vec<D> low, hn::Vec<D> high, D d, Float16* p) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if constexpr (kStream && hn::MaxLanes(d) == 16) {
    const hn::Twice<hn::Rebind<std::uint16_t, D>> line;
    const auto both = hn::Combine(line, ToFloat16(d, high), ToFloat16(d, low));
    hn::Stream(both, line, reinterpret_cast<std::uint16_t*>(p));
    return;
  }
#endif
  WriteVector<kStream>(low, d, p);
  WriteVector<kStream>(high, d, p + hn::Lanes(d));
}

template <bool kStream, class D>
HWY_INLINE void WritePair(hn::Vec<D> low, hn::Vec<D> high, D d, NativeBFloat16* p) {
#if defined(__AVX512BF16__) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<D, hn::ScalableTag<float>>) {
    const __m512bh bits = _mm512_cvtne2ps_pbh(high.raw, low.raw);
    __builtin_memcpy(p, &bits, sizeof bits);
    return;
  }
#endif
  WriteVector<kStream>(low, d, p);
  WriteVector<kStream>(high, d, p + hn::Lanes(d));
}

// ac - b s. Arm negates one of the two factors, a NaN too. It must be the sine: a NaN among the numbers keeps its sign. With
// SVE the compiler chooses the factor, so the sine is negated before (over the heads this is done once).
template <class V>
HWY_INLINE V SubtractProduct(V ac, V b, V s) {
#if HWY_HAVE_SCALABLE
  return hn::MulAdd(b, hn::Neg(s), ac);
#else
  return hn::NegMulAdd(s, b, ac);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
