// SPDX-License-Identifier: Apache-2.0
// Strips of pairs of bfloat16 (fast_words.h) by tiles: 16 x 16 sums of products in a register, as AMX has them. Scores of a
// panel of keys go through memory of the first cache: while their weights are computed, the tiles of the next panel are.
// `Tiles` multiplies, `Words` rounds.
#include "kernels/attention/fast_words.h"

#if defined(POSENC_KERNELS_FAST_WORD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_WORD_TILES_INL_H_
#undef POSENC_KERNELS_FAST_WORD_TILES_INL_H_
#else
#define POSENC_KERNELS_FAST_WORD_TILES_INL_H_
#endif
#include "kernels/attention/fast_words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

// Rows, columns and words of a tile.
inline constexpr Index kTileSize = 16;
// Two by two tiles of sums fill half of the registers; the other half are what is multiplied.
inline constexpr Index kTileStripRows = 2 * kTileSize, kTileStep = 2 * kTileSize;
inline constexpr Index kTileBlockKeys = 256;
// A tile of columns lies in one panel.
static_assert(kTileStripRows <= kMostStripRows && kPanel % kTileSize == 0);

// A product of one or two tiles of rows and one or two of columns.
struct TileProduct {
  const std::uint32_t* a = nullptr;       // [rows][a_width]
  const std::uint32_t* b = nullptr;       // [words][kPanel]: the first 16 columns
  const std::uint32_t* b_next = nullptr;  // the second
  float* c = nullptr;                     // [rows][c_width]: the first 16 columns
  float* c_next = nullptr;
  Index a_width = 0, c_width = 0;
  Index words = 0;    // whole tiles
  bool adds = false;  // to what c was
};

// What the instructions do, in plain C++.
struct PlainTiles {
  template <int kRows, int kColumns>
  static void Multiply(const TileProduct& t) {
    for (Index i = 0; i < kRows * kTileSize; ++i)
      for (Index j = 0; j < kColumns * kTileSize; ++j) {
        float& sum = (j < kTileSize ? t.c : t.c_next)[i * t.c_width + j % kTileSize];
        if (!t.adds) sum = 0;
        for (Index k = 0; k < t.words; ++k) {
          const std::uint32_t x = t.a[i * t.a_width + k],
                              y = (j < kTileSize ? t.b : t.b_next)[k * kPanel + j % kTileSize];
          const auto low = [](std::uint32_t w) { return std::bit_cast<float>(w << 16); };
          const auto high = [](std::uint32_t w) { return std::bit_cast<float>(w & 0xffff0000u); };
          sum += low(x) * low(y);
          sum += high(x) * high(y);
        }
      }
  }
  static void Begin() noexcept {}
  static void End() noexcept {}
};

// Products of a strip with a step of keys, of which `columns` tiles are wanted.
template <class Tiles, int kRows>
HWY_INLINE void MultiplyKeys(const WordBlock& b, const WordStrip& s, Index key, float* scores,
                             Index width) {
  const auto place = [&](Index j) { return b.k + j / kPanel * (b.words * kPanel) + j % kPanel; };
  TileProduct t{
      s.q,     place(key), place(key + kTileSize), scores, scores + kTileSize, b.words, width,
      b.words, false};
  if (key + kTileSize < s.rows.keys)
    Tiles::template Multiply<kRows, 2>(t);
  else
    Tiles::template Multiply<kRows, 1>(t);
}

template <class Tiles, int kRows>
HWY_INLINE void AddTileValues(const WordBlock& b, const WordStrip& s) {
  constexpr Index kRowsOfStrip = kRows * kTileSize, kStep = kTileBlockKeys / 2 * kPanel;
  const Index words = (s.rows.keys + kTileStep - 1) / kTileStep * kTileSize;
  const Index channels = b.value_vectors * kLanes;
  for (Index c = 0; c < channels; c += kTileStep) {
    const auto from = [&](Index n) { return b.v + n / kPanel * kStep + n % kPanel; };
    const auto to = [&](Index n) {
      return s.rows.out + n / kPanel * (kRowsOfStrip * kPanel) + n % kPanel;
    };
    TileProduct t{
        s.weights, from(c), from(c + kTileSize), to(c), to(c + kTileSize), kTileBlockKeys / 2,
        kPanel,    words,   !s.rows.first};
    if (c + kTileSize < channels)
      Tiles::template Multiply<kRows, 2>(t);
    else
      Tiles::template Multiply<kRows, 1>(t);
  }
}

