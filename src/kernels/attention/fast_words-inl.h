// SPDX-License-Identifier: Apache-2.0
// Strips of pairs of bfloat16 (fast_words.h). `Words` is the instruction set beyond that of the vectors: it multiplies
// words, and rounds floats to words.
#include "kernels/attention/fast_words.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(POSENC_KERNELS_FAST_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_WORDS_INL_H_
#undef POSENC_KERNELS_FAST_WORDS_INL_H_
#else
#define POSENC_KERNELS_FAST_WORDS_INL_H_
#endif
#include "kernels/attention/fast_lanes-inl.h"
#include "kernels/attention/fast_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

using WTag = hn::RebindToUnsigned<FTag>;
using W = hn::Vec<WTag>;
HWY_INLINE W LoadW(const std::uint32_t* p) {
  return hn::LoadU(WTag(), p);
}
HWY_INLINE void StoreW(std::uint32_t* p, W x) {
  hn::StoreU(x, WTag(), p);
}
HWY_INLINE W SetW(std::uint32_t x) {
  return hn::Set(WTag(), x);
}

// What the instructions do, in those that every machine with vectors has.
struct PlainWords {
  static HWY_INLINE F LowOf(W x) { return hn::BitCast(FTag(), hn::ShiftLeft<16>(x)); }
  static HWY_INLINE F HighOf(W x) { return hn::BitCast(FTag(), hn::And(x, SetW(0xffff0000u))); }
  // sum + a_low b_low + a_high b_high
  static HWY_INLINE F Dot(F sum, W a, W b) {
    return MulAddF(LowOf(a), LowOf(b), MulAddF(HighOf(a), HighOf(b), sum));
  }
  // To nearest, ties to even, of finite numbers; the bits stand in the upper half.
  static HWY_INLINE W Round(F x) {
    const W bits = hn::BitCast(WTag(), x);
    const W odd = hn::And(hn::ShiftRight<16>(bits), SetW(1));
    return hn::Add(hn::Add(bits, SetW(0x7fff)), odd);
  }
  // The words of neighbouring numbers of two vectors, first those of `first`.
  static HWY_INLINE W Pair(F first, F second) {
    const hn::RepartitionToWide<WTag> wide;
    const auto word = [&](F x) HWY_ATTR {
      const auto both = hn::BitCast(wide, Round(x));
      const auto low = hn::And(hn::ShiftRight<16>(both), hn::Set(wide, 0xffffu));
      const auto high = hn::And(hn::ShiftRight<32>(both), hn::Set(wide, 0xffff0000u));
      return hn::BitCast(WTag(), hn::Or(low, high));
    };
    return hn::ConcatEven(WTag(), word(second), word(first));
  }
  // Words of one number of each vector.
  static HWY_INLINE W Join(F low, F high) {
    return hn::Or(hn::ShiftRight<16>(Round(low)), hn::And(Round(high), SetW(0xffff0000u)));
  }
};

// Whether numbers are within kLargestValue: the largest bits of the upper and of the lower halves of words.
struct WordBounds {
  HWY_INLINE WordBounds() : high(hn::Zero(WTag())), low(hn::Zero(WTag())) {}
  W high, low;
  HWY_INLINE void Add(W x) {
    high = hn::Max(high, hn::And(x, SetW(0x7fff0000u)));
    low = hn::Max(low, hn::And(x, SetW(0x7fffu)));
  }
  HWY_INLINE bool Hold() const {
    const std::uint32_t most = std::bit_cast<std::uint32_t>(kLargestValue);
    return hn::AllFalse(WTag(), hn::Gt(high, SetW(most))) &&
           hn::AllFalse(WTag(), hn::Gt(low, SetW(most >> 16)));
  }
};
HWY_INLINE bool IsWordBounded(std::uint32_t x) {
  const std::uint32_t most = std::bit_cast<std::uint32_t>(kLargestValue);
  return (x & 0x7fff0000u) <= most && (x & 0x7fffu) <= most >> 16;
}

