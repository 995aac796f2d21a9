// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for few queries, for every instruction set.
#include "kernels/attention/fast_decode.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_decode.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_decode_scores-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR

// Channel c of a key that is rotated on the way.
template <class Numbers>
struct TurnedKey {
  const FastTurns& t;
  Index key;
  Numbers token;
  HWY_INLINE float operator[](Index c) const {
    const Index at = c - t.offset, step = t.interleaved ? 1 : t.pairs;
    if (at < 0 || at >= 2 * t.pairs) return Widen(token[c]);
    const bool second = t.interleaved ? at % 2 != 0 : at >= t.pairs;
    const Index row = key * t.stride + (t.interleaved || !second ? at : at - t.pairs);
    const float cos = t.rows[row], sin = t.rows[row + t.stride / 2];
    const float other = Widen(token[second ? c - step : c + step]);
    return Widen(token[c]) * cos + (second ? other : -other) * sin;
  }
};
// Products of all rows of a head with a key. The compiler makes vectors of sums that are independent.
template <class Numbers>
HWY_INLINE void KeyScores(const FastDecodeHeads& all, const FastDecodeHead& h, Index j,
                          const Numbers& key) {
  constexpr Index kSums = 16;
  const Index channels = all.channels;
  for (Index r = 0; r < all.rows; ++r) {
    const float* HWY_RESTRICT q = h.q + r * all.width;
    float sums[kSums] = {};
    Index c = 0;
    for (; c + kSums <= channels; c += kSums)
      for (Index n = 0; n < kSums; ++n) sums[n] += q[c + n] * Widen(key[c + n]);
    for (; c < channels; ++c) sums[c % kSums] += q[c] * Widen(key[c]);
    float sum = 0;
    for (const float y : sums) sum += y;
    h.x[r * kDecodeKeys + j] = sum;
  }
}
template <class T>
HWY_NOINLINE void Scores(const FastDecodeHeads& all) noexcept {
  for (Index j = 0; j < kDecodeKeys; ++j)
    for (const FastDecodeHead* h = all.first; h < all.first + all.count; ++h) {
      const auto key = NumbersOf<T>(h->k[j]);
      if (all.turns.rows != nullptr)
        KeyScores(all, *h, j, TurnedKey<decltype(key)>{all.turns, j, key});
      else
        KeyScores(all, *h, j, key);
    }
}
template <class T>
HWY_NOINLINE void PairScores(float* HWY_RESTRICT x, const float* const* rows, const void* const* k,
                             Index channels) noexcept {
  for (Index j = 0; j < kDecodeKeys; ++j) {
    const auto key = NumbersOf<T>(k[j]);
    x[j] = 0;
    for (Index c = 0; c < channels; ++c) x[j] += rows[j][c] * Widen(key[c]);
  }
}
template <class T>
HWY_NOINLINE void Values(const FastDecodeHeads& all) noexcept {
  for (Index j = 0; j < kDecodeKeys; ++j)
    for (const FastDecodeHead* h = all.first; h < all.first + all.count; ++h) {
      if (j >= h->keys) continue;
      const auto value = NumbersOf<T>(h->v[j]);
      for (Index r = 0; r < all.rows; ++r) {
        const float p = h->x[r * kDecodeKeys + j];
        float* HWY_RESTRICT out = h->out + r * all.width;
        for (Index c = 0; c < all.channels; ++c) out[c] += p * Widen(value[c]);
      }
    }
}

#else

