// SPDX-License-Identifier: Apache-2.0
// Products of several rows with a run of keys, for vectors L. Products are rounded before they are
// added, and each sum has one order: over channels, over keys or over rows as they come, from what
// stands in y. Neither the width of the vectors nor the number of rows at a time changes a bit.
#pragma once
#include <cstring>

#include "kernels/attention/lanes.h"

namespace posenc::inline v0::detail {

inline constexpr Index kChunkKeys = 64;  // that stay in the first cache while channels pass

template <class L>
inline constexpr Index kLanes = static_cast<Index>(sizeof(L) / sizeof(double));

template <class L>
[[gnu::always_inline]] inline void load_lanes(L& y, const double* x) noexcept {
  std::memcpy(&y, x, sizeof y);
}
template <class L>
[[gnu::always_inline]] inline void store_lanes(const L& x, double* y) noexcept {
  std::memcpy(y, &x, sizeof x);
}

// Vectors at once beside Rows rows: enough sums to hide how long an addition takes.
template <Index Rows>
inline constexpr Index kAtOnce = Rows >= 4 ? 2 : 8 / Rows;

// Count vectors of keys of one tile, at `tile`.
template <class L, Index Rows, Index Count>
[[gnu::always_inline]] inline void dots_block(double* const* y, const double* const* x,
                                              const double* tile, Index channels,
                                              Index at) noexcept {
  L sum[Rows][Count] = {};
  for (Index c = 0; c < channels; ++c, tile += kTile) {
    L v[Count];
    for (Index n = 0; n < Count; ++n) load_lanes(v[n], tile + n * kLanes<L>);
    for (Index r = 0; r < Rows; ++r)
      for (Index n = 0; n < Count; ++n) sum[r][n] += x[r][c] * v[n];
  }
  for (Index r = 0; r < Rows; ++r)
    for (Index n = 0; n < Count; ++n) store_lanes(sum[r][n], y[r] + at + n * kLanes<L>);
}
template <class L, Index Rows>
[[gnu::always_inline]] inline void dots_rows(double* const* y, const double* const* x,
                                             const double* tile, Index channels,
                                             Index at) noexcept {
  constexpr Index kCount = std::min(kAtOnce<Rows>, kTile / kLanes<L>);
  for (Index n = 0; n < kTile; n += kCount * kLanes<L>)
    dots_block<L, Rows, kCount>(y, x, tile + n, channels, at + n);
}

// fn.template operator()<Rows>(first row) for groups of 8, 4, 2 and 1 rows; vectors of 16 or 32
// bytes have registers for 4.
template <class L, class F>
[[gnu::always_inline]] inline void in_groups(Index rows, const F& fn) noexcept {
  Index r = 0;
  if constexpr (sizeof(L) == 64)
    for (; r + 8 <= rows; r += 8) fn.template operator()<8>(r);
  for (; r + 4 <= rows; r += 4) fn.template operator()<4>(r);
  if (r + 2 <= rows) fn.template operator()<2>(r), r += 2;
  if (r < rows) fn.template operator()<1>(r);
}

template <class L>
[[gnu::always_inline]] inline void dots_of(double* const* y, const double* const* x, Index rows,
                                           const double* tiles, Index channels, Run run) noexcept {
  for (Index first = run.begin / kTile * kTile; first < run.end; first += kTile)
    in_groups<L>(
        rows, [&]<Index Rows>(Index r) __attribute__((always_inline)) {
          dots_rows<L, Rows>(y + r, x + r, tiles + first * channels, channels, first);
        });
}

// Count vectors of channels from c on.
template <class L, Index Rows, Index Count>
[[gnu::always_inline]] inline void weighted_block(double* const* y, const double* const* weight,
                                                  const double* x, Index channels, Index c,
                                                  Run run) noexcept {
  L sum[Rows][Count];
  for (Index r = 0; r < Rows; ++r)
    for (Index n = 0; n < Count; ++n) load_lanes(sum[r][n], y[r] + c + n * kLanes<L>);
  for (Index j = run.begin; j < run.end; ++j) {
    L v[Count];
    for (Index n = 0; n < Count; ++n) load_lanes(v[n], x + j * channels + c + n * kLanes<L>);
    for (Index r = 0; r < Rows; ++r)
      for (Index n = 0; n < Count; ++n) sum[r][n] += weight[r][j] * v[n];
  }
  for (Index r = 0; r < Rows; ++r)
    for (Index n = 0; n < Count; ++n) store_lanes(sum[r][n], y[r] + c + n * kLanes<L>);
}
template <class L, Index Rows>
[[gnu::always_inline]] inline void weighted_rows(double* const* y, const double* const* weight,
                                                 const double* x, Index channels,
                                                 Run run) noexcept {
  Index c = 0;
  constexpr Index kStep = kAtOnce<Rows> * kLanes<L>;
  for (; c + kStep <= channels; c += kStep)
    weighted_block<L, Rows, kAtOnce<Rows>>(y, weight, x, channels, c, run);
  for (; c + kLanes<L> <= channels; c += kLanes<L>)
    weighted_block<L, Rows, 1>(y, weight, x, channels, c, run);
  for (; c < channels; ++c)
    for (Index r = 0; r < Rows; ++r) {
      double sum = y[r][c];
      for (Index j = run.begin; j < run.end; ++j) sum += weight[r][j] * x[j * channels + c];
      y[r][c] = sum;
    }
}

template <class L, Index Rows, Index Count>
[[gnu::always_inline]] inline void outer_block(double* y, const double* const* weight,
                                               const double* const* x, Index channels, Index c,
                                               Run run) noexcept {
  L from[Rows][Count];
  for (Index r = 0; r < Rows; ++r)
    for (Index n = 0; n < Count; ++n) load_lanes(from[r][n], x[r] + c + n * kLanes<L>);
  for (Index j = run.begin; j < run.end; ++j) {
    double* to = y + j * channels + c;
    L sum[Count];
    for (Index n = 0; n < Count; ++n) load_lanes(sum[n], to + n * kLanes<L>);
    for (Index r = 0; r < Rows; ++r)
      for (Index n = 0; n < Count; ++n) sum[n] += weight[r][j] * from[r][n];
    for (Index n = 0; n < Count; ++n) store_lanes(sum[n], to + n * kLanes<L>);
  }
}
template <class L, Index Rows>
[[gnu::always_inline]] inline void outer_rows(double* y, const double* const* weight,
                                              const double* const* x, Index channels,
                                              Run run) noexcept {
  Index c = 0;
  constexpr Index kStep = kAtOnce<Rows> * kLanes<L>;
  for (; c + kStep <= channels; c += kStep)
    outer_block<L, Rows, kAtOnce<Rows>>(y, weight, x, channels, c, run);
  for (; c + kLanes<L> <= channels; c += kLanes<L>)
    outer_block<L, Rows, 1>(y, weight, x, channels, c, run);
  for (; c < channels; ++c)
    for (Index j = run.begin; j < run.end; ++j) {
      double sum = y[j * channels + c];
      for (Index r = 0; r < Rows; ++r) sum += weight[r][j] * x[r][c];
      y[j * channels + c] = sum;
    }
}

// fn(run) for pieces of a run.
template <class F>
[[gnu::always_inline]] inline void in_chunks(Run run, const F& fn) noexcept {
  for (; run.begin < run.end; run.begin += kChunkKeys)
    fn(Run{run.begin, std::min(run.end, run.begin + kChunkKeys)});
}
template <class L>
[[gnu::always_inline]] inline void add_weighted_of(double* const* y, const double* const* weight,
                                                   Index rows, const double* x, Index channels,
                                                   Run run) noexcept {
  in_chunks(
      run, [&](Run some) __attribute__((always_inline)) {
        in_groups<L>(
            rows, [&]<Index Rows>(Index r) __attribute__((always_inline)) {
              weighted_rows<L, Rows>(y + r, weight + r, x, channels, some);
            });
      });
}
template <class L>
[[gnu::always_inline]] inline void add_outer_of(double* y, const double* const* weight,
                                                const double* const* x, Index rows, Index channels,
                                                Run run) noexcept {
  in_chunks(
      run, [&](Run some) __attribute__((always_inline)) {
        in_groups<L>(
            rows, [&]<Index Rows>(Index r) __attribute__((always_inline)) {
              outer_rows<L, Rows>(y, weight + r, x + r, channels, some);
            });
      });
}

}  // namespace posenc::v0::detail