// Weights of a step of keys from their products. Those behind the last vector of keys are 0.
template <class Words, int kRows, bool kStart>
HWY_INLINE void WeighStep(const WordStrip& s, Index key, const float* scores, F& largest) {
  constexpr Index kVectors = kTileStep / kLanes;
  const Index count = std::min(kTileStep, s.rows.keys - key);
  for (Index r = 0; r < kRows * kTileSize; ++r) {
    float* sums = s.rows.sums + r * kLanes;
    F sum = LoadF(sums), p[kVectors];
    POSENC_UNROLL for (Index x = 0; x < kVectors; ++x) {
      p[x] = SetF(0);
      if (x * kLanes >= count) continue;
      const F e =
          ExponentOf<kStart>(LoadF(scores + r * kTileStep + x * kLanes), s, r, key + x * kLanes);
      largest = MaxF(largest, e);
      p[x] = Exp2F(e);
      sum = AddF(sum, p[x]);
    }
    StoreF(sums, sum);
    std::uint32_t* to = s.weights + r * (kTileBlockKeys / 2) + key / 2;
    POSENC_UNROLL for (Index x = 0; x < kVectors; x += 2)
        StoreRounded<Words>(s, r, to + x / 2 * kLanes, Words::Pair(p[x], p[x + 1]));
  }
}

template <class Tiles, class Words, int kRows, bool kStart>
HWY_NOINLINE bool StripOfTiles(const WordBlock& b, const WordStrip& s) noexcept {
  constexpr Index kRowsOfStrip = kRows * kTileSize;
  const SumsBefore<kRowsOfStrip> before(s);
  alignas(64) float scores[2][kRowsOfStrip * kTileStep];
  F largest = SetF(-127.0f);
  MultiplyKeys<Tiles, kRows>(b, s, 0, scores[0], kTileStep);
  for (Index key = 0, n = 0; key < s.rows.keys; key += kTileStep, n ^= 1) {
    if (key + kTileStep < s.rows.keys)
      MultiplyKeys<Tiles, kRows>(b, s, key + kTileStep, scores[n ^ 1], kTileStep);
    WeighStep<Words, kRows, kStart>(s, key, scores[n], largest);
  }
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestExponent))) {
    before.Restore(s);
    return false;
  }
  AddTileValues<Tiles, kRows>(b, s);
  return true;
}

template <class Tiles, class Words, int kRows, bool kStart>
HWY_NOINLINE bool RescaleStripOfTiles(const WordBlock& b, const WordStrip& s) noexcept {
  constexpr Index kRowsOfStrip = kRows * kTileSize;
  float* scores = s.rows.weights;
  for (Index key = 0; key < s.rows.keys; key += kTileStep)
    MultiplyKeys<Tiles, kRows>(b, s, key, scores + key, kTileBlockKeys);
  const float zeros[kRowsOfStrip] = {};
  WordStrip relative = s;
  relative.rows.shift = zeros;
  const Index keys = (s.rows.keys + kLanes - 1) / kLanes * kLanes;
  for (Index r = 0; r < kRowsOfStrip; ++r) {
    float* row = scores + r * kTileBlockKeys;
    for (Index key = 0; key < keys; key += kLanes)
      StoreF(row + key, ExponentOf<kStart>(LoadF(row + key), relative, r, key));
    // Products of values read whole steps.
    const Index end = (keys + kTileStep - 1) / kTileStep * kTileStep;
    std::fill(s.weights + r * (kTileBlockKeys / 2) + keys / 2,
              s.weights + r * (kTileBlockKeys / 2) + end / 2, 0u);
  }
  const bool usable = RescaleWords<Words, kRowsOfStrip, kTileBlockKeys>(b, s, keys);
  AddTileValues<Tiles, kRows>(b, s);
  return usable;
}

template <class Tiles, class Words>
constexpr WordKernels tile_word_kernels(const char* products) {
  return {
      products,
      kLanes,
      kTileStripRows,
      kTileSize,
      kTileBlockKeys,
      kTileSize,
      kTileStep,
      {{StripOfTiles<Tiles, Words, 2, false>, StripOfTiles<Tiles, Words, 2, true>},
       {StripOfTiles<Tiles, Words, 1, false>, StripOfTiles<Tiles, Words, 1, true>}},
      {{RescaleStripOfTiles<Tiles, Words, 2, false>, RescaleStripOfTiles<Tiles, Words, 2, true>},
       {RescaleStripOfTiles<Tiles, Words, 1, false>, RescaleStripOfTiles<Tiles, Words, 1, true>}},
      PackWordKeys<Words>,
      PackWordValues<Words, kTileBlockKeys, kTileStep>,
      TakeWordRow<Words>,
      Tiles::Begin,
      Tiles::End};
}

#undef POSENC_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
