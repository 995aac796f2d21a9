// SPDX-License-Identifier: Apache-2.0
// Tiles of the backward pass in pairs of bfloat16 (fast_word_slopes.h). `Words` multiplies and rounds.
#include "kernels/attention/fast_word_slopes.h"

#if defined(POSENC_KERNELS_FAST_WORD_SLOPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_WORD_SLOPES_INL_H_
#undef POSENC_KERNELS_FAST_WORD_SLOPES_INL_H_
#else
#define POSENC_KERNELS_FAST_WORD_SLOPES_INL_H_
#endif
#include "kernels/attention/fast_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

static_assert(kStripRows % 2 == 0 && kFewRows % 2 == 0 && kTileStride % 2 == 0);

template <class Words>
struct WordProduct {
  using Number = std::uint32_t;
  template <int R, int N>
  static HWY_INLINE void Add(F (&c)[R][N], const std::uint32_t* a, Index row, Index step,
                             const std::uint32_t* b, Index b_width, Index count) {
    AddWordProduct<Words>(c, a, row, step, b, b_width, count);
  }
};

// p of products with k, stored in memory of a panel and as words of two rows.
template <class Words, int R, int N, bool kStart>
HWY_INLINE void StoreWordTile(F (&c)[R][N], const WordTileRows& s, Index key, float* p) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F factor = SetF(s.factors[r]);
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      F start = SetF(s.shift[r]);
      if constexpr (kStart) start = AddF(LoadF(s.start[r] + key + x * kLanes), start);
      c[r][x] = Exp2F(MulAddF(c[r][x], factor, start));
      StoreF(p + r * kPanel + x * kLanes, c[r][x]);
    }
  }
  POSENC_UNROLL for (int r = 0; r < R; r += 2) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreW(s.p_pairs + r / 2 * kTileStride + key + x * kLanes, Words::Join(c[r][x], c[r + 1][x]));
}
// s of products with v.
template <class Words, int R, int N>
HWY_INLINE void StoreWordSlopes(F (&c)[R][N], const WordTileRows& s, Index key, const float* p) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      c[r][x] = MulF(c[r][x], LoadF(p + r * kPanel + x * kLanes));
      if (s.s != nullptr) StoreF(s.s + r * kTileStride + key + x * kLanes, c[r][x]);
    }
    StoreW(s.s_keys + r * (kTileStride / 2) + key / 2,
           Words::Pair(c[r][0], N == 2 ? c[r][N - 1] : SetF(0)));
  }
  POSENC_UNROLL for (int r = 0; r < R; r += 2) {
    const F first = SetF(s.factors[r]), second = SetF(s.factors[r + 1]);
    POSENC_UNROLL for (int x = 0; x < N; ++x)
        StoreW(s.s_pairs + r / 2 * kTileStride + key + x * kLanes,
               Words::Join(MulF(c[r][x], first), MulF(c[r + 1][x], second)));
  }
}

template <class Words, int R, int N, bool kStart>
HWY_INLINE void WordSlopeTile(const WordTileKeys& t, const WordTileRows& s, Index key) {
  alignas(64) float p[R * kPanel];
  F c[R][N];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      SetF(0);
  AddWordProduct<Words>(c, s.q, t.q_words, 1, t.k + key * t.q_words, kPanel, t.q_words);
  StoreWordTile<Words, R, N, kStart>(c, s, key, p);
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F less = SetF(-s.less[r]);
    POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] = less;
  }
  AddWordProduct<Words>(c, s.g, t.value_words, 1, t.v + key * t.value_words, kPanel, t.value_words);
  StoreWordSlopes<Words>(c, s, key, p);
}

template <class Words, int R, bool kStart>
HWY_NOINLINE void WordSlopes(const WordTileKeys& t, const WordTileRows& s) noexcept {
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel) WordSlopeTile<Words, R, 2, kStart>(t, s, key);
  if (key < s.keys) WordSlopeTile<Words, R, 1, kStart>(t, s, key);
}

HWY_INLINE Index WholePanels(Index width) {
  return (width + kPanel - 1) / kPanel * kPanel;
}
template <class Words>
void AddOuterWords(float* to, const std::uint32_t* a, const std::uint32_t* b, Index pairs,
                   Index keys, Index width) noexcept {
  AddAll<WordProduct<Words>, true>(to, a, b, keys, pairs, WholePanels(width), width);
}
template <class Words>
void AddRowsOfWords(float* to, const std::uint32_t* a, const std::uint32_t* b, Index rows,
                    Index pairs, Index width) noexcept {
  AddAll<WordProduct<Words>, false, kTileStride / 2>(to, a, b, rows, pairs, WholePanels(width),
                                                     width);
}

template <class Words>
bool PackPairs(std::uint32_t* HWY_RESTRICT to, const void* const* from, Index count,
               Index channels) noexcept {
  bool bounded = true;
  const auto row = [&](Index n) {
    return static_cast<const std::uint16_t*>(n < count ? from[n] : nullptr);
  };
  for (Index n = 0; n < count; n += 2, to += WholePanels(channels))
    bounded = PutValueWords(to, row(n), row(n + 1), channels, kPanel) && bounded;
  return bounded;
}

template <class Words>
constexpr WordSlopeKernels vector_word_slopes(const char* products) {
  return {products,
          kLanes,
          kStripRows,
          kFewRows,
          kTileRows,
          kTileKeys,
          kTileStride,
          {{WordSlopes<Words, kStripRows, false>, WordSlopes<Words, kStripRows, true>},
           {WordSlopes<Words, kFewRows, false>, WordSlopes<Words, kFewRows, true>}},
          AddOuterWords<Words>,
          AddRowsOfWords<Words>,
          PackWordKeys<Words>,
          TakeWordRow<Words>,
          PackPairs<Words>};
}

#undef POSENC_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
