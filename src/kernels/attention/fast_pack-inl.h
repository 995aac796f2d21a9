// SPDX-License-Identifier: Apache-2.0
// Rows of f32, f16 or bf16 to the panels that strips read, and back (fast_strips.h).
#include "kernels/attention/fast_strips.h"

#include <bit>

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

// Whether numbers are within kLargestValue, without a branch for each.
#if HWY_HAVE_SCALABLE
// A maximum may lose a NaN, a sum of products with 0 does not.
struct Bounds {
  F largest = 0, zero = 0;
  HWY_INLINE void Add(F x) {
    largest = MaxF(largest, AbsF(x));
    zero = MulAddF(x, SetF(0), zero);
  }
  HWY_INLINE bool Hold() const { return AllBelowF(largest, kLargestValue) && AllBelowF(zero, 0); }
};
#else
// Bits without the sign: larger numbers have larger ones, infinity and NaN the largest.
struct Bounds {
  using Tag = hn::RebindToSigned<FTag>;
  HWY_INLINE Bounds() : largest(hn::Zero(Tag())) {}
  hn::Vec<Tag> largest;
  HWY_INLINE void Add(F x) {
    largest = hn::Max(largest, hn::And(hn::BitCast(Tag(), x), hn::Set(Tag(), 0x7fffffff)));
  }
  HWY_INLINE bool Hold() const {
    const auto most = hn::BitCast(Tag(), SetF(kLargestValue));
    return hn::AllFalse(Tag(), hn::Gt(largest, most));
  }
};
#endif
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
  Bounds bounds;
  const bool bounded = TakeChannels(to, static_cast<const T*>(from), channels, factor, bounds);
  return bounds.Hold() && bounded;
}
// Rows `width` apart. from[n] null: 0. factors null: 1.
template <class T>
bool TakeRows(float* HWY_RESTRICT to, Index width, const void* const* from, Index count,
              Index channels, const float* factors) noexcept {
  Bounds bounds;
  bool bounded = true;
  for (Index n = 0; n < count; ++n, to += width) {
    const float factor = factors == nullptr ? 1 : factors[n];
    if (from[n] == nullptr)
      std::fill_n(to, channels, 0.0f);
    else
      bounded =
          TakeChannels(to, static_cast<const T*>(from[n]), channels, factor, bounds) && bounded;
  }
  return bounds.Hold() && bounded;
}

template <class T>
bool AreRowsBounded(const void* from, Index stride, Index count, Index channels,
                    float factor) noexcept {
  const T* x = static_cast<const T*>(from);
  if (stride == channels) channels *= count, count = 1;
  Bounds bounds;
  bool bounded = true;
  for (Index n = 0; n < count; ++n, x += stride) {
    Index c = 0;
    for (; c + kLanes <= channels; c += kLanes) bounds.Add(MulF(SetF(factor), ReadF(x + c)));
    for (; c < channels; ++c) bounded = bounded && IsBounded(factor * Widen(x[c]));
  }
  return bounds.Hold() && bounded;
}
template <class T>
bool DotRows(const void* first, Index first_stride, const void* second, Index second_stride,
             Index count, Index channels, float* sums) noexcept {
  const T *a = static_cast<const T*>(first), *b = static_cast<const T*>(second);
  Bounds bounds;
  bool bounded = true;
  for (Index n = 0; n < count; ++n, a += first_stride, b += second_stride) {
    F sum = SetF(0);
    Index c = 0;
    for (; c + kLanes <= channels; c += kLanes) {
      const F x = ReadF(a + c), y = ReadF(b + c);
      bounds.Add(x), bounds.Add(y);
      sum = MulAddF(x, y, sum);
    }
    float rest = 0;
    for (; c < channels; ++c) {
      const float x = Widen(a[c]), y = Widen(b[c]);
      bounded = bounded && IsBounded(x) && IsBounded(y);
      rest += x * y;
    }
    sums[n] = SumF(sum) + rest;
  }
  return bounds.Hold() && bounded;
}

inline void AddScaledRows(float* HWY_RESTRICT to, Index stride, const float* HWY_RESTRICT from,
                          Index width, Index count, Index channels, float factor) noexcept {
  for (Index n = 0; n < count; ++n, to += stride, from += width) {
    Index c = 0;
    for (; c + kLanes <= channels; c += kLanes)
      StoreF(to + c, MulAddF(SetF(factor), LoadF(from + c), LoadF(to + c)));
    for (; c < channels; ++c) to[c] += factor * from[c];
  }
}
inline void WriteScaledRows(float* HWY_RESTRICT to, Index stride, const float* HWY_RESTRICT from,
                            Index width, Index count, Index channels, float factor) noexcept {
  for (Index n = 0; n < count; ++n, to += stride, from += width) {
    Index c = 0;
    for (; c + kLanes <= channels; c += kLanes) StoreF(to + c, MulF(SetF(factor), LoadF(from + c)));
    for (; c < channels; ++c) to[c] = factor * from[c];
  }
}

