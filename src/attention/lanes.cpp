// SPDX-License-Identifier: Apache-2.0
// Products are rounded before they are added, and each sum has one order, so that the width of the
// vectors changes no bit.
#include "attention/lanes.h"

#include <cstring>

#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {
namespace {

using TwoLanes [[gnu::vector_size(16)]] = double;

template <class L>
[[gnu::always_inline]] inline void tile_dots_of(const double* x, const double* tile, Index channels,
                                                double* got) noexcept {
  constexpr Index kWidth = sizeof(L) / sizeof(double), kCount = kTile / kWidth;
  L sum[kCount] = {};
  for (Index c = 0; c < channels; ++c, tile += kTile)
    for (Index n = 0; n < kCount; ++n) {
      L y;
      std::memcpy(&y, tile + n * kWidth, sizeof y);
      sum[n] += x[c] * y;
    }
  std::memcpy(got, sum, sizeof sum);
}

// Count vectors of channels from c on.
template <class L, Index Count>
[[gnu::always_inline]] inline void add_weighted_block(double* y, const double* weight,
                                                      const double* x, Index channels, Index c,
                                                      Runs runs) noexcept {
  constexpr Index kWidth = sizeof(L) / sizeof(double);
  L sum[Count] = {};
  for (const Run& run : runs)
    for (Index j = run.begin; j < run.end; ++j)
      for (Index n = 0; n < Count; ++n) {
        L v;
        std::memcpy(&v, x + j * channels + c + n * kWidth, sizeof v);
        sum[n] += weight[j] * v;
      }
  double got[Count * kWidth];
  std::memcpy(got, sum, sizeof got);
  for (Index n = 0; n < Count * kWidth; ++n) y[c + n] += got[n];
}

template <class L>
[[gnu::always_inline]] inline void add_weighted_of(double* y, const double* weight, const double* x,
                                                   Index channels, Runs runs) noexcept {
  constexpr Index kWidth = sizeof(L) / sizeof(double);
  Index c = 0;
  for (; c + 8 * kWidth <= channels; c += 8 * kWidth)
    add_weighted_block<L, 8>(y, weight, x, channels, c, runs);
  for (; c + kWidth <= channels; c += kWidth)
    add_weighted_block<L, 1>(y, weight, x, channels, c, runs);
  for (; c < channels; ++c) {
    double sum = 0;
    for (const Run& run : runs)
      for (Index j = run.begin; j < run.end; ++j) sum += weight[j] * x[j * channels + c];
    y[c] += sum;
  }
}

template <class L>
[[gnu::always_inline]] inline void add_outer_of(double* y, const double* weight, const double* x,
                                                Index channels, Runs runs) noexcept {
  constexpr Index kWidth = sizeof(L) / sizeof(double);
  for (const Run& run : runs)
    for (Index j = run.begin; j < run.end; ++j) {
      double* to = y + j * channels;
      Index c = 0;
      for (; c + kWidth <= channels; c += kWidth) {
        L v, w;
        std::memcpy(&v, to + c, sizeof v);
        std::memcpy(&w, x + c, sizeof w);
        v += weight[j] * w;
        std::memcpy(to + c, &v, sizeof v);
      }
      for (; c < channels; ++c) to[c] += weight[j] * x[c];
    }
}

void tile_dots_two(const double* x, const double* tile, Index channels, double* got) noexcept {
  tile_dots_of<TwoLanes>(x, tile, channels, got);
}
void add_weighted_two(double* y, const double* weight, const double* x, Index channels,
                      Runs runs) noexcept {
  add_weighted_of<TwoLanes>(y, weight, x, channels, runs);
}
void add_outer_two(double* y, const double* weight, const double* x, Index channels,
                   Runs runs) noexcept {
  add_outer_of<TwoLanes>(y, weight, x, channels, runs);
}
constexpr LaneKernels kTwoLanes{tile_dots_two, add_weighted_two, add_outer_two};

#if defined(__x86_64__)
using FourLanes [[gnu::vector_size(32)]] = double;

[[gnu::target("avx2")]] void tile_dots_four(const double* x, const double* tile, Index channels,
                                            double* got) noexcept {
  tile_dots_of<FourLanes>(x, tile, channels, got);
}
[[gnu::target("avx2")]] void add_weighted_four(double* y, const double* weight, const double* x,
                                               Index channels, Runs runs) noexcept {
  add_weighted_of<FourLanes>(y, weight, x, channels, runs);
}
[[gnu::target("avx2")]] void add_outer_four(double* y, const double* weight, const double* x,
                                            Index channels, Runs runs) noexcept {
  add_outer_of<FourLanes>(y, weight, x, channels, runs);
}
constexpr LaneKernels kFourLanes{tile_dots_four, add_weighted_four, add_outer_four};
#endif

}  // namespace

const LaneKernels& lane_kernels() {
#if defined(__x86_64__)
  if (const Isa isa = active_isa(); isa == Isa::avx2 || isa == Isa::avx512) return kFourLanes;
#endif
  return kTwoLanes;
}

}  // namespace posenc::v0::detail
