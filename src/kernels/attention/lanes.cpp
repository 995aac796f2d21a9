// SPDX-License-Identifier: Apache-2.0
// The loops of lanes_products.h and lanes_row.h, compiled for each width of vectors.
#include "kernels/attention/lanes.h"

#include "kernels/attention/lanes_products.h"
#include "kernels/attention/lanes_row.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {
namespace {

// All of LaneKernels for vectors W, as functions with the attribute.
#define POSENC_LANE_KERNELS(W, TARGET)                                                           \
  struct W##Kernels {                                                                            \
    using L = W::Double;                                                                         \
    TARGET static void dots(double* const* y, const double* const* x, Index rows,                \
                            const double* tiles, Index channels, Run run) noexcept {             \
      dots_of<L>(y, x, rows, tiles, channels, run);                                              \
    }                                                                                            \
    TARGET static void add_weighted(double* const* y, const double* const* weight, Index rows,   \
                                    const double* x, Index channels, Run run) noexcept {         \
      add_weighted_of<L>(y, weight, rows, x, channels, run);                                     \
    }                                                                                            \
    TARGET static void add_outer(double* y, const double* const* weight, const double* const* x, \
                                 Index rows, Index channels, Run run) noexcept {                 \
      add_outer_of<L>(y, weight, x, rows, channels, run);                                        \
    }                                                                                            \
    TARGET static void scale(double* y, double s, const double* x, Runs runs) noexcept {         \
      scale_of<W>(y, s, x, runs);                                                                \
    }                                                                                            \
    TARGET static void scale_add(double* y, double s, const double* x, const double* z,          \
                                 Runs runs) noexcept {                                           \
      scale_add_of<W>(y, s, x, z, runs);                                                         \
    }                                                                                            \
    TARGET static void add(double* y, const double* x, Runs runs) noexcept {                     \
      add_of<W>(y, x, runs);                                                                     \
    }                                                                                            \
    TARGET static double largest(const double* x, double least, Runs runs) noexcept {            \
      return largest_of<W>(x, least, runs);                                                      \
    }                                                                                            \
    TARGET static double exponentials(double* y, const double* x, double top,                    \
                                      Runs runs) noexcept {                                      \
      return exponentials_of<W>(y, x, top, runs);                                                \
    }                                                                                            \
    TARGET static double dot(const double* x, const double* y, Runs runs) noexcept {             \
      return dot_of<W>(x, y, runs);                                                              \
    }                                                                                            \
    TARGET static void weigh(double* y, const double* p, const double* d, double shift,          \
                             Runs runs) noexcept {                                               \
      weigh_of<W>(y, p, d, shift, runs);                                                         \
    }                                                                                            \
    static constexpr LaneKernels kAll{dots, add_weighted, add_outer,    scale, scale_add,        \
                                      add,  largest,      exponentials, dot,   weigh};           \
  };

POSENC_LANE_KERNELS(TwoWide, )
#if defined(__x86_64__)
POSENC_LANE_KERNELS(FourWide, [[gnu::target("avx2")]])
POSENC_LANE_KERNELS(EightWide, [[gnu::target("avx512f,avx512dq")]])
#endif
#undef POSENC_LANE_KERNELS

}  // namespace

const LaneKernels& lane_kernels() {
#if defined(__x86_64__)
  if (active_isa() == Isa::avx512) return EightWideKernels::kAll;
  if (active_isa() == Isa::avx2) return FourWideKernels::kAll;
#endif
  return TwoWideKernels::kAll;
}

}  // namespace posenc::v0::detail