// To words, filled up with 0. False: a number is beyond kLargestValue.
HWY_INLINE bool TakeWords(std::uint32_t* HWY_RESTRICT to, const std::uint16_t* HWY_RESTRICT x,
                          Index channels, Index words) {
  WordBounds bounds;
  bool bounded = true;
  Index w = 0;
  for (; 2 * (w + kLanes) <= channels; w += kLanes) {
    const W some =
        hn::BitCast(WTag(), hn::LoadU(hn::Repartition<std::uint16_t, WTag>(), x + 2 * w));
    bounds.Add(some);
    StoreW(to + w, some);
  }
  for (; 2 * w < channels; ++w) {
    const std::uint32_t high = 2 * w + 1 < channels ? x[2 * w + 1] : 0u;
    to[w] = x[2 * w] | high << 16;
    bounded = bounded && IsWordBounded(to[w]);
  }
  std::fill(to + w, to + words, 0u);
  return bounds.Hold() && bounded;
}
template <class Words>
bool TakeWordRow(std::uint32_t* to, const void* from, Index channels, Index words) noexcept {
  return TakeWords(to, static_cast<const std::uint16_t*>(from), channels, words);
}

// Four words of each of a vector of keys, which lie `stride` apart: a transpose of 4 x 4 in each block of the vector.
template <class Tag>
HWY_INLINE void PutFourWords(Tag d, std::uint32_t* HWY_RESTRICT to, const std::uint32_t* from,
                             Index stride) {
  const hn::RepartitionToWide<Tag> wide;
  const auto read = [&](Index first) HWY_ATTR {
    const hn::FixedTag<std::uint32_t, 4> four;
    const auto key = [&](Index n)
                         HWY_ATTR { return hn::LoadU(four, from + (4 * n + first) * stride); };
    if constexpr (kLanes == 4) {
      return key(0);
    } else if constexpr (kLanes == 8) {
      return hn::Combine(d, key(1), key(0));
    } else {
      const hn::Half<Tag> half;
      return hn::Combine(d, hn::Combine(half, key(3), key(2)), hn::Combine(half, key(1), key(0)));
    }
  };
  const W v0 = read(0), v1 = read(1), v2 = read(2), v3 = read(3);
  const auto a = hn::BitCast(wide, hn::InterleaveLower(d, v0, v1)),
             e = hn::BitCast(wide, hn::InterleaveUpper(d, v0, v1));
  const auto b = hn::BitCast(wide, hn::InterleaveLower(d, v2, v3)),
             f = hn::BitCast(wide, hn::InterleaveUpper(d, v2, v3));
  StoreW(to, hn::BitCast(d, hn::InterleaveLower(wide, a, b)));
  StoreW(to + kPanel, hn::BitCast(d, hn::InterleaveUpper(wide, a, b)));
  StoreW(to + 2 * kPanel, hn::BitCast(d, hn::InterleaveLower(wide, e, f)));
  StoreW(to + 3 * kPanel, hn::BitCast(d, hn::InterleaveUpper(wide, e, f)));
}

// Channels of keys that are in words at once.
inline constexpr Index kWordChunk = 64;

template <class Words>
bool PackWordKeys(std::uint32_t* HWY_RESTRICT to, const void* const* from, Index count,
                  Index channels, Index words) noexcept {
  alignas(64) std::uint32_t rows[kLanes * kWordChunk];
  bool bounded = true;
  const Index end = (count + kPanel - 1) / kPanel * kPanel;
  for (Index j = 0; j < end; j += kLanes)
    for (Index first = 0; first < words; first += kWordChunk) {
      const Index some = std::min(words - first, kWordChunk), whole = (some + 3) / 4 * 4;
      for (Index n = 0; n < kLanes; ++n) {
        const auto* x = static_cast<const std::uint16_t*>(j + n < count ? from[j + n] : nullptr);
        const Index left = std::clamp<Index>(channels - 2 * first, 0, 2 * some);
        if (x == nullptr || left == 0)
          std::fill_n(rows + n * kWordChunk, whole, 0u);
        else
          bounded = TakeWords(rows + n * kWordChunk, x + 2 * first, left, whole) && bounded;
      }
      std::uint32_t* panel = to + j / kPanel * (kPanel * words) + j % kPanel + first * kPanel;
      Index w = 0;
      for (; w + 4 <= some; w += 4) PutFourWords(WTag(), panel + w * kPanel, rows + w, kWordChunk);
      for (; w < some; ++w)
        for (Index n = 0; n < kLanes; ++n) panel[w * kPanel + n] = rows[n * kWordChunk + w];
    }
  return bounded;
}

