// SPDX-License-Identifier: Apache-2.0
// The rotation of the pairs of one token in all heads; the coefficients stay in registers over the
// heads. Elements read and written may be of two types (In and Out) that are computed in one:
// packing rotates bf16 into f32.
#include <cstdint>
#include <type_traits>

#include "kernels/element-inl.h"

#ifndef POSENC_KERNELS_ROTATE_HEADS_ONCE_H_
#define POSENC_KERNELS_ROTATE_HEADS_ONCE_H_
namespace posenc::inline v0::detail {

// y_a = x_a cos_a - x_b sin_a,  y_b = x_b cos_b + x_a sin_b; one each a pair.
template <class C>
struct Coefficients {
  const C *cos_a, *sin_a, *cos_b, *sin_b;
};
// Where the pairs of a head stand: pair k's members at k * step and member + k * step.
struct PairLayout {
  Index step, member;
};
// One token of one tensor: first pair of the first head, elements from head to head.
template <class In, class Out = In>
struct TokenHeads {
  static_assert(std::is_same_v<Compute<In>, Compute<Out>>);
  using Input = In;
  using Output = Out;
  const In* x;
  Out* y;
  Index heads, x_stride, y_stride;
};

// Heads of one token split into runs, visited round-robin: run 0, run 1, .. and round again.
// Memory gives more to a core that reads several pages at once (see bench/NOTES.md).
inline constexpr Index kMaxRuns = 8;
template <class In, class Out = In>
struct HeadRuns {
  using Input = In;
  using Output = Out;
  TokenHeads<In, Out> run[kMaxRuns];
  Index around[kMaxRuns];  // from the end of each run to its beginning in the next token, or 0
  Index count = 0, heads = 0;
  Index ahead = 0;  // elements that input is prefetched ahead; 0: not at all
};

// Stands on one head after the other, x and y `offset` elements from their first.
template <class In, class Out>
struct HeadCursor {
  const HeadRuns<In, Out>& runs;
  const Index offset;
  Index ahead;
  const In* x;
  Out* y;
  Index left, run = 0, head = 0;
  [[gnu::always_inline]] HeadCursor(const HeadRuns<In, Out>& all, Index at)
      : runs(all),
        offset(at),
        ahead(all.ahead),
        x(all.run[0].x + at),
        y(all.run[0].y + at),
        left(all.heads) {}
  [[gnu::always_inline]] void next() {
    if (--left == 0) return;
    do {
      if (++run == runs.count) run = 0, ++head;
    } while (head >= runs.run[run].heads);
    const TokenHeads<In, Out>& h = runs.run[run];
    const Index at = head * h.x_stride;
    x = h.x + (offset + at), y = h.y + (offset + head * h.y_stride);
    // What lies behind a run is the next run, read already: the next token's is prefetched instead.
    ahead = runs.ahead;
    if (at + ahead >= h.heads * h.x_stride) ahead += runs.around[run];
  }
};
// The same for runs that are written around the cache (non-temporal stores): each vector makes
// whole lines of it, or parts of two that are completed at once.
template <class In, class Out = In>
struct NonTemporalRuns : HeadRuns<In, Out> {};
template <class In, class Out>
struct NonTemporalCursor : HeadCursor<In, Out> {
  using HeadCursor<In, Out>::HeadCursor;
};
// The same for one run in the cache: every nanosecond counts.
template <class In, class Out>
struct DenseCursor {
  const Index x_stride, y_stride;
  static constexpr Index ahead = 0;
  const In* x;
  Out* y;
  Index left;
  [[gnu::always_inline]] DenseCursor(const TokenHeads<In, Out>& h, Index at)
      : x_stride(h.x_stride), y_stride(h.y_stride), x(h.x + at), y(h.y + at), left(h.heads) {}
  [[gnu::always_inline]] void next() { --left, x += x_stride, y += y_stride; }
};
template <class H>
inline constexpr bool kNonTemporal = false;
template <class In, class Out>
inline constexpr bool kNonTemporal<NonTemporalRuns<In, Out>> = true;
// The same heads, written by ordinary stores: vectors narrower than the machine's always are.
template <class In, class Out>
[[gnu::always_inline]] inline const HeadRuns<In, Out>& Temporal(const HeadRuns<In, Out>& runs) {
  return runs;
}
template <class In, class Out>
[[gnu::always_inline]] inline const TokenHeads<In, Out>& Temporal(const TokenHeads<In, Out>& h) {
  return h;
}
template <class In, class Out>
[[gnu::always_inline]] inline HeadCursor<In, Out> CursorAt(const HeadRuns<In, Out>& runs,
                                                           Index at) {
  return {runs, at};
}
template <class In, class Out>
[[gnu::always_inline]] inline NonTemporalCursor<In, Out> CursorAt(
    const NonTemporalRuns<In, Out>& runs, Index at) {
  return {runs, at};
}
template <class In, class Out>
[[gnu::always_inline]] inline DenseCursor<In, Out> CursorAt(const TokenHeads<In, Out>& h,
                                                            Index at) {
  return {h, at};
}

// Heads of any kind (TokenHeads, HeadRuns, NonTemporalRuns) of one bfloat16 type are rotated by
// words that hold two numbers each.
template <class H>
inline constexpr bool kByWords =
    kIsBFloat16<typename H::Input>&& std::is_same_v<typename H::Input, typename H::Output>;
template <class H>
using ComputeIn = Compute<typename H::Input>;

}  // namespace posenc::v0::detail
#endif

