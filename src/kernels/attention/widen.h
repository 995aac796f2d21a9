// SPDX-License-Identifier: Apache-2.0
// Vectors of a float type, or of q8_0 blocks, as doubles: as rows, or as the tiles that ExactRowKernels::dots reads.
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

struct WidenKernels {
  // to[c] = from[c] of `channels` adjacent elements.
  void (*row)(double* to, const void* from, Index channels) noexcept;
  // to[c * kTile + j] = row j, channel c, of `rows` rows, at most kTile; 0 for the rows after them.
  void (*tile)(double* to, const void* const* from, Index rows, Index channels) noexcept;
};
struct WidenTable {
  WidenKernels f64, f32, f16, bf16, q8_0;
};
const WidenKernels& widen_kernels(Isa, DType);  // a float type, or u8 of q8_0 blocks

}  // namespace posenc::v0::detail
