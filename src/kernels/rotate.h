// SPDX-License-Identifier: Apache-2.0
// The rotation kernels: arguments and the table of entries. A kernel is arithmetic on pointers and
// strides: no policy, no allocation, nothing thrown. It rotates tokens [begin, end) of batch
// * tokens.
#pragma once
#include "core/access_pattern.h"
#include "kernels/args.h"
#include "posenc/core/heads.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Channels [begin, end) that no block rotates; copied when the output is another tensor.
struct Gap {
  Index begin = 0, end = 0;
};

// A tensor of `out` is that of `in` exactly when their data are the same. Small, and made of
// pointers: it is cleared for each call.
struct RotateCall {
  const QK* in = nullptr;
  const QK* out = nullptr;
  const RotaryTables* blocks = nullptr;
  const Gap* gaps = nullptr;
  const Positions* positions = nullptr;  // null with rows
  const RowSource* rows = &kNoRows;
  std::int32_t block_count = 0, gap_count = 0;
  RotateMode mode = RotateMode::forward;
  AccessPattern access = AccessPattern::sequential;
  bool large = false;   // tensors lie in memory rather than in the cache: `access` counts
  bool stream = false;  // and out is far larger than the cache: write around it

  CoefficientSource source(Index block) const noexcept {
    return {blocks + block, rows, block, mode};
  }
};

struct RotateKernels {
  void (*rotate)(const RotateCall&, Index begin, Index end);
};
// Of one dtype, in the instruction set in use or by what this machine has beside it. Throws
// [rotary]: integer dtype.
const RotateKernels& rotate_kernels(DType, Isa);
// Each in a file that the build makes of vectors.cpp.in or, null where it has none, native.cpp.in.
const RotateKernels& rotate_kernels_f64(Isa);
const RotateKernels& rotate_kernels_f32(Isa);
const RotateKernels& rotate_kernels_f16(Isa);
const RotateKernels& rotate_kernels_bf16(Isa);
const RotateKernels* rotate_kernels_avx512_bf16();

// Cosine and sine as another program makes them, in place of the phase.
struct CompatPhase {
  const void* context = nullptr;
  // Of pairs [first, last) of one head of a block, gain included; position: one an axis. f64 is for
  // tensors of doubles alone, f32 for all others.
  void (*f32)(const void* context, Index block, Index head, const double* position, Index first,
              Index last, float* cos, float* sin) noexcept = nullptr;
  void (*f64)(const void* context, Index block, Index head, const double* position, Index first,
              Index last, double* cos, double* sin) noexcept = nullptr;
  bool round_each = false;  // products to bfloat16 before they are added
};

// The same in the order of operations of that program; not a fast path.
void rotate_compat(const RotateCall&, const CompatPhase&, Index begin, Index end) noexcept;

}  // namespace posenc::v0::detail
