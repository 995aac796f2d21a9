// SPDX-License-Identifier: Apache-2.0
// Rows of f32, f16 or bf16 to the panels that strips read, and back (fast_strips.h).
#include "kernels/attention/fast_strips.h"

#if defined(POSENC_KERNELS_FAST_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_PACK_INL_H_
#undef POSENC_KERNELS_FAST_PACK_INL_H_
#else
#define POSENC_KERNELS_FAST_PACK_INL_H_
#endif
#include "kernels/attention/fast_lanes-inl.h"
#include "kernels/attention/fast_products-inl.h"
#include "kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

// Whether numbers are within kLargestValue, without a branch for each: a maximum may lose a NaN, a sum of their products
// with 0 does not.
struct Bounds {
  F largest, zero;  // begin as 0
  HWY_INLINE void Add(F x) {
    largest = MaxF(largest, AbsF(x));
    zero = MulAddF(x, SetF(0), zero);
  }
  HWY_INLINE bool Hold() const { return AllBelowF(largest, kLargestValue) && AllBelowF(zero, 0); }
};
// False for NaN too.
HWY_INLINE bool IsBounded(float x) {
  return std::fabs(x) <= kLargestValue;
}

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE F ReadF(const T* p) {
  return SetF(Widen(*p));
}
#else
template <class T>
HWY_INLINE F ReadF(const T* p) {
  return ReadVector(FTag(), p);
}
#endif

template <class T>
HWY_INLINE bool TakeChannels(float* HWY_RESTRICT to, const T* HWY_RESTRICT x, Index channels,
                             float factor, Bounds& bounds) {
  Index c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const F y = MulF(SetF(factor), ReadF(x + c));
    bounds.Add(y);
    StoreF(to + c, y);
  }
  bool bounded = true;
  for (; c < channels; ++c) {
    to[c] = factor * Widen(x[c]);
    bounded = bounded && IsBounded(to[c]);
  }
  return bounded;
}
template <class T>
bool TakeRow(float* HWY_RESTRICT to, const void* from, Index channels, float factor) noexcept {
  Bounds bounds{SetF(0), SetF(0)};
  const bool bounded = TakeChannels(to, static_cast<const T*>(from), channels, factor, bounds);
  return bounds.Hold() && bounded;
}
template <class T>
bool TakeRows(float* HWY_RESTRICT to, const void* const* from, Index count, Index channels,
              const float* factors) noexcept {
  Bounds bounds{SetF(0), SetF(0)};
  bool bounded = true;
  for (Index n = 0; n < count; ++n)
    bounded = TakeChannels(to + n * channels, static_cast<const T*>(from[n]), channels, factors[n],
                           bounds) &&
              bounded;
  return bounds.Hold() && bounded;
}

template <class T>
bool IsRowBounded(const void* from, Index channels, float factor) noexcept {
  const T* x = static_cast<const T*>(from);
  Bounds bounds{SetF(0), SetF(0)};
  Index c = 0;
  for (; c + kLanes <= channels; c += kLanes) bounds.Add(MulF(SetF(factor), ReadF(x + c)));
  bool bounded = true;
  for (; c < channels; ++c) bounded = bounded && IsBounded(factor * Widen(x[c]));
  return bounds.Hold() && bounded;
}
template <class T>
bool DotRows(const void* first, const void* second, Index channels, float& sum) noexcept {
  const T *a = static_cast<const T*>(first), *b = static_cast<const T*>(second);
  Bounds bounds{SetF(0), SetF(0)};
  F sums = SetF(0);
  Index c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const F x = ReadF(a + c), y = ReadF(b + c);
    bounds.Add(x), bounds.Add(y);
    sums = MulAddF(x, y, sums);
  }
  bool bounded = true;
  float rest = 0;
  for (; c < channels; ++c) {
    const float x = Widen(a[c]), y = Widen(b[c]);
    bounded = bounded && IsBounded(x) && IsBounded(y);
    rest += x * y;
  }
  sum = SumF(sums) + rest;
  return bounds.Hold() && bounded;
}

inline void AddRow(float* HWY_RESTRICT to, const float* HWY_RESTRICT from, Index channels,
                   float factor) noexcept {
  Index c = 0;
  for (; c + kLanes <= channels; c += kLanes)
    StoreF(to + c, MulAddF(SetF(factor), LoadF(from + c), LoadF(to + c)));
  for (; c < channels; ++c) to[c] += factor * from[c];
}

inline void AddLanes(float* to, const float* sums, Index rows) noexcept {
  for (Index r = 0; r < rows; ++r) to[r] = SumF(LoadF(sums + r * kLanes));
}

