// SPDX-License-Identifier: Apache-2.0
// Loops of the exact engine over contiguous doubles. Each sum has one order, whatever the machine.
#pragma once
#include <algorithm>
#include <cstring>
#include <span>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

using Lanes [[gnu::vector_size(16)]] = double;  // every machine that the library runs on has these
inline constexpr Index kTile = 16;              // keys that one pass over the channels serves

inline Lanes lanes_at(const double* x) noexcept {
  Lanes v;
  std::memcpy(&v, x, sizeof v);
  return v;
}

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

// put(j, x . key j) for every key of the runs.
template <class F>
void each_dot(const double* x, const double* tiles, Index channels, Runs runs, const F& put) {
  for (const Run& run : runs)
    for (Index tile = run.begin / kTile; tile * kTile < run.end; ++tile) {
      const double* at = tiles + tile * channels * kTile;
      Lanes sum[kTile / 2] = {};
      for (Index c = 0; c < channels; ++c, at += kTile)
        for (int n = 0; n < kTile / 2; ++n) sum[n] += x[c] * lanes_at(at + 2 * n);
      double got[kTile];
      std::memcpy(got, sum, sizeof got);
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

// y[c] += sum over the runs of weight[j] x[j * channels + c], N vectors of channels from c on.
template <int N>
void add_weighted_lanes(double* y, const double* weight, const double* x, Index channels, Index c,
                        Runs runs) {
  Lanes sum[N] = {};
  for (const Run& run : runs)
    for (Index j = run.begin; j < run.end; ++j)
      for (int n = 0; n < N; ++n) sum[n] += weight[j] * lanes_at(x + j * channels + c + 2 * n);
  double got[2 * N];
  std::memcpy(got, sum, sizeof got);
  for (Index n = 0; n < 2 * N; ++n) y[c + n] += got[n];
}
inline void add_weighted(double* y, const double* weight, const double* x, Index channels,
                         Runs runs) {
  Index c = 0;
  for (; c + 16 <= channels; c += 16) add_weighted_lanes<8>(y, weight, x, channels, c, runs);
  for (; c + 4 <= channels; c += 4) add_weighted_lanes<2>(y, weight, x, channels, c, runs);
  for (; c < channels; ++c) {
    double sum = 0;
    each_key(runs, [&](Index j) { sum += weight[j] * x[j * channels + c]; });
    y[c] += sum;
  }
}
// y[j * channels + c] += weight[j] x[c].
inline void add_outer(double* y, const double* weight, const double* x, Index channels, Runs runs) {
  each_key(runs, [&](Index j) { add_scaled(y + j * channels, weight[j], x, channels); });
}

}  // namespace posenc::v0::detail
