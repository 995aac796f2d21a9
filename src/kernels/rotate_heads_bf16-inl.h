// SPDX-License-Identifier: Apache-2.0
// bfloat16: a vector of 32-bit words holds two numbers a lane; shifting and masking widens them
// without a shuffle, so even and odd elements are rotated apart and packed again.
#include <type_traits>

#include "kernels/rotate_heads-inl.h"

#if defined(POSENC_KERNELS_ROTATE_HEADS_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_HEADS_BF16_INL_H_
#undef POSENC_KERNELS_ROTATE_HEADS_BF16_INL_H_
#else
#define POSENC_KERNELS_ROTATE_HEADS_BF16_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Coefficients as PackNumbers needs them. What a rotation makes of a NaN among the numbers has no lower half, as they have
// none. One among the coefficients (rows of the caller) loses its own, which the result does not show.
template <class D>
HWY_INLINE hn::Vec<D> QuietCoefficient(D d, hn::Vec<D> v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  const hn::RebindToUnsigned<D> du;
  const auto upper = hn::And(hn::BitCast(du, v), hn::Set(du, 0xffff0000u));
  return hn::IfThenElse(hn::Eq(v, v), v, hn::BitCast(d, hn::Or(upper, hn::Set(du, 0x400000u))));
#else
  (void)d;
  return v;
#endif
}
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Pack(D d, hn::Vec<D> even, hn::Vec<D> odd, BFloat16) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  return PackNumbers(d, even, odd);
#else
  const hn::RebindToUnsigned<D> du;
  return hn::Or(hn::ShiftRight<16>(RoundToUpperHalf(d, even)),
                hn::And(RoundToUpperHalf(d, odd), hn::Set(du, 0xffff0000u)));
#endif
}
// The machine's conversion: to nearest even; numbers below 2^-126 become 0. Narrower vectors, for
// what is left over, are rounded by integers.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Pack(D d, hn::Vec<D> even, hn::Vec<D> odd,
                                                 NativeBFloat16) {
#if defined(__AVX512BF16__) && HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<D, hn::ScalableTag<float>>) {
    alignas(64) static constexpr std::uint16_t kInterleave[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512bh both = _mm512_cvtne2ps_pbh(odd.raw, even.raw);
    __m512i bits;
    __builtin_memcpy(&bits, &both, sizeof bits);
    return hn::Vec<hn::RebindToUnsigned<D>>{
        _mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), bits)};
  }
#endif
  return Pack(d, even, odd, BFloat16{});
}
template <bool kStream, class D, class B>
HWY_INLINE void StoreWords(hn::Vec<D> even, hn::Vec<D> odd, D d, B* p) {
  const hn::RebindToUnsigned<D> du;
  const auto u = Pack(d, even, odd, B{});
  if constexpr (kStream)
    hn::Stream(u, du, reinterpret_cast<std::uint32_t*>(p));
  else
    hn::StoreU(u, du, reinterpret_cast<std::uint32_t*>(p));
}

