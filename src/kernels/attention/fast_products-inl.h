// SPDX-License-Identifier: Apache-2.0
// Strips and tiles of the fast attention engine (fast_strips.h, fast_tiles.h). Registers hold R rows x 2 vectors of sums.
#include "kernels/attention/fast_strips.h"
#include "kernels/attention/fast_tiles.h"

#if defined(POSENC_KERNELS_FAST_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_PRODUCTS_INL_H_
#undef POSENC_KERNELS_FAST_PRODUCTS_INL_H_
#else
#define POSENC_KERNELS_FAST_PRODUCTS_INL_H_
#endif
#include "kernels/attention/fast_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

inline constexpr Index kPanel = 2 * kLanes;

// c[r][x] += sum over k of a[r * row + k * step] b[k * width + x * kLanes].
template <int R, int N>
HWY_INLINE void AddProduct(F (&c)[R][N], const float* HWY_RESTRICT a, Index row, Index step,
                           const float* HWY_RESTRICT b, Index width, Index count) {
  _Pragma("GCC unroll 2") for (Index k = 0; k < count; ++k) {
    F y[N];
    POSENC_UNROLL for (int x = 0; x < N; ++x) y[x] = LoadF(b + k * width + x * kLanes);
    POSENC_UNROLL for (int r = 0; r < R; ++r) {
      const F z = SetF(a[r * row + k * step]);
      POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] = MulAddF(z, y[x], c[r][x]);
    }
  }
}

// What sums of exponents begin with: start values, if there are any, and a shift of each row.
template <int R, int N, bool kStart>
HWY_INLINE void Begin(F (&c)[R][N], const float* const* start, const float* shift, Index key) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F by = SetF(shift[r]);
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      if constexpr (kStart)
        c[r][x] = AddF(LoadF(start[r] + key + x * kLanes), by);
      else
        c[r][x] = by;
    }
  }
}

// Exponents of R rows and N vectors of keys, of which the first is `key`.
template <int R, int N, bool kStart>
HWY_INLINE void Exponents(F (&c)[R][N], const FastBlock& b, const FastStrip& s, Index key) {
  Begin<R, N, kStart>(c, s.start, s.shift, key);
  AddProduct(c, s.q, b.channels, 1, b.k + key / kPanel * (b.channels * kPanel) + key % kPanel,
             kPanel, b.channels);
}

// Weights of exponents, and their sums.
template <int R, int N>
HWY_INLINE void StoreWeights(F (&c)[R][N], const FastStrip& s, Index key, F& largest) {
  F most = c[0][0];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) most =
      MaxF(most, c[r][x]);
  largest = MaxF(largest, most);
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    F sum = LoadF(s.sums + r * kLanes);
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      c[r][x] = Exp2F(c[r][x]);
      StoreF(s.weights + r * kBlockKeys + key + x * kLanes, c[r][x]);
      sum = AddF(sum, c[r][x]);
    }
    StoreF(s.sums + r * kLanes, sum);
  }
}

template <int R, int N, bool kStart>
HWY_INLINE void WeightTile(const FastBlock& b, const FastStrip& s, Index key, F& largest) {
  F c[R][N];
  Exponents<R, N, kStart>(c, b, s, key);
  StoreWeights<R, N>(c, s, key, largest);
}

template <int R, int N>
HWY_INLINE void ValueTile(const FastBlock& b, const FastStrip& s, Index panel) {
  F c[R][N];
  float* out = s.out + panel * (R * kPanel);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      s.first ? SetF(0) : LoadF(out + r * kPanel + x * kLanes);
  AddProduct(c, s.weights, kBlockKeys, 1, b.v + panel * (kBlockKeys * kPanel), kPanel, s.keys);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(out + r * kPanel + x * kLanes, c[r][x]);
}
template <int R>
HWY_INLINE void AddValues(const FastBlock& b, const FastStrip& s) {
  const Index panels = b.value_vectors / 2;
  for (Index n = 0; n < panels; ++n) ValueTile<R, 2>(b, s, n);
  if (b.value_vectors % 2 != 0) ValueTile<R, 1>(b, s, panels);
}

inline void Exponentials2(float* x, Index n) noexcept {
  for (Index i = 0; i < n; i += kLanes) StoreF(x + i, Exp2F(LoadF(x + i)));
}

