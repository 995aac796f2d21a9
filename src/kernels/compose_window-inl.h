// SPDX-License-Identifier: Apache-2.0
// y = a x + row on a window of channels, for every token that an item has.
#include <cstdint>
#include <type_traits>

#include "kernels/compose.h"
#include "kernels/element-inl.h"
#include "kernels/phase-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_WINDOW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_WINDOW_INL_H_
#undef POSENC_KERNELS_COMPOSE_WINDOW_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_WINDOW_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pairs whose sines are made before they are added to x: few, so that the processor overlaps the
// two.
inline constexpr Index kComposePairs = 64;
// Channels of the windows of the general case.
inline constexpr Index kComposeWindow = 512;
// Input is prefetched this many bytes ahead.
inline constexpr Index kComposeAhead = 2048;

// One axis of a list of positions as a list of its own.
HWY_INLINE Positions AxisOf(const Positions& p, std::int32_t axis) {
  Positions one = p;
  const Index size = p.type == DType::i32 ? 4 : 8;
  one.data = static_cast<const char*>(p.data) + axis * p.axis_stride * size;
  one.axes = 1;
  return one;
}

// Whether the phase has a row here; its position, with the offset, in `at`.
HWY_INLINE bool PhasePosition(const ComposeSource& s, const Positions& p, Index batch, Index token,
                              TokenPosition& at) {
  if (is_zero(s, p, batch, token)) return false;
  if (s.phase.axes > 1) {
    read_position(p, s.phase.axes, batch, token, at);
  } else {
    read_position(AxisOf(p, s.axis), 1, batch, token, at);
  }
  for (Index a = 0; a < s.phase.axes; ++a) at.whole[a] += static_cast<std::uint64_t>(s.offset);
  return true;
}

// y = a x + row over n channels side by side; x null: zeros.
template <class T, bool kStream>
HWY_INLINE void AddRow(const T* x, T* y, const Compute<T>* row, Index n, Compute<T> a) {
  const hn::ScalableTag<Compute<T>> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto va = hn::Set(d, a);
  const auto ahead = kComposeAhead / static_cast<Index>(sizeof(T));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::LoadU(d, row + i);
    if (x != nullptr) {
      hwy::Prefetch(x + i + ahead);
      v = hn::MulAdd(ReadVector(d, x + i), va, v);
    }
    WriteVector<kStream>(v, d, y + i);
  }
  for (; i < n; ++i) y[i] = Narrow<T>((x != nullptr ? Widen(x[i]) * a : 0) + row[i]);
}

// Streams write whole vectors to addresses that are whole vectors.
template <class T>
HWY_INLINE bool Streams(const ComposeCall& call, const T* y, Index n) {
  const hn::ScalableTag<Compute<T>> d;
  return call.stream && sizeof(T) == sizeof(Compute<T>) && hn::Lanes(d) > 1 &&
         reinterpret_cast<std::uintptr_t>(y) % (hn::Lanes(d) * sizeof(T)) == 0 &&
         n % static_cast<Index>(hn::Lanes(d)) == 0;
}

// The tokens of an item: all batches when they share positions.
struct Item {
  Index token, first, last;  // batches [first, last)
};
HWY_INLINE Item ItemOf(const ComposeCall& call, Index i) {
  if (call.shared) return {i, 0, call.batch};
  return {i % call.tokens, i / call.tokens, i / call.tokens + 1};
}

template <class T>
struct Token {
  const T* x;
  T* y;
};
template <class T>
HWY_INLINE Token<T> TokenAt(const ComposeCall& call, Index b, Index t) {
  const auto* x = static_cast<const T*>(call.x.data);
  return {x == nullptr ? x : x + b * call.x.batch_stride + t * call.x.token_stride,
          static_cast<T*>(call.y.data) + b * call.y.batch_stride + t * call.y.token_stride};
}

template <class T>
HWY_INLINE void AddWindow(const ComposeCall& call, const Item& item, Index channel,
                          const Compute<T>* row, Index n) {
  const auto a = static_cast<Compute<T>>(call.input_gain);
  for (Index b = item.first; b < item.last; ++b) {
    const Token<T> at = TokenAt<T>(call, b, item.token);
    const T* x = at.x == nullptr ? nullptr : at.x + channel;
    if (Streams(call, at.y + channel, n))
      AddRow<T, true>(x, at.y + channel, row, n, a);
    else
      AddRow<T, false>(x, at.y + channel, row, n, a);
  }
}

// Channels that no term reaches: y = a x.
template <class T>
HWY_INLINE void AddNothing(const ComposeCall& call, const Item& item, Index begin, Index end) {
  if (begin >= end) return;
  const Compute<T> zero[kComposeWindow] = {};
  for (Index c = begin; c < end; c += kComposeWindow)
    AddWindow<T>(call, item, c, zero, HWY_MIN(kComposeWindow, end - c));
}

// c0 s0 c1 s1 .. or s0 c0 s1 c1 ..: n pairs of `even` and `odd` side by side; reads whole vectors.
template <class C>
HWY_INLINE void InterleavePairs(const C* even, const C* odd, Index n, C* out) {
  const hn::ScalableTag<C> d;
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  for (Index i = 0; i < n; ++i) out[2 * i] = even[i], out[2 * i + 1] = odd[i];
#else
  for (Index i = 0; i < n; i += static_cast<Index>(hn::Lanes(d)))
    hn::StoreInterleaved2(hn::LoadU(d, even + i), hn::LoadU(d, odd + i), d, out + 2 * i);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