// N vectors of the value of one key, from channel `at` on, times the weights of R rows.
template <int R, int N, class T>
HWY_INLINE void AddValue(F (&c)[R][N], const float* HWY_RESTRICT p, const void* token, Index at) {
  const T* value = static_cast<const T*>(token) + at;
  F y[N];
  POSENC_UNROLL for (int n = 0; n < N; ++n) y[n] = ReadF(value + n * kLanes);
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F z = SetF(p[r * kDecodeKeys]);
    POSENC_UNROLL for (int n = 0; n < N; ++n) c[r][n] = MulAddF(z, y[n], c[r][n]);
  }
}
// The same in blocks. The scale of a block multiplies weights or numbers, whatever is less.
template <int R, int N>
HWY_INLINE void AddValueOfBlocks(F (&c)[R][N], const float* HWY_RESTRICT p, const void* token,
                                 Index at) {
  constexpr int kVectors = static_cast<int>(kQ8Numbers / kLanes),
                kPart = N < kVectors ? N : kVectors;
  const auto* block = static_cast<const std::byte*>(token) + at / kQ8Numbers * kQ8Bytes;
  const Index first = at % kQ8Numbers;
  POSENC_UNROLL for (int b = 0; b < N; b += kPart, block += kQ8Bytes) {
    const F scale = SetF(ScaleOf(block));
    F z[R], y[kPart];
    POSENC_UNROLL for (int n = 0; n < kPart; ++n) {
      y[n] = ReadBytes(FTag(), BytesOf(block) + first + n * kLanes);
      if constexpr (R >= kPart) y[n] = MulF(y[n], scale);
    }
    POSENC_UNROLL for (int r = 0; r < R; ++r) {
      z[r] = SetF(p[r * kDecodeKeys]);
      if constexpr (R < kPart) z[r] = MulF(z[r], scale);
      POSENC_UNROLL for (int n = 0; n < kPart; ++n) c[r][b + n] = MulAddF(z[r], y[n], c[r][b + n]);
    }
  }
}

// N vectors of R rows, from channel `at` of the values on, of some keys.
template <int R, int N, class T>
HWY_INLINE void AddVectors(float* HWY_RESTRICT out, Index width, const float* HWY_RESTRICT p,
                           const void* const* v, Index keys, Index at) {
  F c[R][N];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int n = 0; n < N; ++n) c[r][n] =
      LoadF(out + r * width + n * kLanes);
  for (Index j = 0; j < keys; ++j) {
    if constexpr (std::is_same_v<T, Block>)
      AddValueOfBlocks<R, N>(c, p + j, v[j], at);
    else
      AddValue<R, N, T>(c, p + j, v[j], at);
  }
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int n = 0; n < N; ++n)
      StoreF(out + r * width + n * kLanes, c[r][n]);
}
// R rows of a head and the values of a tile.
template <int R, class T>
HWY_INLINE void AddTile(float* HWY_RESTRICT out, Index width, const float* HWY_RESTRICT p,
                        const void* const* v, Index keys, Index channels) {
  // As many sums as the registers hold.
  constexpr int kMost = R == 1 ? 8 : R == 2 || kStripRows == 12 ? 4 : 2;
  const Index vectors = channels / kLanes;
  Index n = 0;
  for (; n + kMost <= vectors; n += kMost)
    AddVectors<R, kMost, T>(out + n * kLanes, width, p, v, keys, n * kLanes);
  for (; n < vectors; ++n) AddVectors<R, 1, T>(out + n * kLanes, width, p, v, keys, n * kLanes);
  if (n * kLanes < channels)
    AddVectors<R, 1, T>(out + n * kLanes, width, p, v, keys, channels - kLanes);
}
template <class T>
HWY_INLINE void AddAll(const FastDecodeHeads& all, const FastDecodeHead& h, Index j, Index keys) {
  const Index rows = all.rows, width = all.width, channels = all.channels;
  FetchAhead<T>(all, h.v, j, keys);
  const float* p = h.x + j;
  Index r = 0;
  for (; r + 4 <= rows; r += 4)
    AddTile<4, T>(h.out + r * width, width, p + r * kDecodeKeys, h.v + j, keys, channels);
  if (r + 2 <= rows) {
    AddTile<2, T>(h.out + r * width, width, p + r * kDecodeKeys, h.v + j, keys, channels);
    r += 2;
  }
  if (r < rows)
    AddTile<1, T>(h.out + r * width, width, p + r * kDecodeKeys, h.v + j, keys, channels);
}
template <class T>
HWY_NOINLINE void Values(const FastDecodeHeads& all) noexcept {
  const Index tile = ReadsHeads<T>(all) ? kLanes : all.rows < 4 ? 2 : 4;
  for (Index j = 0; j < kDecodeKeys; j += tile)
    for (const FastDecodeHead* h = all.first; h < all.first + all.count; ++h)
      if (j < h->keys) AddAll<T>(all, *h, j, HWY_MIN(tile, h->keys - j));
}

#endif