// Key `key` of a panel, channel by channel.
template <class T>
HWY_INLINE bool PutKey(float* HWY_RESTRICT to, const T* x, Index first, Index channels) {
  bool bounded = true;
  for (Index c = first; c < channels; ++c) {
    const float y = x == nullptr ? 0 : Widen(x[c]);
    bounded = bounded && IsBounded(y);
    to[c * kPanel] = y;
  }
  return bounded;
}

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
template <class T>
HWY_INLINE bool PutFourKeys(float* HWY_RESTRICT to, const T* const (&x)[4], Index channels) {
  bool bounded = true;
  for (Index j = 0; j < 4; ++j) bounded = PutKey(to + j, x[j], 0, channels) && bounded;
  return bounded;
}
#else
// Four keys, four channels at a time: a transpose of 4 x 4.
template <class T>
HWY_INLINE bool PutFourKeys(float* HWY_RESTRICT to, const T* const (&x)[4], Index channels) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto limit = hn::Set(d, kLargestValue);
  auto bounded = hn::Eq(limit, limit);
  Index c = 0;
  for (; c + 4 <= channels; c += 4) {
    const auto read = [&](Index j) HWY_ATTR {
      return x[j] == nullptr ? hn::Zero(d) : ReadVector(d, x[j] + c);
    };
    const auto v0 = read(0), v1 = read(1), v2 = read(2), v3 = read(3);
    bounded =
        hn::And(bounded, hn::And(hn::And(hn::Le(hn::Abs(v0), limit), hn::Le(hn::Abs(v1), limit)),
                                 hn::And(hn::Le(hn::Abs(v2), limit), hn::Le(hn::Abs(v3), limit))));
    const auto a = hn::BitCast(wide, hn::InterleaveLower(d, v0, v1)),
               e = hn::BitCast(wide, hn::InterleaveUpper(d, v0, v1));
    const auto b = hn::BitCast(wide, hn::InterleaveLower(d, v2, v3)),
               f = hn::BitCast(wide, hn::InterleaveUpper(d, v2, v3));
    float* p = to + c * kPanel;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, a, b)), d, p);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, a, b)), d, p + kPanel);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide, e, f)), d, p + 2 * kPanel);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide, e, f)), d, p + 3 * kPanel);
  }
  bool all = hn::AllTrue(d, bounded);
  for (Index j = 0; c < channels && j < 4; ++j) all = PutKey(to + j, x[j], c, channels) && all;
  return all;
}
#endif

template <class T>
bool PackKeys(float* HWY_RESTRICT to, const void* const* from, Index count, Index channels,
              Index panel_channels) noexcept {
  bool bounded = true;
  const Index end = (count + kPanel - 1) / kPanel * kPanel;
  Index j = 0;
  const auto row = [&](Index n) { return n < count ? static_cast<const T*>(from[n]) : nullptr; };
  const auto place = [&](Index n) {
    return to + n / kPanel * (kPanel * panel_channels) + n % kPanel;
  };
  if constexpr (kPanel % 4 == 0)
    for (; j < end; j += 4) {
      const T* const four[4] = {row(j), row(j + 1), row(j + 2), row(j + 3)};
      bounded = PutFourKeys(place(j), four, channels) && bounded;
    }
  for (; j < end; ++j) bounded = PutKey(place(j), row(j), 0, channels) && bounded;
  return bounded;
}

template <class T>
bool PackValues(float* HWY_RESTRICT to, const void* const* from, Index count,
                Index channels) noexcept {
  bool bounded = true;
  Bounds bounds{SetF(0), SetF(0)};
  const Index whole = channels / kLanes * kLanes;
  for (Index j = 0; j < count; ++j) {
    const T* x = static_cast<const T*>(from[j]);
    float* p = to + j * kPanel;
    const auto place = [&](Index c) { return p + c / kPanel * (kBlockKeys * kPanel) + c % kPanel; };
    for (Index c = 0; c < whole; c += kLanes) {
      const F y = x == nullptr ? SetF(0) : ReadF(x + c);
      bounds.Add(y);
      StoreF(place(c), y);
    }
    if (whole == channels) continue;
    StoreF(place(whole), SetF(0));
    for (Index c = whole; x != nullptr && c < channels; ++c) {
      *place(c) = Widen(x[c]);
      bounded = bounded && IsBounded(Widen(x[c]));
    }
  }
  return bounds.Hold() && bounded;
}

template <class T>
void PutRow(void* to, const float* out, Index rows, Index channels, float factor) noexcept {
  T* y = static_cast<T*>(to);
  const auto place = [&](Index c) { return out + c / kPanel * (rows * kPanel) + c % kPanel; };
  Index c = 0;
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  for (; c + kLanes <= channels; c += kLanes)
    WriteVector<false>(MulF(SetF(factor), LoadF(place(c))), FTag(), y + c);
#endif
  for (; c < channels; ++c) y[c] = Narrow<T>(factor * *place(c));
}

// The compiler makes vectors of it.
inline void NarrowRelative(float* HWY_RESTRICT to, const double* HWY_RESTRICT from, Index count,
                           double by, double least) noexcept {
  for (Index n = 0; n < count; ++n) {
    const double x = from[n] - by;
    to[n] = static_cast<float>(x > least ? x : least);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
