// SPDX-License-Identifier: Apache-2.0
// Kernels of the rows of cosine and sine: arithmetic on pointers, in double, rounded once.
#pragma once
#include <cstdint>

#include "posenc/core/dtype.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

inline constexpr Index kRowChunk = 256;   // pairs at once: the sizes of the buffers on the stack
inline constexpr Index kRowPadding = 16;  // doubles a kernel may read and write behind n

// Consecutive positions by the angle addition theorem: row r + 1 is row r rotated by one position.
// c, s: n pairs of the first row (gain in; at most kRowChunk), left as those of the row after the last; step_c,
// step_s: cosine and sine of one position. Row r is written at cos + r * cos_stride (elements),
// once more copy elements behind when copy is not 0; the same for sin; either may be null. stream:
// around the cache, where the addresses allow it.
struct RowRecurrence {
  double *c, *s;
  const double *step_c, *step_s;
  Index n, rows;
  void *cos, *sin;
  Index cos_stride, sin_stride, copy;
  bool stream;
};

struct RowKernels {
  // phase[i] += turns[i] * position, 64-bit fractions of a turn
  void (*add_turns)(const std::uint64_t* turns, std::uint64_t position, Index n,
                    std::uint64_t* phase);
  // c = gain * cos, s = gain * sin: within 1.2e-16 before the gain is multiplied in
  void (*sincos)(const std::uint64_t* phase, Index n, double gain, double* c, double* s);
  // one rounding to nearest even; out is exactly n elements
  void (*store_f32)(const double* x, Index n, void* out);
  void (*store_f16)(const double* x, Index n, void* out);
  void (*store_bf16)(const double* x, Index n, void* out);
  void (*recurrence_f32)(const RowRecurrence&);
  void (*recurrence_f16)(const RowRecurrence&);
  void (*recurrence_bf16)(const RowRecurrence&);
};

// Throws what isa_dispatch_index throws.
const RowKernels& row_kernels(Isa);

}  // namespace posenc::v0::detail
