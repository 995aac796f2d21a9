// SPDX-License-Identifier: Apache-2.0
// Products of several rows with a run of keys. Products are rounded before they are added, and each sum has one order:
// over channels, over keys or over rows as they come, from the value in y. Neither the width of the vectors nor the
// number of rows at a time changes a bit.
#include <algorithm>

#include "kernels/attention/exact_rows.h"

#if defined(POSENC_KERNELS_EXACT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_EXACT_PRODUCTS_INL_H_
#undef POSENC_KERNELS_EXACT_PRODUCTS_INL_H_
#else
#define POSENC_KERNELS_EXACT_PRODUCTS_INL_H_
#endif
#include <hwy/highway.h>

#include "kernels/attention/exact_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

inline constexpr Index kChunkKeys = 64;  // that stay in the first cache while channels pass

// Vectors at once beside kRows rows: enough sums to hide how long an addition takes.
template <Index kRows>
inline constexpr Index kAtOnce = kRows >= 4 ? 2 : 8 / kRows;

// fn.template operator()<kRows>(first row) for groups of 8, 4, 2 and 1 rows; vectors of less than 64 bytes have
// registers for 4.
template <class F>
HWY_INLINE void InGroups(Index rows, const F& fn) {
  Index r = 0;
  if constexpr (kExactLanes == 8)
    for (; r + 8 <= rows; r += 8) fn.template operator()<8>(r);
  for (; r + 4 <= rows; r += 4) fn.template operator()<4>(r);
  if (r + 2 <= rows) fn.template operator()<2>(r), r += 2;
  if (r < rows) fn.template operator()<1>(r);
}

// kCount vectors of keys of one tile, at `tile`.
template <Index kRows, Index kCount>
HWY_INLINE void DotsBlock(double* const* y, const double* const* x, const double* tile,
                          Index channels, Index at) {
  ExactVector sum[kRows][kCount], v[kCount], factor;
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kCount; ++n) SetLanes(sum[r][n], 0);
  for (Index c = 0; c < channels; ++c, tile += kTile) {
    for (Index n = 0; n < kCount; ++n) LoadLanes(v[n], tile + n * kExactLanes);
    for (Index r = 0; r < kRows; ++r) {
      SetLanes(factor, x[r][c]);
      for (Index n = 0; n < kCount; ++n) sum[r][n] = AddProduct(factor, v[n], sum[r][n]);
    }
  }
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kCount; ++n) StoreLanes(sum[r][n], y[r] + at + n * kExactLanes);
}

inline void Dots(double* const* y, const double* const* x, Index rows, const double* tiles,
                 Index channels, Run run) noexcept {
  for (Index first = run.begin / kTile * kTile; first < run.end; first += kTile)
    InGroups(rows, [&]<Index kRows>(Index r) HWY_ATTR {
      constexpr Index kCount = std::min(kAtOnce<kRows>, kTile / kExactLanes);
      for (Index n = 0; n < kTile; n += kCount * kExactLanes)
        DotsBlock<kRows, kCount>(y + r, x + r, tiles + first * channels + n, channels, first + n);
    });
}

// kCount vectors V of channels from c on.
template <class V, Index kRows, Index kCount>
HWY_INLINE void WeightedBlock(double* const* y, const double* const* weight, const double* x,
                              Index channels, Index c, Run run) {
  constexpr Index kStep = sizeof(V) / sizeof(double);
  V sum[kRows][kCount], v[kCount], factor;
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kCount; ++n) LoadLanes(sum[r][n], y[r] + c + n * kStep);
  for (Index j = run.begin; j < run.end; ++j) {
    for (Index n = 0; n < kCount; ++n) LoadLanes(v[n], x + j * channels + c + n * kStep);
    for (Index r = 0; r < kRows; ++r) {
      SetLanes(factor, weight[r][j]);
      for (Index n = 0; n < kCount; ++n) sum[r][n] = AddProduct(factor, v[n], sum[r][n]);
    }
  }
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kCount; ++n) StoreLanes(sum[r][n], y[r] + c + n * kStep);
}

template <class V, Index kRows, Index kCount>
HWY_INLINE void OuterBlock(double* y, const double* const* weight, const double* const* x,
                           Index channels, Index c, Run run) {
  constexpr Index kStep = sizeof(V) / sizeof(double);
  V from[kRows][kCount], sum[kCount], factor;
  for (Index r = 0; r < kRows; ++r)
    for (Index n = 0; n < kCount; ++n) LoadLanes(from[r][n], x[r] + c + n * kStep);
  for (Index j = run.begin; j < run.end; ++j) {
    double* to = y + j * channels + c;
    for (Index n = 0; n < kCount; ++n) LoadLanes(sum[n], to + n * kStep);
    for (Index r = 0; r < kRows; ++r) {
      SetLanes(factor, weight[r][j]);
      for (Index n = 0; n < kCount; ++n) sum[n] = AddProduct(factor, from[r][n], sum[n]);
    }
    for (Index n = 0; n < kCount; ++n) StoreLanes(sum[n], to + n * kStep);
  }
}

// block.template operator()<V, kCount>(c) over all channels, for kCount vectors V from c on.
template <Index kRows, class F>
HWY_INLINE void OverChannels(Index channels, const F& block) {
  Index c = 0;
  constexpr Index kStep = kAtOnce<kRows> * kExactLanes;
  for (; c + kStep <= channels; c += kStep)
    block.template operator()<ExactVector, kAtOnce<kRows>>(c);
  for (; c + kExactLanes <= channels; c += kExactLanes)
    block.template operator()<ExactVector, 1>(c);
  for (; c < channels; ++c) block.template operator()<double, 1>(c);
}

// fn(run) for pieces of a run.
template <class F>
HWY_INLINE void InChunks(Run run, const F& fn) {
  for (; run.begin < run.end; run.begin += kChunkKeys)
    fn(Run{run.begin, std::min(run.end, run.begin + kChunkKeys)});
}

inline void AddWeighted(double* const* y, const double* const* weight, Index rows, const double* x,
                        Index channels, Run run) noexcept {
  InChunks(run, [&](Run some) HWY_ATTR {
    InGroups(rows, [&]<Index kRows>(Index r) HWY_ATTR {
      OverChannels<kRows>(channels, [&]<class V, Index kCount>(Index c) HWY_ATTR {
        WeightedBlock<V, kRows, kCount>(y + r, weight + r, x, channels, c, some);
      });
    });
  });
}

inline void AddOuter(double* y, const double* const* weight, const double* const* x, Index rows,
                     Index channels, Run run) noexcept {
  InChunks(run, [&](Run some) HWY_ATTR {
    InGroups(rows, [&]<Index kRows>(Index r) HWY_ATTR {
      OverChannels<kRows>(channels, [&]<class V, Index kCount>(Index c) HWY_ATTR {
        OuterBlock<V, kRows, kCount>(y, weight + r, x + r, channels, c, some);
      });
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