#if defined(POSENC_KERNELS_ROTATE_HEADS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_HEADS_INL_H_
#undef POSENC_KERNELS_ROTATE_HEADS_INL_H_
#else
#define POSENC_KERNELS_ROTATE_HEADS_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sixteen registers do not hold the coefficients of a usual head (64 pairs). Several visits to all heads, each for some
// of the pairs, would read the lines of memory with gaps, which the prefetchers do not follow. So a head is rotated
// whole, and the coefficients are read for each head from the first cache.
inline constexpr bool kWholeHeads =
    HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3&& HWY_TARGET != HWY_SCALAR&& HWY_TARGET != HWY_EMU128;

// Pairs [begin, end) one by one: any strides, any layout, members that differ. In place only when
// both layouts are the same.
template <class In, class Out>
HWY_NOINLINE void RotatePlain(const Coefficients<Compute<In>>& f, const TokenHeads<In, Out>& h,
                              PairLayout from, PairLayout to, Index begin, Index end) {
  const In* x = h.x;
  Out* y = h.y;
  for (Index head = 0; head < h.heads; ++head, x += h.x_stride, y += h.y_stride) {
    for (Index k = begin; k < end; ++k) {
      const Compute<In> a = Widen(x[k * from.step]), b = Widen(x[from.member + k * from.step]);
      y[k * to.step] = Narrow<Out>(a * f.cos_a[k] - b * f.sin_a[k]);
      y[to.member + k * to.step] = Narrow<Out>(b * f.cos_b[k] + a * f.sin_b[k]);
    }
  }
}

template <class In, class Out>
HWY_INLINE void RotatePlainRuns(const Coefficients<Compute<In>>& f, const TokenHeads<In, Out>& h,
                                PairLayout from, PairLayout to, Index begin, Index end) {
  RotatePlain(f, h, from, to, begin, end);
}
template <class In, class Out>
HWY_INLINE void RotatePlainRuns(const Coefficients<Compute<In>>& f, const HeadRuns<In, Out>& runs,
                                PairLayout from, PairLayout to, Index begin, Index end) {
  for (Index r = 0; r < runs.count; ++r) RotatePlain(f, runs.run[r], from, to, begin, end);
}

// The lines of n elements. (A prefetch beyond the tensor does nothing.)
template <class T>
HWY_INLINE void PrefetchLines(const T* x, Index n) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(x);
  for (Index i = 0; i < n * static_cast<Index>(sizeof(T)); i += 64) hwy::Prefetch(bytes + i);
}

