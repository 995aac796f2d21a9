// SPDX-License-Identifier: Apache-2.0
// Sums along the lanes of a vector, from either end, and what they are sums of.
#include "kernels/attention/fast_products-inl.h"

#if defined(POSENC_KERNELS_FAST_SCANS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_SCANS_INL_H_
#undef POSENC_KERNELS_FAST_SCANS_INL_H_
#else
#define POSENC_KERNELS_FAST_SCANS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

#if HWY_HAVE_SCALABLE
HWY_INLINE F MinF(F a, F b) {
  return a < b ? a : b;
}
HWY_INLINE F DivF(F a, F b) {
  return a / b;
}
// x where the start value does not hide the key, else 0.
HWY_INLINE F ShownF(F x, F start) {
  return start == -HUGE_VALF ? 0 : x;
}
HWY_INLINE F WithoutLaneF(F, Index) {
  return 0;
}
HWY_INLINE float FirstF(F x) {
  return x;
}
#else
HWY_INLINE F MinF(F a, F b) {
  return hn::Min(a, b);
}
HWY_INLINE F DivF(F a, F b) {
  return hn::Div(a, b);
}
HWY_INLINE F ShownF(F x, F start) {
  return hn::IfThenZeroElse(hn::Eq(start, SetF(-HUGE_VALF)), x);
}
// x with 0 in one lane.
HWY_INLINE F WithoutLaneF(F x, Index lane) {
  return hn::IfThenZeroElse(hn::Eq(hn::Iota(FTag(), 0.0f), SetF(static_cast<float>(lane))), x);
}
HWY_INLINE float FirstF(F x) {
  return hn::GetLane(x);
}
#endif

// log2(1 + 2^x) = max(x, 0) + e Q(e), e = 2^-|x|; Q within 5e-9 of log2(1 + e) / e.
HWY_INLINE F LeaveF(F x) {
  const F e = Exp2F(MulF(AbsF(x), SetF(-1.0f)));
  F q = MulAddF(SetF(-0.004693651f), e, SetF(0.02870385f));
  q = MulAddF(q, e, SetF(-0.08230386f));
  q = MulAddF(q, e, SetF(0.15311924f));
  q = MulAddF(q, e, SetF(-0.22090468f));
  q = MulAddF(q, e, SetF(0.28389984f));
  q = MulAddF(q, e, SetF(-0.36002037f));
  q = MulAddF(q, e, SetF(0.48085076f));
  q = MulAddF(q, e, SetF(-0.7213462f));
  q = MulAddF(q, e, SetF(1.442695f));
  return MulAddF(q, e, MaxF(x, SetF(0)));
}

// y_n = x_n + x_{n + 1} + ...
template <int kStep>
HWY_INLINE F AddBehindF(F x) {
#if !HWY_HAVE_SCALABLE
  if constexpr (kStep < kLanes) {
    const hn::RebindToSigned<FTag> di;
    const auto lane = hn::And(hn::Iota(di, kStep), hn::Set(di, static_cast<int>(kLanes - 1)));
    const F moved = hn::TableLookupLanes(x, hn::IndicesFromVec(FTag(), lane));
    const auto inside = hn::FirstN(FTag(), static_cast<std::size_t>(kLanes - kStep));
    return AddBehindF<2 * kStep>(AddF(x, hn::IfThenElseZero(inside, moved)));
  }
#endif
  return x;
}
// y_n = x_n + x_{n - 1} + ...
template <int kStep>
HWY_INLINE F AddBeforeF(F x) {
#if !HWY_HAVE_SCALABLE
  if constexpr (kStep < kLanes) {
    const hn::RebindToSigned<FTag> di;
    const auto lane = hn::And(hn::Iota(di, static_cast<int>(kLanes - kStep)),
                              hn::Set(di, static_cast<int>(kLanes - 1)));
    const F moved = hn::TableLookupLanes(x, hn::IndicesFromVec(FTag(), lane));
    const auto outside = hn::FirstN(FTag(), static_cast<std::size_t>(kStep));
    return AddBeforeF<2 * kStep>(AddF(x, hn::IfThenZeroElse(outside, moved)));
  }
#endif
  return x;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
