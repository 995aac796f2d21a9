// SPDX-License-Identifier: Apache-2.0
// Loops of the exact engine over contiguous doubles. Each sum has one order, whatever the machine.
#pragma once
#include <algorithm>
#include <span>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

inline constexpr Index kTile = 16;  // keys that one pass over the channels serves

// Keys [begin, end).
struct Run {
  Index begin, end;
};
using Runs = std::span<const Run>;

template <class F>
void each_key(Runs runs, const F& fn) {
  for (const Run& run : runs)
    for (Index j = run.begin; j < run.end; ++j) fn(j);
}

inline Index tiles_size(Index tokens, Index channels) {
  return (tokens + kTile - 1) / kTile * kTile * channels;
}
// x [tokens, channels] -> [tokens / 16, channels, 16], zeros behind the last token.
inline void make_tiles(const double* x, Index tokens, Index channels, double* tiles) {
  for (Index j = 0; j < tokens; ++j)
    for (Index c = 0; c < channels; ++c)
      tiles[(j / kTile * channels + c) * kTile + j % kTile] = x[j * channels + c];
}

// The inner loops, for vectors of two or four doubles: the bits are the same.
struct LaneKernels {
  // got[16] = x . each key of a tile.
  void (*tile_dots)(const double* x, const double* tile, Index channels, double* got) noexcept;
  // y[c] += sum over the runs of weight[j] x[j * channels + c].
  void (*add_weighted)(double* y, const double* weight, const double* x, Index channels,
                       Runs runs) noexcept;
  // y[j * channels + c] += weight[j] x[c].
  void (*add_outer)(double* y, const double* weight, const double* x, Index channels,
                    Runs runs) noexcept;
};
const LaneKernels& lane_kernels();  // of active_isa()

// put(j, x . key j) for every key of the runs.
template <class F>
void each_dot(const LaneKernels& lanes, const double* x, const double* tiles, Index channels,
              Runs runs, const F& put) {
  double got[kTile];
  for (const Run& run : runs)
    for (Index tile = run.begin / kTile; tile * kTile < run.end; ++tile) {
      lanes.tile_dots(x, tiles + tile * channels * kTile, channels, got);
      const Index first = tile * kTile, end = std::min(run.end, first + kTile);
      for (Index j = std::max(run.begin, first); j < end; ++j) put(j, got[j - first]);
    }
}

inline double dot(const double* x, const double* y, Index n) {
  double sum[4] = {};
  Index c = 0;
  for (; c + 4 <= n; c += 4)
    for (int l = 0; l < 4; ++l) sum[l] += x[c + l] * y[c + l];
  for (; c < n; ++c) sum[0] += x[c] * y[c];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

inline void add_scaled(double* y, double w, const double* x, Index n) {
  for (Index c = 0; c < n; ++c) y[c] += w * x[c];
}

}  // namespace posenc::v0::detail