// (c + i s) (x + i y)
void TurnRows(float* HWY_RESTRICT rows, const float* HWY_RESTRICT steps, Index stride,
              Index count) noexcept {
  const Index columns = stride / 2;
  for (Index n = 1; n < count; ++n) {
    const float *x = steps + n * stride, *y = x + columns;
    float *cos = rows + n * stride, *sin = cos + columns;
    for (Index i = 0; i < columns; i += kLanes) {
      const F c = LoadF(rows + i), s = LoadF(rows + columns + i), a = LoadF(x + i),
              b = LoadF(y + i);
      StoreF(cos + i, NegMulAddF(s, b, MulF(c, a)));
      StoreF(sin + i, MulAddF(c, b, MulF(s, a)));
    }
  }
}

HWY_INLINE F StartOf(const FastDecodeRow& r, F by, Index key) {
  return r.start == nullptr ? by : AddF(LoadF(r.start + key), by);
}
HWY_INLINE void AddWeights(const FastDecodeRow& r, F by, bool given) {
  F sum = LoadF(r.sums);
  Index key = 0;
  for (; key < r.keys; key += kLanes) {
    const F x = LoadF(r.x + key);
    const F p = Exp2F(AddF(x, given ? StartOf(r, by, key) : by));
    StoreF(r.x + key, p);
    sum = AddF(sum, p);
  }
  for (; key < kDecodeKeys; key += kLanes) StoreF(r.x + key, SetF(0));
  StoreF(r.sums, sum);
}
bool Weights(const FastDecodeRow& r) noexcept {
  const F by = SetF(static_cast<float>(r.base - *r.reference));
  F largest = SetF(-127.0f);
  bool usable = true;
  for (Index key = 0; key < r.keys; key += kLanes) {
    const F x = LoadF(r.x + key);
    usable = usable && AllBelowF(x, kLargestScore);
    largest = MaxF(largest, AddF(x, StartOf(r, by, key)));
  }
  if (!usable || !AllAtMostF(largest, kLargestExponent)) return false;
  AddWeights(r, by, true);
  return true;
}
bool RescaleDecoded(const FastDecodeRow& r, float* out, Index vectors) noexcept {
  float largest = -HUGE_VALF, start = 0;
  bool usable = true;
  for (Index key = 0; key < r.keys; ++key) {
    if (r.start != nullptr) start = r.start[key];
    const float x = start == -HUGE_VALF ? start : r.x[key] + start;
    r.x[key] = x;
    usable = usable && (x == -HUGE_VALF ? start == x : std::fabs(x) <= kLargestScore);
    largest = x > largest ? x : largest;
  }
  for (Index key = r.keys; key < kDecodeKeys; ++key) r.x[key] = -HUGE_VALF;
  if (!usable) return false;
  if (largest != -HUGE_VALF) {
    const bool empty = SumF(LoadF(r.sums)) == 0;
    // References move by whole numbers: what they scale is not rounded.
    const double top = std::ceil(r.base + static_cast<double>(largest));
    if (empty || top > *r.reference) {
      const F factor = SetF(static_cast<float>(std::exp2(*r.reference - top)));
      if (!empty) StoreF(r.sums, MulF(LoadF(r.sums), factor));
      for (Index n = 0; !empty && n < vectors; ++n)
        StoreF(out + n * kLanes, MulF(LoadF(out + n * kLanes), factor));
      *r.reference = top;
    }
  }
  AddWeights(r, SetF(static_cast<float>(r.base - *r.reference)), false);
  return true;
}

#undef POSENC_UNROLL

constexpr FastDecodeKernels kDecodeKernels{
    kLanes,
    {Scores<float>, Scores<Float16>, Scores<BFloat16>, Scores<Block>},
    TurnRows,
    {PairScores<float>, PairScores<Float16>, PairScores<BFloat16>, PairScores<Block>},
    Weights,
    RescaleDecoded,
    {Values<float>, Values<Float16>, Values<BFloat16>, Values<Block>}};

}  // namespace

const FastDecodeKernels* table_of_fast_decode() {
  return &kDecodeKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_decode);
const FastDecodeKernels& fast_decode_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_decode), isa);
}
}  // namespace posenc::v0::detail
#endif