// Values of two keys, null: 0, from `to` on; panels lie `step` apart.
HWY_INLINE bool PutValueWords(std::uint32_t* HWY_RESTRICT to, const std::uint16_t* a,
                              const std::uint16_t* b, Index channels, Index step) {
  const hn::Rebind<std::uint16_t, FTag> half;
  WordBounds bounds;
  bool bounded = true;
  const auto place = [&](Index c) { return to + c / kPanel * step + c % kPanel; };
  const auto read = [&](const std::uint16_t* x, Index c) HWY_ATTR {
    return x == nullptr ? hn::Zero(WTag()) : hn::PromoteTo(WTag(), hn::LoadU(half, x + c));
  };
  Index c = 0;
  for (; c + kLanes <= channels; c += kLanes) {
    const W word = hn::Or(read(a, c), hn::ShiftLeft<16>(read(b, c)));
    bounds.Add(word);
    StoreW(place(c), word);
  }
  const Index end = (channels + kPanel - 1) / kPanel * kPanel;
  for (; c < end; ++c) {
    const std::uint32_t low = a == nullptr || c >= channels ? 0u : a[c],
                        high = b == nullptr || c >= channels ? 0u : b[c];
    *place(c) = low | high << 16;
    bounded = bounded && IsWordBounded(*place(c));
  }
  return bounds.Hold() && bounded;
}
template <class Words, Index kKeys, Index kWhole>
bool PackWordValues(std::uint32_t* HWY_RESTRICT to, const void* const* from, Index count,
                    Index channels) noexcept {
  bool bounded = true;
  const auto key = [&](Index n) {
    return static_cast<const std::uint16_t*>(n < count ? from[n] : nullptr);
  };
  const Index end = (count + kWhole - 1) / kWhole * kWhole;
  for (Index j = 0; j < end; j += 2, to += kPanel)
    bounded = PutValueWords(to, key(j), key(j + 1), channels, kKeys / 2 * kPanel) && bounded;
  return bounded;
}

// c[r][x] += sum over k of the two products of a[r * row + k * step] b[k * width + x * kLanes].
template <class Words, int R, int N>
HWY_INLINE void AddWordProduct(F (&c)[R][N], const std::uint32_t* HWY_RESTRICT a, Index row,
                               Index step, const std::uint32_t* HWY_RESTRICT b, Index width,
                               Index count) {
  _Pragma("GCC unroll 2") for (Index k = 0; k < count; ++k) {
    W y[N];
    POSENC_UNROLL for (int x = 0; x < N; ++x) y[x] = LoadW(b + k * width + x * kLanes);
    POSENC_UNROLL for (int r = 0; r < R; ++r) {
      const W z = SetW(a[r * row + k * step]);
      POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] = Words::Dot(c[r][x], z, y[x]);
    }
  }
}

// Exponent of a product: times f, and the start value with a shift is added.
template <bool kStart>
HWY_INLINE F ExponentOf(F product, const WordStrip& s, Index row, Index key) {
  F start = SetF(s.rows.shift[row]);
  if constexpr (kStart) start = AddF(LoadF(s.rows.start[row] + key), start);
  return MulAddF(product, SetF(s.factors[row]), start);
}

