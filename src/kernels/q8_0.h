// SPDX-License-Identifier: Apache-2.0
// ggml's q8_0 blocks: 32 numbers as an f16 scale and 32 signed bytes, x = scale * byte.
#pragma once
#include <cstddef>

#include "core/q8_0.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

struct Q8Kernels {
  // n blocks to 32 n floats.
  void (*read)(const std::byte* blocks, Index n, float* x);
  // And back. The scale is that of the largest number, rounded to f16, and bytes are of that rounded scale:
  // each number is within half a scale. A block with a NaN, or whose scale is beyond f16, is all NaN.
  void (*write)(const float* x, Index n, std::byte* blocks);
};

// Throws what isa_dispatch_index throws.
const Q8Kernels& q8_kernels(Isa);

}  // namespace posenc::v0::detail