#if HWY_TARGET != HWY_SCALAR
// One vector of words of each member: pairs 2j (even coefficients) and 2j + 1 (odd).
template <bool kStream, class D, class B>
HWY_INLINE void RotateHalfWords(D d, const B* x, B* y, Index half, hn::Vec<D> ce, hn::Vec<D> se,
                                hn::Vec<D> co, hn::Vec<D> so) {
  hn::Vec<D> ae, ao, be, bo;
  LoadWords(d, x, ae, ao);
  LoadWords(d, x + half, be, bo);
  StoreWords<kStream>(SubtractProduct(hn::Mul(ae, ce), be, se),
                      SubtractProduct(hn::Mul(ao, co), bo, so), d, y);
  StoreWords<kStream>(hn::MulAdd(ae, se, hn::Mul(be, ce)), hn::MulAdd(ao, so, hn::Mul(bo, co)), d,
                      y + half);
}
// Coefficients of the even and of the odd pairs of two vectors.
template <class D>
HWY_INLINE void LoadEvenAndOdd(D d, const float* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
  hn::LoadInterleaved2(d, from, even, odd);
  even = QuietCoefficient(d, even), odd = QuietCoefficient(d, odd);
}
template <int kVectors, class D, class H>
HWY_INLINE void RotateHalfWordsGroup(D d, const float* c, const float* s, const H& heads,
                                     Index offset, Index half) {
  const Index n = 2 * static_cast<Index>(hn::Lanes(d));
  hn::Vec<D> c0, s0, c1, s1, c2, s2, c3, s3;
  LoadEvenAndOdd(d, c, c0, c1);
  LoadEvenAndOdd(d, s, s0, s1);
  c2 = c0, c3 = c1, s2 = s0, s3 = s1;
  if constexpr (kVectors > 1) {
    LoadEvenAndOdd(d, c + n, c2, c3);
    LoadEvenAndOdd(d, s + n, s2, s3);
  }
  for (auto h = CursorAt(heads, offset); h.left > 0; h.next()) {
    if (h.ahead != 0) {
      PrefetchLines(h.x + h.ahead, kVectors * n);
      PrefetchLines(h.x + half + h.ahead, kVectors * n);
    }
    RotateHalfWords<kNonTemporal<H>>(d, h.x, h.y, half, c0, s0, c1, s1);
    if constexpr (kVectors > 1)
      RotateHalfWords<kNonTemporal<H>>(d, h.x + n, h.y + n, half, c2, s2, c3, s3);
  }
}
// All whole vectors of a head at once; returns how many pairs these are. Of each two vectors of `c` and `s` the even
// coefficients come first (PrepareWords).
template <class D, class H>
HWY_INLINE Index RotateWholeHalfWords(D d, const float* c, const float* s, const H& heads,
                                      Index half, Index pairs) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const Index whole = pairs - pairs % (2 * n);
  for (auto h = CursorAt(heads, 0); h.left > 0; h.next()) {
    if (h.ahead != 0) {
      PrefetchLines(h.x + h.ahead, whole);
      PrefetchLines(h.x + half + h.ahead, whole);
    }
    FourAtOnce(2 * n, whole, [&](Index i) HWY_ATTR {
      RotateHalfWords<kNonTemporal<H>>(d, h.x + i, h.y + i, half, hn::LoadU(d, c + i),
                                       hn::LoadU(d, s + i), hn::LoadU(d, c + i + n),
                                       hn::LoadU(d, s + i + n));
    });
  }
  return whole;
}
// `c` and `s` are f's after PrepareWords, where heads are rotated whole.
template <class H>
HWY_INLINE void RotateHalfBFloat16(const Coefficients<float>& f, const float* c_words,
                                   const float* s_words, const H& heads, Index half, Index pairs) {
  const hn::ScalableTag<float> d;
  const Index n = 2 * static_cast<Index>(hn::Lanes(d));
  const float *c = f.cos_a, *s = f.sin_a;
  Index i = 0;
  if (kWholeHeads && pairs > 2 * n)
    i = RotateWholeHalfWords(d, c_words, s_words, heads, half, pairs);
  for (; i + 2 * n <= pairs; i += 2 * n) RotateHalfWordsGroup<2>(d, c + i, s + i, heads, i, half);
  if (i + n <= pairs) {
    RotateHalfWordsGroup<1>(d, c + i, s + i, heads, i, half);
    i += n;
  }
  const hn::CappedTag<float, 4> d4;
  if (8 < n)
    for (; i + 8 <= pairs; i += 8)
      RotateHalfWordsGroup<1>(d4, c + i, s + i, Temporal(heads), i, half);
  if (i < pairs) RotatePlainRuns(f, heads, {1, half}, {1, half}, i, pairs);
}

