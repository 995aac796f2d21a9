// SPDX-License-Identifier: Apache-2.0
// From double to 16 bits by way of float, rounded as at once.
#if defined(POSENC_KERNELS_ODD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ODD_INL_H_
#undef POSENC_KERNELS_ODD_INL_H_
#else
#define POSENC_KERNELS_ODD_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

// Rounded to odd at float's last bit: whatever is cut off leaves that bit set, so that the rounding
// to 16 bits sees on which side of its midpoint the double lies (Boldo and Melquiond, "Emulation of
// FMA and correctly rounded sums", IEEE TC 57(4), 2008). Below 2^-126 float has fewer bits:
// kBFloat16 rounds those at once to bfloat16's last bit, 2^-133 (of float16 nothing is left there).
template <bool kBFloat16, class V>
HWY_INLINE V RoundToOdd(V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto bits = hn::BitCast(du, x), low = hn::Set(du, (std::uint64_t{1} << 29) - 1);
  // any bit of the rest carries into bit 29 when `low` is added to it
  const auto sticky =
      hn::And(hn::Add(hn::And(bits, low), low), hn::Set(du, std::uint64_t{1} << 29));
  const auto odd = hn::BitCast(d, hn::Or(hn::AndNot(low, bits), sticky));
  if constexpr (!kBFloat16) return odd;
  const auto unit = hn::Set(d, 0x1.8p-81);
  const auto tiny = hn::CopySign(hn::Sub(hn::Add(x, unit), unit), x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0x1p-126)), tiny, odd);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#endif