template <bool kStream, class D, class In, class Out>
HWY_INLINE void RotateHalfVector(D d, const In* x, Out* y, Index half, hn::Vec<D> c, hn::Vec<D> s) {
  const auto a = ReadVector(d, x), b = ReadVector(d, x + half);
  WriteVector<kStream>(SubtractProduct(hn::Mul(a, c), b, s), d, y);
  WriteVector<kStream>(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + half);
}

// Two of them, each line written at once.
template <bool kStream, class D, class In, class Out>
HWY_INLINE void RotateHalfTwoVectors(D d, const In* x, Out* y, Index half, hn::Vec<D> c0,
                                     hn::Vec<D> s0, hn::Vec<D> c1, hn::Vec<D> s1) {
  const auto n = hn::Lanes(d);
  const auto a0 = ReadVector(d, x), b0 = ReadVector(d, x + half);
  const auto a1 = ReadVector(d, x + n), b1 = ReadVector(d, x + half + n);
  WritePair<kStream>(SubtractProduct(hn::Mul(a0, c0), b0, s0),
                     SubtractProduct(hn::Mul(a1, c1), b1, s1), d, y);
  WritePair<kStream>(hn::MulAdd(a0, s0, hn::Mul(b0, c0)), hn::MulAdd(a1, s1, hn::Mul(b1, c1)), d,
                     y + half);
}

// kVectors vectors of pairs, members `half` elements apart.
template <int kVectors, class D, class H>
HWY_INLINE void RotateHalfGroup(D d, const ComputeIn<H>* c, const ComputeIn<H>* s, const H& heads,
                                Index offset, Index half) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const auto c0 = hn::LoadU(d, c), s0 = hn::LoadU(d, s);
  auto c1 = c0, s1 = s0, c2 = c0, s2 = s0, c3 = c0, s3 = s0;
  if constexpr (kVectors > 1) c1 = hn::LoadU(d, c + n), s1 = hn::LoadU(d, s + n);
  if constexpr (kVectors > 2) {
    c2 = hn::LoadU(d, c + 2 * n), s2 = hn::LoadU(d, s + 2 * n);
    c3 = hn::LoadU(d, c + 3 * n), s3 = hn::LoadU(d, s + 3 * n);
  }
  for (auto h = CursorAt(heads, offset); h.left > 0; h.next()) {
    if (h.ahead != 0) {
      PrefetchLines(h.x + h.ahead, kVectors * n);
      PrefetchLines(h.x + half + h.ahead, kVectors * n);
    }
    if constexpr (kNonTemporal<H> && sizeof(typename H::Output) == 2 && kVectors > 1) {
      RotateHalfTwoVectors<true>(d, h.x, h.y, half, c0, s0, c1, s1);
      if constexpr (kVectors > 2)
        RotateHalfTwoVectors<true>(d, h.x + 2 * n, h.y + 2 * n, half, c2, s2, c3, s3);
      continue;
    }
    RotateHalfVector<kNonTemporal<H>>(d, h.x, h.y, half, c0, s0);
    if constexpr (kVectors > 1)
      RotateHalfVector<kNonTemporal<H>>(d, h.x + n, h.y + n, half, c1, s1);
    if constexpr (kVectors > 2) {
      RotateHalfVector<kNonTemporal<H>>(d, h.x + 2 * n, h.y + 2 * n, half, c2, s2);
      RotateHalfVector<kNonTemporal<H>>(d, h.x + 3 * n, h.y + 3 * n, half, c3, s3);
    }
  }
}

// rotate(i) for the vectors of `step` elements up to `end`, which they fill, four without a branch: with one, the next
// token's coefficients begin too late (f16 in memory: 1.3 x the limit, so 1.2).
template <class F>
HWY_INLINE void FourAtOnce(Index step, Index end, const F& rotate) {
  Index i = 0;
  for (; i + 4 * step <= end; i += 4 * step)
    rotate(i), rotate(i + step), rotate(i + 2 * step), rotate(i + 3 * step);
  for (; i < end; i += step) rotate(i);
}