template <class Words, int R, int N>
HWY_INLINE void WordProducts(F (&c)[R][N], const WordBlock& b, const WordStrip& s, Index key) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      SetF(0);
  const std::uint32_t* k = b.k + key / kPanel * (b.words * kPanel) + key % kPanel;
  AddWordProduct<Words>(c, s.q, b.words, 1, k, kPanel, b.words);
}

// Rounded weights, and the sum of them.
template <class Words>
HWY_INLINE void StoreRounded(const WordStrip& s, Index row, std::uint32_t* to, W weights) {
  const W ones = SetW(0x3f803f80u);
  StoreW(to, weights);
  float* sums = s.rounded + row * kLanes;
  StoreF(sums, Words::Dot(LoadF(sums), weights, ones));
}
// Weights of exponents of one row, from a panel of keys on, and their sum. N: vectors of keys; the rest of the panel is 0.
template <class Words, int N, Index kKeys>
HWY_INLINE void StoreWordWeights(const F (&x)[N], const WordStrip& s, Index row, Index key) {
  F p[2] = {Exp2F(x[0]), SetF(0)};
  if constexpr (N == 2) p[1] = Exp2F(x[1]);
  StoreRounded<Words>(s, row, s.weights + row * (kKeys / 2) + key / 2, Words::Pair(p[0], p[1]));
  float* sums = s.rows.sums + row * kLanes;
  StoreF(sums, AddF(LoadF(sums), N == 2 ? AddF(p[0], p[1]) : p[0]));
}

template <class Words, int R, int N, bool kStart, Index kKeys>
HWY_INLINE void WordTile(const WordBlock& b, const WordStrip& s, Index key, F& largest) {
  F c[R][N];
  WordProducts<Words>(c, b, s, key);
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      c[r][x] = ExponentOf<kStart>(c[r][x], s, r, key + x * kLanes);
      largest = MaxF(largest, c[r][x]);
    }
    StoreWordWeights<Words, N, kKeys>(c[r], s, r, key);
  }
}

template <class Words, int R, int N, Index kKeys>
HWY_INLINE void WordValueTile(const WordBlock& b, const WordStrip& s, Index panel) {
  F c[R][N];
  float* out = s.rows.out + panel * (R * kPanel);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      s.rows.first ? SetF(0) : LoadF(out + r * kPanel + x * kLanes);
  AddWordProduct<Words>(c, s.weights, kKeys / 2, 1, b.v + panel * (kKeys / 2 * kPanel), kPanel,
                        (s.rows.keys + 1) / 2);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(out + r * kPanel + x * kLanes, c[r][x]);
}
template <class Words, int R, Index kKeys>
HWY_INLINE void AddWordValues(const WordBlock& b, const WordStrip& s) {
  const Index panels = b.value_vectors / 2;
  for (Index n = 0; n < panels; ++n) WordValueTile<Words, R, 2, kKeys>(b, s, n);
  if (b.value_vectors % 2 != 0) WordValueTile<Words, R, 1, kKeys>(b, s, panels);
}

// Keeps the sums of the rows, for weights that turn out to be too large.
template <int R>
struct SumsBefore {
  HWY_INLINE explicit SumsBefore(const WordStrip& s) {
    std::memcpy(sums, s.rows.sums, sizeof sums);
    std::memcpy(rounded, s.rounded, sizeof rounded);
  }
  HWY_INLINE void Restore(const WordStrip& s) const {
    std::memcpy(s.rows.sums, sums, sizeof sums);
    std::memcpy(s.rounded, rounded, sizeof rounded);
  }
  float sums[R * kLanes], rounded[R * kLanes];
};

