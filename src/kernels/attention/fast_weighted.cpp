// SPDX-License-Identifier: Apache-2.0
// Strips and tiles whose products a number of each pair multiplies, for every instruction set.
#include "kernels/attention/fast_weighted.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_weighted.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_scans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

HWY_INLINE F BoundF(F x) {
  return MinF(MaxF(x, SetF(-kLargestContent)), SetF(kLargestContent));
}

// c[r][x] = c[r][x] weight + start + shift.
template <int R, int N>
HWY_INLINE void AddWeighted(F (&c)[R][N], const float* const* weight, const float* const* start,
                            const float* shift, Index key) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F by = SetF(shift[r]);
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      const Index at = key + x * kLanes;
      c[r][x] = MulAddF(c[r][x], LoadF(weight[r] + at), AddF(LoadF(start[r] + at), by));
    }
  }
}

// Products q.k, within what may be multiplied.
template <int R, int N>
HWY_INLINE void Products(F (&c)[R][N], const float* q, Index q_row, const float* k, Index channels,
                         Index key) {
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      SetF(0);
  AddProduct(c, q, q_row, 1, k + key / kPanel * (channels * kPanel) + key % kPanel, kPanel,
             channels);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      BoundF(c[r][x]);
}

template <int R, int N>
HWY_INLINE void WeightedTile(const FastBlock& b, const FastStrip& s, const float* const* weight,
                             Index key, F& largest) {
  F c[R][N];
  Products<R, N>(c, s.q, b.channels, b.k, b.channels, key);
  AddWeighted<R, N>(c, weight, s.start, s.shift, key);
  StoreWeights<R, N>(c, s, key, largest);
}

template <int R>
HWY_NOINLINE bool WeightedStrip(const FastBlock& b, const FastStrip& s,
                                const float* const* weight) noexcept {
  F before[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) before[r] = LoadF(s.sums + r * kLanes);
  F largest = SetF(-127.0f);
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel) WeightedTile<R, 2>(b, s, weight, key, largest);
  if (key < s.keys) WeightedTile<R, 1>(b, s, weight, key, largest);
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestExponent))) {
    POSENC_UNROLL for (int r = 0; r < R; ++r) StoreF(s.sums + r * kLanes, before[r]);
    return false;
  }
  AddValues<R>(b, s);
  return true;
}

template <int R, int N>
HWY_INLINE void WeightedScores(const FastBlock& b, const FastStrip& s, const float* const* weight,
                               Index key) {
  constexpr float kZeros[R] = {};
  F c[R][N];
  Products<R, N>(c, s.q, b.channels, b.k, b.channels, key);
  AddWeighted<R, N>(c, weight, s.start, kZeros, key);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(s.weights + r * kBlockKeys + key + x * kLanes, c[r][x]);
}
template <int R>
HWY_NOINLINE bool WeightedRescale(const FastBlock& b, const FastStrip& s,
                                  const float* const* weight) noexcept {
  Index keys = 0;
  for (; keys + kLanes < s.keys; keys += kPanel) WeightedScores<R, 2>(b, s, weight, keys);
  if (keys < s.keys) WeightedScores<R, 1>(b, s, weight, keys), keys += kLanes;
  bool usable = true;
  for (int r = 0; r < R; ++r) usable = RescaleRow<R>(b, s, r, keys) && usable;
  AddValues<R>(b, s);
  return usable;
}

template <int R, int N>
HWY_INLINE void WeightedSlopeTile(const FastTileKeys& t, const FastTileRows& s,
                                  const float* const* weight, float* content, Index stride,
                                  Index key) {
  F c[R][N];
  Products<R, N>(c, s.q, t.q_width, t.k, t.channels, key);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
      StoreF(content + r * stride + key + x * kLanes, c[r][x]);
  AddWeighted<R, N>(c, weight, s.start, s.shift, key);
  StoreSlopes(c, t, s, key, stride);
}
template <int R>
HWY_NOINLINE void WeightedSlopes(const FastTileKeys& t, const FastTileRows& s,
                                 const float* const* weight, float* content,
                                 Index stride) noexcept {
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel)
    WeightedSlopeTile<R, 2>(t, s, weight, content, stride, key);
  if (key < s.keys) WeightedSlopeTile<R, 1>(t, s, weight, content, stride, key);
}

void MultiplyRow(float* x, const float* by, Index count) noexcept {
  for (Index j = 0; j < count; j += kLanes) StoreF(x + j, MulF(LoadF(x + j), LoadF(by + j)));
}

#undef POSENC_UNROLL

constexpr FastWeightKernels kWeightKernels{{WeightedStrip<kStripRows>, WeightedStrip<kFewRows>},
                                           {WeightedRescale<kStripRows>, WeightedRescale<kFewRows>},
                                           {WeightedSlopes<kStripRows>, WeightedSlopes<kFewRows>},
                                           MultiplyRow};

}  // namespace

const FastWeightKernels* table_of_fast_weights() {
  return &kWeightKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_weights);
const FastWeightKernels& fast_weight_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_weights), isa);
}
}  // namespace posenc::v0::detail
#endif