// All whole vectors of a head at once; returns how many pairs these are.
template <class D, class H>
HWY_INLINE Index RotateWholeHalves(D d, const ComputeIn<H>* c, const ComputeIn<H>* s,
                                   const H& heads, Index half, Index pairs) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const Index whole = pairs - pairs % n;
  for (auto h = CursorAt(heads, 0); h.left > 0; h.next()) {
    if (h.ahead != 0) {
      PrefetchLines(h.x + h.ahead, whole);
      PrefetchLines(h.x + half + h.ahead, whole);
    }
    FourAtOnce(n, whole, [&](Index i) HWY_ATTR {
      RotateHalfVector<kNonTemporal<H>>(d, h.x + i, h.y + i, half, hn::LoadU(d, c + i),
                                        hn::LoadU(d, s + i));
    });
  }
  return whole;
}

template <class H>
HWY_INLINE void RotateHalf(const Coefficients<ComputeIn<H>>& f, const H& heads, Index half,
                           Index pairs) {
  using C = ComputeIn<H>;
  const hn::ScalableTag<C> d;
  const auto n = static_cast<Index>(hn::Lanes(d));
  const C *c = f.cos_a, *s = f.sin_a;
  Index i = 0;
  if (kWholeHeads && pairs > 4 * n) i = RotateWholeHalves(d, c, s, heads, half, pairs);
  for (; i + 4 * n <= pairs; i += 4 * n) RotateHalfGroup<4>(d, c + i, s + i, heads, i, half);
  if (i + 2 * n <= pairs) {
    RotateHalfGroup<2>(d, c + i, s + i, heads, i, half);
    i += 2 * n;
  }
  if (i + n <= pairs) {
    RotateHalfGroup<1>(d, c + i, s + i, heads, i, half);
    i += n;
  }
  const hn::CappedTag<C, 4> d4;
  const auto n4 = static_cast<Index>(hn::Lanes(d4));
  if (n4 < n)
    for (; i + n4 <= pairs; i += n4) RotateHalfGroup<1>(d4, c + i, s + i, Temporal(heads), i, half);
  if (i < pairs) RotatePlainRuns(f, heads, {1, half}, {1, half}, i, pairs);
}

#if HWY_TARGET != HWY_SCALAR
// Interleaved pairs: y = x * cos_interleaved + (x with members exchanged) * signed_sin; the
// coefficients of both members stand side by side, the minus of the first in `signed_sin`.
template <bool kStream, class D, class In, class Out>
HWY_INLINE void RotateInterleavedVector(D d, const In* x, Out* y, hn::Vec<D> cos_interleaved,
                                        hn::Vec<D> signed_sin) {
  const auto v = ReadVector(d, x);
  WriteVector<kStream>(hn::MulAdd(hn::Reverse2(d, v), signed_sin, hn::Mul(v, cos_interleaved)), d,
                       y);
}
template <int kVectors, class D, class H>
HWY_INLINE void RotateInterleavedGroup(D d, const ComputeIn<H>* u, const ComputeIn<H>* w,
                                       const H& heads, Index offset) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const auto u0 = hn::LoadU(d, u), w0 = hn::LoadU(d, w);
  auto u1 = u0, w1 = w0, u2 = u0, w2 = w0, u3 = u0, w3 = w0;
  auto u4 = u0, w4 = w0, u5 = u0, w5 = w0, u6 = u0, w6 = w0, u7 = u0, w7 = w0;
  if constexpr (kVectors > 1) u1 = hn::LoadU(d, u + n), w1 = hn::LoadU(d, w + n);
  if constexpr (kVectors > 2) {
    u2 = hn::LoadU(d, u + 2 * n), w2 = hn::LoadU(d, w + 2 * n);
    u3 = hn::LoadU(d, u + 3 * n), w3 = hn::LoadU(d, w + 3 * n);
  }
  if constexpr (kVectors > 4) {
    u4 = hn::LoadU(d, u + 4 * n), w4 = hn::LoadU(d, w + 4 * n);
    u5 = hn::LoadU(d, u + 5 * n), w5 = hn::LoadU(d, w + 5 * n);
    u6 = hn::LoadU(d, u + 6 * n), w6 = hn::LoadU(d, w + 6 * n);
    u7 = hn::LoadU(d, u + 7 * n), w7 = hn::LoadU(d, w + 7 * n);
  }
  for (auto h = CursorAt(heads, offset); h.left > 0; h.next()) {
    if (h.ahead != 0) PrefetchLines(h.x + h.ahead, kVectors * n);
    RotateInterleavedVector<kNonTemporal<H>>(d, h.x, h.y, u0, w0);
    if constexpr (kVectors > 1)
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + n, h.y + n, u1, w1);
    if constexpr (kVectors > 2) {
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + 2 * n, h.y + 2 * n, u2, w2);
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + 3 * n, h.y + 3 * n, u3, w3);
    }
    if constexpr (kVectors > 4) {
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + 4 * n, h.y + 4 * n, u4, w4);
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + 5 * n, h.y + 5 * n, u5, w5);
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + 6 * n, h.y + 6 * n, u6, w6);
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + 7 * n, h.y + 7 * n, u7, w7);
    }
  }
}