// The compiler makes vectors of the loop with the series: those before and behind it are for rows without a sum. 2^x of
// [-1/2, 1/2] is the series of e^(x ln 2), off by 1e-12.
inline void SplitSums(const double* HWY_RESTRICT sums, const double* HWY_RESTRICT less, Index count,
                      double* HWY_RESTRICT reference, float* HWY_RESTRICT rest,
                      float* HWY_RESTRICT less_rest) noexcept {
  constexpr double kWhole = 0x1.8p52, kLn2 = 0.69314718055994530942;
  for (Index n = 0; n < count; ++n) reference[n] = sums[n] < HUGE_VAL ? sums[n] : 0;
  for (Index n = 0; n < count; ++n) {
    const double sum = reference[n], whole = (sum + kWhole) - kWhole;
    const double x = (whole - sum) * kLn2;
    double p = x * (1.0 / 362880) + 1.0 / 40320;
    p = p * x + 1.0 / 5040;
    p = p * x + 1.0 / 720;
    p = p * x + 1.0 / 120;
    p = p * x + 1.0 / 24;
    p = p * x + 1.0 / 6;
    p = p * x + 0.5;
    p = p * x + 1;
    p = p * x + 1;
    reference[n] = whole;
    rest[n] = static_cast<float>(p);
    less_rest[n] = static_cast<float>(p * less[n]);
  }
  for (Index n = 0; n < count; ++n)
    if (!(sums[n] < HUGE_VAL)) rest[n] = less_rest[n] = 0;
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

#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
// Channels c to c + 3 of every fourth key, one key in each block of the vector. kHidden: some may be null.
template <bool kHidden, class T>
HWY_INLINE F ReadBlocks(const T* const* x, Index c) {
  const auto read = [&](Index n) HWY_ATTR {
    const hn::FixedTag<float, 4> four;
    const T* key = x[4 * n];
    return kHidden && key == nullptr ? hn::Zero(four) : ReadVector(four, key + c);
  };
  if constexpr (kLanes == 4) {
    return read(0);
  } else if constexpr (kLanes == 8) {
    return hn::Combine(FTag(), read(1), read(0));
  } else {
    const hn::Half<FTag> half;
    return hn::Combine(FTag(), hn::Combine(half, read(3), read(2)),
                       hn::Combine(half, read(1), read(0)));
  }
}
// A vector of keys, four channels at a time: a transpose of 4 x 4 in each block.
template <bool kHidden, class T>
HWY_INLINE bool PutVectorOfKeys(float* HWY_RESTRICT to, const T* const* x, Index channels) {
  const FTag d;
  const hn::RepartitionToWide<FTag> wide;
  Bounds bounds;
  Index c = 0;
  for (; c + 4 <= channels; c += 4) {
    const F v0 = ReadBlocks<kHidden>(x, c), v1 = ReadBlocks<kHidden>(x + 1, c),
            v2 = ReadBlocks<kHidden>(x + 2, c), v3 = ReadBlocks<kHidden>(x + 3, c);
    bounds.Add(v0), bounds.Add(v1), bounds.Add(v2), bounds.Add(v3);
    const auto a = hn::BitCast(wide, hn::InterleaveLower(d, v0, v1)),
               e = hn::BitCast(wide, hn::InterleaveUpper(d, v0, v1));
    const auto b = hn::BitCast(wide, hn::InterleaveLower(d, v2, v3)),
               f = hn::BitCast(wide, hn::InterleaveUpper(d, v2, v3));
    float* p = to + c * kPanel;
    StoreF(p, hn::BitCast(d, hn::InterleaveLower(wide, a, b)));
    StoreF(p + kPanel, hn::BitCast(d, hn::InterleaveUpper(wide, a, b)));
    StoreF(p + 2 * kPanel, hn::BitCast(d, hn::InterleaveLower(wide, e, f)));
    StoreF(p + 3 * kPanel, hn::BitCast(d, hn::InterleaveUpper(wide, e, f)));
  }
  bool all = bounds.Hold();
  for (Index j = 0; c < channels && j < kLanes; ++j) all = PutKey(to + j, x[j], c, channels) && all;
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
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  for (; j < end; j += kLanes) {
    const T* keys[kLanes];
    bool hidden = false;
    for (Index n = 0; n < kLanes; ++n) {
      keys[n] = row(j + n);
      hidden = hidden || keys[n] == nullptr;
    }
    bounded = (hidden ? PutVectorOfKeys<true>(place(j), keys, channels)
                      : PutVectorOfKeys<false>(place(j), keys, channels)) &&
              bounded;
  }
#endif
  for (; j < end; ++j) bounded = PutKey(place(j), row(j), 0, channels) && bounded;
  return bounded;
}

// Values of one key, from `to` on.
template <class T>
HWY_INLINE bool PutValues(float* HWY_RESTRICT to, const T* x, Index channels, Bounds& bounds) {
  constexpr Index kStep = kBlockKeys * kPanel;
  Index c = 0;
  for (; c + kPanel <= channels; c += kPanel, to += kStep) {
    const F a = ReadF(x + c), b = ReadF(x + c + kLanes);
    bounds.Add(a), bounds.Add(b);
    StoreF(to, a), StoreF(to + kLanes, b);
  }
  if (c + kLanes <= channels) {
    const F a = ReadF(x + c);
    bounds.Add(a);
    StoreF(to, a);
    c += kLanes, to += kLanes;
  }
  bool bounded = true;
  if (c == channels) return bounded;
  StoreF(to, SetF(0));
  for (; c < channels; ++c, ++to) {
    *to = Widen(x[c]);
    bounded = bounded && IsBounded(*to);
  }
  return bounded;
}
template <class T>
bool PackValues(float* HWY_RESTRICT to, const void* const* from, Index count,
                Index channels) noexcept {
  bool bounded = true;
  Bounds bounds;
  for (Index j = 0; j < count; ++j, to += kPanel) {
    if (const T* x = static_cast<const T*>(from[j]); x != nullptr) {
      bounded = PutValues(to, x, channels, bounds) && bounded;
      continue;
    }
    for (Index c = 0; c < channels; c += kLanes)
      StoreF(to + c / kPanel * (kBlockKeys * kPanel) + c % kPanel, SetF(0));
  }
  return bounds.Hold() && bounded;
}

template <class T>
HWY_INLINE void PutRow(T* HWY_RESTRICT y, const float* HWY_RESTRICT out, Index rows, Index channels,
                       F factor, float narrow_factor) {
  Index c = 0;
#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR
  for (; c + kPanel <= channels; c += kPanel, out += rows * kPanel) {
    WriteVector<false>(MulF(factor, LoadF(out)), FTag(), y + c);
    WriteVector<false>(MulF(factor, LoadF(out + kLanes)), FTag(), y + c + kLanes);
  }
  if (c + kLanes <= channels) {
    WriteVector<false>(MulF(factor, LoadF(out)), FTag(), y + c);
    c += kLanes, out += kLanes;
  }
  for (; c < channels; ++c, ++out) y[c] = Narrow<T>(narrow_factor * *out);
#else
  for (; c < channels; ++c)
    y[c] = Narrow<T>(narrow_factor * out[c / kPanel * (rows * kPanel) + c % kPanel]);
  (void)factor;
#endif
}
template <class T>
void PutRows(void* const* to, const float* out, Index count, Index rows, Index channels,
             const float* factors) noexcept {
  for (Index r = 0; r < count; ++r)
    if (to[r] != nullptr)
      PutRow(static_cast<T*>(to[r]), out + r * kPanel, rows, channels, SetF(factors[r]),
             factors[r]);
}

// The compiler makes vectors of it.
inline void NarrowRelative(float* HWY_RESTRICT to, const double* HWY_RESTRICT from, Index count,
                           double by, double least) noexcept {
  for (Index n = 0; n < count; ++n) {
    const double x = from[n] - by;
    to[n] = static_cast<float>(x > least ? x : least);
  }
}

// The same. The logarithm of the mantissa m, in [sqrt(1/2), sqrt(2)), is the series of artanh((m - 1) / (m + 1)), off by
// 1e-12.
inline void FinishSums(const float* HWY_RESTRICT sums, const double* HWY_RESTRICT reference,
                       Index count, double* HWY_RESTRICT logarithms) noexcept {
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr std::int32_t kRootOfHalf = 0x3f3504f3, kOne = 1 << 23;
  for (Index n = 0; n < count; ++n) {
    const float sum = sums[n] > 0 ? sums[n] : 1.0f;
    const auto bits = std::bit_cast<std::int32_t>(sum);
    const std::int32_t exponent = (bits - kRootOfHalf) >> 23;
    const float mantissa = std::bit_cast<float>(bits - exponent * kOne);
    // A division in double takes longer than all the rest: one in float, and a step of Newton's.
    const auto m = static_cast<double>(mantissa), inverse = static_cast<double>(1 / (mantissa + 1));
    const double rough = (m - 1) * inverse, s = rough + ((m - 1) - rough * (m + 1)) * inverse;
    const double z = s * s;
    double p = z * (1.0 / 13) + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1;
    logarithms[n] = 2 * s * p + (static_cast<double>(exponent) + reference[n]) * kLn2;
  }
  for (Index n = 0; n < count; ++n)
    if (!(sums[n] > 0)) logarithms[n] = -HUGE_VAL;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