// Without NaN: the engine hands in numbers whose products stay finite.
template <int R, bool kStart>
HWY_NOINLINE bool Strip(const FastBlock& b, const FastStrip& s) noexcept {
  F before[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) before[r] = LoadF(s.sums + r * kLanes);
  F largest = SetF(-127.0f);
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel) WeightTile<R, 2, kStart>(b, s, key, largest);
  if (key < s.keys) WeightTile<R, 1, kStart>(b, s, key, largest);
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestExponent))) {
    POSENC_UNROLL for (int r = 0; r < R; ++r) StoreF(s.sums + r * kLanes, before[r]);
    return false;
  }
  AddValues<R>(b, s);
  return true;
}

template <int R, int N, bool kStart>
HWY_INLINE void ExponentTile(const FastBlock& b, const FastStrip& s, Index key) {
  F c[R][N];
  Exponents<R, N, kStart>(c, b, s, key);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(s.weights + r * kBlockKeys + key + x * kLanes, c[r][x]);
}
// Exponents of R rows, stored; returns their keys in whole vectors.
template <int R, bool kStart>
HWY_INLINE Index StoreExponents(const FastBlock& b, const FastStrip& s) {
  Index keys = 0;
  for (; keys + kLanes < s.keys; keys += kPanel) ExponentTile<R, 2, kStart>(b, s, keys);
  if (keys < s.keys) ExponentTile<R, 1, kStart>(b, s, keys), keys += kLanes;
  return keys;
}
// The same relative to the base.
template <int R, bool kStart>
HWY_INLINE Index StoreScores(const FastBlock& b, const FastStrip& s) {
  const float zeros[R] = {};
  FastStrip relative = s;
  relative.shift = zeros;
  return StoreExponents<R, kStart>(b, relative);
}
// Multiplies what row r has so far by 2^by.
template <int R>
HWY_INLINE void ScaleRow(const FastBlock& b, const FastStrip& s, int r, double by) {
  const F factor = Exp2F(SetF(static_cast<float>(by)));
  StoreF(s.sums + r * kLanes, MulF(LoadF(s.sums + r * kLanes), factor));
  for (Index n = 0; n < b.value_vectors; ++n) {
    float* out = s.out + (n / 2 * R + r) * kPanel + n % 2 * kLanes;
    StoreF(out, MulF(LoadF(out), factor));
  }
}
// Weights of row r from its scores relative to the base.
template <int R, Index kKeys = kBlockKeys>
HWY_INLINE bool RescaleRow(const FastBlock& b, const FastStrip& s, int r, Index keys) {
  float* x = s.weights + r * kKeys;
  F most = LoadF(x);
  for (Index key = kLanes; key < keys; key += kLanes) most = MaxF(most, LoadF(x + key));
  const float largest = LargestF(most);
  const bool hidden = largest == -HUGE_VALF, empty = SumF(LoadF(s.sums + r * kLanes)) == 0;
  const double top = std::ceil(s.base[r] + static_cast<double>(largest));
  // References move by whole numbers: what they scale is not rounded.
  if (!hidden && (empty || top > s.reference[r])) {
    if (!empty) ScaleRow<R>(b, s, r, s.reference[r] - top);
    s.reference[r] = top;
  }
  const F shift = SetF(static_cast<float>(s.base[r] - s.reference[r]));
  F sum = LoadF(s.sums + r * kLanes);
  for (Index key = 0; key < keys; key += kLanes) {
    const F p = Exp2F(AddF(LoadF(x + key), shift));
    StoreF(x + key, p);
    sum = AddF(sum, p);
  }
  StoreF(s.sums + r * kLanes, sum);
  return hidden || std::fabs(largest) <= kLargestScore;
}
template <int R, bool kStart>
HWY_NOINLINE bool Rescale(const FastBlock& b, const FastStrip& s) noexcept {
  const Index keys = StoreScores<R, kStart>(b, s);
  bool usable = true;
  for (int r = 0; r < R; ++r) usable = RescaleRow<R>(b, s, r, keys) && usable;
  AddValues<R>(b, s);
  return usable;
}

