// SPDX-License-Identifier: Apache-2.0
// Loops of the exact engine over contiguous doubles. Each sum has one order, whatever the machine
// and however many rows are taken at a time.
#pragma once
#include <algorithm>

#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

inline constexpr Index kBlockRows = 16;  // at most that one pass over keys and values serves

// Tiles [tokens / 16, channels, 16], zeros behind the last token: WidenKernels::tile.
inline Index tiles_size(Index tokens, Index channels) {
  return whole_tiles(tokens) * channels;
}

// The inner loops. The bits are the same on every instruction set: no multiply-add is fused, and each sum has one order.
struct ExactRowKernels {
  // Of `rows` rows at once, at most kBlockRows, and keys [run.begin, run.end).
  // y[r][j] = x[r] . key j, of all keys of the tiles that hold the run.
  void (*dots)(double* const* y, const double* const* x, Index rows, const double* tiles,
               Index channels, Run run) noexcept;
  // y[r][c] += sum over the run of weight[r][j] x[j * channels + c].
  void (*add_weighted)(double* const* y, const double* const* weight, Index rows, const double* x,
                       Index channels, Run run) noexcept;
  // y[j * channels + c] += sum over the rows of weight[r][j] x[r][c].
  void (*add_outer)(double* y, const double* const* weight, const double* const* x, Index rows,
                    Index channels, Run run) noexcept;

  // Of one row and the keys of its runs.
  // y = s x, y = s x + z, y += x; y may be x.
  void (*scale)(double* y, double s, const double* x, Runs) noexcept;
  void (*scale_add)(double* y, double s, const double* x, const double* z, Runs) noexcept;
  void (*add)(double* y, const double* x, Runs) noexcept;
  double (*largest)(const double* x, double least, Runs) noexcept;  // NaN is no number
  // y = e^(x - top), within 1.5 units in the last place, and their sum; x is at most top.
  double (*exponentials)(double* y, const double* x, double top, Runs) noexcept;
  double (*dot)(const double* x, const double* y, Runs) noexcept;
  // The gradient of a softmax: y = p (d + shift); y may be d.
  void (*softmax_backward)(double* y, const double* p, const double* d, double shift,
                           Runs) noexcept;
};
const ExactRowKernels& exact_row_kernels(Isa);

// put(j, x . key j) for every key of the runs.
template <class F>
void each_dot(const ExactRowKernels& lanes, const double* x, const double* tiles, Index channels,
              Runs runs, const F& put) {
  double got[kTile];
  for (const Run& run : runs)
    for (Index first = run.begin / kTile * kTile; first < run.end; first += kTile) {
      double* to = got;
      lanes.dots(&to, &x, 1, tiles + first * channels, channels, {0, kTile});
      const Index end = std::min(run.end, first + kTile);
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