// Interleaved: even elements are the first members, odd the second.
template <bool kStream, class D, class B>
HWY_INLINE void RotateInterleavedWords(D d, const B* x, B* y, hn::Vec<D> ca, hn::Vec<D> sa,
                                       hn::Vec<D> cb, hn::Vec<D> sb) {
  hn::Vec<D> a, b;
  LoadWords(d, x, a, b);
  StoreWords<kStream>(SubtractProduct(hn::Mul(a, ca), b, sa), hn::MulAdd(a, sb, hn::Mul(b, cb)), d,
                      y);
}
template <int kVectors, class D, class H>
HWY_INLINE void RotateInterleavedWordsGroup(D d, const float* c, const float* s, const H& heads,
                                            Index offset) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const auto load = [d](const float* from)
                        HWY_ATTR { return QuietCoefficient(d, hn::LoadU(d, from)); };
  const auto c0 = load(c), s0 = load(s);
  auto c1 = c0, s1 = s0, c2 = c0, s2 = s0, c3 = c0, s3 = s0;
  if constexpr (kVectors > 1) {
    c1 = load(c + n), s1 = load(s + n);
    c2 = load(c + 2 * n), s2 = load(s + 2 * n);
    c3 = load(c + 3 * n), s3 = load(s + 3 * n);
  }
  for (auto h = CursorAt(heads, offset); h.left > 0; h.next()) {
    if (h.ahead != 0) PrefetchLines(h.x + h.ahead, 2 * kVectors * n);
    RotateInterleavedWords<kNonTemporal<H>>(d, h.x, h.y, c0, s0, c0, s0);
    if constexpr (kVectors > 1) {
      RotateInterleavedWords<kNonTemporal<H>>(d, h.x + 2 * n, h.y + 2 * n, c1, s1, c1, s1);
      RotateInterleavedWords<kNonTemporal<H>>(d, h.x + 4 * n, h.y + 4 * n, c2, s2, c2, s2);
      RotateInterleavedWords<kNonTemporal<H>>(d, h.x + 6 * n, h.y + 6 * n, c3, s3, c3, s3);
    }
  }
}
template <class D, class H>
HWY_INLINE Index RotateWholeInterleavedWords(D d, const float* c, const float* s, const H& heads,
                                             Index pairs) {
  const auto n = static_cast<Index>(hn::Lanes(d));
  const Index whole = pairs - pairs % n;
  for (auto h = CursorAt(heads, 0); h.left > 0; h.next()) {
    if (h.ahead != 0) PrefetchLines(h.x + h.ahead, 2 * whole);
    FourAtOnce(n, whole, [&](Index i) HWY_ATTR {
      const auto cosine = hn::LoadU(d, c + i), sine = hn::LoadU(d, s + i);
      RotateInterleavedWords<kNonTemporal<H>>(d, h.x + 2 * i, h.y + 2 * i, cosine, sine, cosine,
                                              sine);
    });
  }
  return whole;
}
template <class H>
HWY_INLINE void RotateInterleavedBFloat16(const Coefficients<float>& f, const float* c_words,
                                          const float* s_words, const H& heads, Index pairs) {
  const hn::ScalableTag<float> d;
  const auto n = static_cast<Index>(hn::Lanes(d));
  const float *c = f.cos_a, *s = f.sin_a;
  Index i = 0;
  if (kWholeHeads && pairs > 4 * n)
    i = RotateWholeInterleavedWords(d, c_words, s_words, heads, pairs);
  for (; i + 4 * n <= pairs; i += 4 * n)
    RotateInterleavedWordsGroup<4>(d, c + i, s + i, heads, 2 * i);
  for (; i + n <= pairs; i += n) RotateInterleavedWordsGroup<1>(d, c + i, s + i, heads, 2 * i);
  const hn::CappedTag<float, 4> d4;
  if (4 < n)
    for (; i + 4 <= pairs; i += 4)
      RotateInterleavedWordsGroup<1>(d4, c + i, s + i, Temporal(heads), 2 * i);
  if (i < pairs) RotatePlainRuns(f, heads, {2, 1}, {2, 1}, i, pairs);
}

// The coefficients of `pairs` pairs as whole heads of words take them, made once a token: interleaved pairs in order, of
// half-split ones the even of each two vectors before the odd.
HWY_INLINE void PrepareWords(const float* from, Index pairs, bool interleaved, float* to) {
  const hn::ScalableTag<float> d;
  const auto n = static_cast<Index>(hn::Lanes(d));
  if (interleaved)
    for (Index i = 0; i + n <= pairs; i += n)
      hn::StoreU(QuietCoefficient(d, hn::LoadU(d, from + i)), d, to + i);
  else
    for (Index i = 0; i + 2 * n <= pairs; i += 2 * n) {
      hn::Vec<decltype(d)> even, odd;
      LoadEvenAndOdd(d, from + i, even, odd);
      hn::StoreU(even, d, to + i), hn::StoreU(odd, d, to + i + n);
    }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