template <class D, class H>
HWY_INLINE Index RotateWholeInterleaved(D d, const ComputeIn<H>* u, const ComputeIn<H>* w,
                                        const H& heads, Index width) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const Index whole = width - width % n;
  for (auto h = CursorAt(heads, 0); h.left > 0; h.next()) {
    if (h.ahead != 0) PrefetchLines(h.x + h.ahead, whole);
    FourAtOnce(n, whole, [&](Index i) HWY_ATTR {
      RotateInterleavedVector<kNonTemporal<H>>(d, h.x + i, h.y + i, hn::LoadU(d, u + i),
                                               hn::LoadU(d, w + i));
    });
  }
  return whole;
}

// u, w: 2 * pairs of cos_interleaved and signed_sin, as RotateInterleavedVector takes them; f: the
// same for what is left over.
template <class H>
HWY_INLINE void RotateInterleaved(const Coefficients<ComputeIn<H>>& f, const ComputeIn<H>* u,
                                  const ComputeIn<H>* w, const H& heads, Index pairs) {
  using C = ComputeIn<H>;
  const hn::ScalableTag<C> d;
  const auto n = static_cast<Index>(hn::Lanes(d));
  const Index width = 2 * pairs;
  constexpr int kMax = HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 ? 8 : 4;  // 32 registers or 16
  Index i = 0;
  if (kWholeHeads && width > kMax * n) i = RotateWholeInterleaved(d, u, w, heads, width);
  for (; i + kMax * n <= width; i += kMax * n)
    RotateInterleavedGroup<kMax>(d, u + i, w + i, heads, i);
  if constexpr (kMax == 8)
    if (i + 4 * n <= width) {
      RotateInterleavedGroup<4>(d, u + i, w + i, heads, i);
      i += 4 * n;
    }
  if (i + 2 * n <= width) {
    RotateInterleavedGroup<2>(d, u + i, w + i, heads, i);
    i += 2 * n;
  }
  if (i + n <= width) {
    RotateInterleavedGroup<1>(d, u + i, w + i, heads, i);
    i += n;
  }
  const hn::CappedTag<C, 4> d4;
  const auto n4 = static_cast<Index>(hn::Lanes(d4));
  if (n4 < n)
    for (; i + n4 <= width; i += n4)
      RotateInterleavedGroup<1>(d4, u + i, w + i, Temporal(heads), i);
  if (i < width) RotatePlainRuns(f, heads, {2, 1}, {2, 1}, i / 2, pairs);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