// Exponents of R rows of a tile, stored `stride` apart; returns their keys in whole vectors.
template <int R, int N, bool kStart>
HWY_INLINE void StoreTile(const FastTileKeys& t, const FastTileRows& s, Index key, float* to,
                          Index stride) {
  F c[R][N];
  Begin<R, N, kStart>(c, s.start, s.shift, key);
  const Index panel = key / kPanel * kPanel;
  AddProduct(c, s.q, t.q_width, 1, t.k + panel * t.channels + key % kPanel, kPanel, t.channels);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(to + r * stride + key + x * kLanes, c[r][x]);
}
template <int R, bool kStart>
HWY_INLINE Index StoreTiles(const FastTileKeys& t, const FastTileRows& s, float* to, Index stride) {
  Index keys = 0;
  for (; keys + kLanes < s.keys; keys += kPanel) StoreTile<R, 2, kStart>(t, s, keys, to, stride);
  if (keys < s.keys) StoreTile<R, 1, kStart>(t, s, keys, to, stride), keys += kLanes;
  return keys;
}

// p of exponents, then s = p (g.v - less). Rows of both lie `stride` apart.
template <int R, int N>
HWY_INLINE void StoreSlopes(F (&c)[R][N], const FastTileKeys& t, const FastTileRows& s, Index key,
                            Index stride) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(s.p + r * stride + key + x * kLanes, Exp2F(c[r][x]));
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F less = SetF(-s.less[r]);
    POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] = less;
  }
  const float* values = t.v + key / kPanel * (t.value_channels * kPanel) + key % kPanel;
  AddProduct(c, s.g, t.g_width, 1, values, kPanel, t.value_channels);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) {
    const Index at = r * stride + key + x * kLanes;
    StoreF(s.s + at, MulF(c[r][x], LoadF(s.p + at)));
  }
}

// Sums of products with rows of a tile of the backward pass: what multiplies them.
struct FloatProduct {
  using Number = float;
  template <int R, int N>
  static HWY_INLINE void Add(F (&c)[R][N], const float* a, Index row, Index step, const float* b,
                             Index b_width, Index count) {
    AddProduct(c, a, row, step, b, b_width, count);
  }
};

// R rows of `to`, N vectors of each.
template <class Product, int R, int N>
HWY_INLINE void AddTile(float* to, const typename Product::Number* a, Index row, Index step,
                        const typename Product::Number* b, Index b_width, Index count,
                        Index width) {
  F c[R][N];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      LoadF(to + r * width + x * kLanes);
  Product::Add(c, a, row, step, b, b_width, count);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(to + r * width + x * kLanes, c[r][x]);
}
template <class Product, int R>
HWY_INLINE void AddGroup(float* to, const typename Product::Number* a, Index row, Index step,
                         const typename Product::Number* b, Index b_width, Index count,
                         Index width) {
  Index c = 0;
  for (; c + kPanel <= width; c += kPanel)
    AddTile<Product, R, 2>(to + c, a, row, step, b + c, b_width, count, width);
  if (c < width) AddTile<Product, R, 1>(to + c, a, row, step, b + c, b_width, count, width);
}
// Groups of kStripRows, and where fewer are left, of kFewRows: whether the next one of `rest` rows is of these.
HWY_INLINE bool TakesFew(Index rest) {
  return rest <= kFewRows || (rest > kStripRows && rest <= 2 * kFewRows);
}
// Row r of `to` += sum over k of a_rk b_k, where a lies with a tile stride from row to row, or, kOuter, from k to k.
template <class Product, bool kOuter, Index kStride = kTileStride>
HWY_INLINE void AddAll(float* to, const typename Product::Number* a,
                       const typename Product::Number* b, Index rows, Index count, Index b_width,
                       Index width) {
  constexpr Index row = kOuter ? 1 : kStride, step = kOuter ? kStride : 1;
  for (Index r = 0; r < rows;) {
    if (TakesFew(rows - r)) {
      AddGroup<Product, kFewRows>(to + r * width, a + r * row, row, step, b, b_width, count, width);
      r += kFewRows;
    } else {
      AddGroup<Product, kStripRows>(to + r * width, a + r * row, row, step, b, b_width, count,
                                    width);
      r += kStripRows;
    }
  }
}

#undef POSENC_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
