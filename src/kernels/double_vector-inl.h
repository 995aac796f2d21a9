// SPDX-License-Identifier: Apache-2.0
// Elements of any float type in memory, computed with as vectors of doubles; rounded once.
#if defined(POSENC_KERNELS_DOUBLE_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_DOUBLE_VECTOR_INL_H_
#undef POSENC_KERNELS_DOUBLE_VECTOR_INL_H_
#else
#define POSENC_KERNELS_DOUBLE_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/element-inl.h"
#include "kernels/round_to_odd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DoubleTag = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<DoubleTag>;

template <class T>
HWY_INLINE DoubleVector ReadDoubles(const T* p) {
  if constexpr (sizeof(T) == 8)
    return hn::LoadU(DoubleTag(), p);
  else
    return hn::PromoteTo(DoubleTag(), ReadVector(hn::Rebind<float, DoubleTag>(), p));
}

// kStream: around the cache, where p is aligned to a vector of T.
#if HWY_TARGET == HWY_SCALAR
// (Highway's one lane makes the largest float of infinity.)
template <bool kStream = false, class T>
HWY_INLINE void WriteDoubles(DoubleVector v, T* p) {
  const double x = hn::GetLane(v);
  if constexpr (kIsBFloat16<T>)
    p->bits = bf16_from(x);
  else if constexpr (sizeof(T) == 2)
    p->bits = f16_from(x);
  else
    *p = static_cast<T>(x);
}
#else
template <bool kStream = false, class T>
HWY_INLINE void WriteDoubles(DoubleVector v, T* p) {
  const hn::Rebind<float, DoubleTag> df;
  if constexpr (sizeof(T) == 8) {
    WriteVector<kStream>(v, DoubleTag(), p);
  } else if constexpr (sizeof(T) == 4) {
    WriteVector<kStream>(hn::DemoteTo(df, v), df, p);
  } else if constexpr (kIsBFloat16<T>) {
    WriteVector<false>(hn::DemoteTo(df, RoundToOdd<true>(v)), df, p);
  } else {
    WriteVector<false>(hn::DemoteTo(df, RoundToOdd<false>(v)), df, p);
  }
}
#endif

// Two vectors, one behind the other. float rounds to bfloat16 as double does, half away from zero,
// unless it is the middle of two of them, which its own rounding may have brought it to. (Nor must
// NaN be added to.)
template <class T>
HWY_INLINE void WriteTwoDoubles(DoubleVector a, DoubleVector b, T* p) {
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  if constexpr (kIsBFloat16<T>) {
    const hn::Rebind<float, DoubleTag> half;
    const hn::Twice<decltype(half)> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto v = hn::Combine(d, hn::DemoteTo(half, b), hn::DemoteTo(half, a));
    const auto bits = hn::BitCast(du, v), middle = hn::Set(du, 0x8000u);
    const auto between = hn::Eq(hn::And(bits, hn::Set(du, 0xffffu)), middle);
    const auto rare = hn::Or(between, hn::RebindMask(du, hn::Ne(v, v)));
    if (HWY_LIKELY(hn::AllFalse(du, rare))) {
      const hn::RebindToSigned<decltype(d)> di;
      const hn::Rebind<std::uint16_t, decltype(d)> d16;
      const auto upper = hn::BitCast(di, hn::ShiftRight<16>(hn::Add(bits, middle)));
      return hn::StoreU(hn::DemoteTo(d16, upper), d16, reinterpret_cast<std::uint16_t*>(p));
    }
  }
#endif
  WriteDoubles(a, p), WriteDoubles(b, p + hn::Lanes(DoubleTag()));
}
// Around the cache, in whole vectors of floats.
HWY_INLINE void StreamTwoDoubles(DoubleVector a, DoubleVector b, float* p) {
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  const hn::Rebind<float, DoubleTag> half;
  const hn::Twice<decltype(half)> d;
  hn::Stream(hn::Combine(d, hn::DemoteTo(half, b), hn::DemoteTo(half, a)), d, p);
#else
  WriteDoubles<true>(a, p), WriteDoubles<true>(b, p + hn::Lanes(DoubleTag()));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#endif