template <class Words, int R, bool kStart, Index kKeys>
HWY_NOINLINE bool StripOfWords(const WordBlock& b, const WordStrip& s) noexcept {
  const SumsBefore<R> before(s);
  F largest = SetF(-127.0f);
  Index key = 0;
  for (; key + kLanes < s.rows.keys; key += kPanel)
    WordTile<Words, R, 2, kStart, kKeys>(b, s, key, largest);
  if (key < s.rows.keys) WordTile<Words, R, 1, kStart, kKeys>(b, s, key, largest);
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestExponent))) {
    before.Restore(s);
    return false;
  }
  AddWordValues<Words, R, kKeys>(b, s);
  return true;
}

// From scores relative to the base, `stride` apart, to weights: the reference of each row becomes at least its largest
// score. Returns whether the rows can be used.
template <class Words, int R, Index kKeys>
HWY_INLINE bool RescaleWords(const WordBlock& b, const WordStrip& s, Index keys) {
  const FastBlock block{nullptr, nullptr, 0, b.value_vectors};
  bool usable = true;
  for (int r = 0; r < R; ++r) {
    const double before = s.rows.reference[r];
    usable = RescaleRow<R, kKeys>(block, s.rows, r, keys) && usable;
    // References of rows that have no sum yet may fall.
    const double by = std::min(before - s.rows.reference[r], 0.0);
    float* sums = s.rounded + r * kLanes;
    StoreF(sums, MulF(LoadF(sums), Exp2F(SetF(static_cast<float>(by)))));
    const float* p = s.rows.weights + r * kKeys;
    std::uint32_t* to = s.weights + r * (kKeys / 2);
    for (Index key = 0; key < keys; key += kPanel)
      StoreRounded<Words>(
          s, r, to + key / 2,
          Words::Pair(LoadF(p + key), key + kLanes < keys ? LoadF(p + key + kLanes) : SetF(0)));
  }
  return usable;
}

template <class Words, int R, int N, bool kStart, Index kKeys>
HWY_INLINE void WordScoreTile(const WordBlock& b, const WordStrip& s, Index key) {
  F c[R][N];
  WordProducts<Words>(c, b, s, key);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(s.rows.weights + r * kKeys + key + x * kLanes,
             ExponentOf<kStart>(c[r][x], s, r, key + x * kLanes));
}
template <class Words, int R, bool kStart, Index kKeys>
HWY_NOINLINE bool RescaleStripOfWords(const WordBlock& b, const WordStrip& s) noexcept {
  const float zeros[R] = {};
  WordStrip relative = s;
  relative.rows.shift = zeros;
  Index keys = 0;
  for (; keys + kLanes < s.rows.keys; keys += kPanel)
    WordScoreTile<Words, R, 2, kStart, kKeys>(b, relative, keys);
  if (keys < s.rows.keys)
    WordScoreTile<Words, R, 1, kStart, kKeys>(b, relative, keys), keys += kLanes;
  const bool usable = RescaleWords<Words, R, kKeys>(b, s, keys);
  AddWordValues<Words, R, kKeys>(b, s);
  return usable;
}

inline void DoNothing() noexcept {}

template <class Words>
constexpr WordKernels vector_word_kernels(const char* products) {
  constexpr Index kWhole = 2;
  return {products,
          kLanes,
          kStripRows,
          kFewRows,
          kBlockKeys,
          1,
          kWhole,
          {{StripOfWords<Words, kStripRows, false, kBlockKeys>,
            StripOfWords<Words, kStripRows, true, kBlockKeys>},
           {StripOfWords<Words, kFewRows, false, kBlockKeys>,
            StripOfWords<Words, kFewRows, true, kBlockKeys>}},
          {{RescaleStripOfWords<Words, kStripRows, false, kBlockKeys>,
            RescaleStripOfWords<Words, kStripRows, true, kBlockKeys>},
           {RescaleStripOfWords<Words, kFewRows, false, kBlockKeys>,
            RescaleStripOfWords<Words, kFewRows, true, kBlockKeys>}},
          PackWordKeys<Words>,
          PackWordValues<Words, kBlockKeys, kWhole>,
          TakeWordRow<Words>,
          DoNothing,
          DoNothing};
}

#undef POSENC_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
