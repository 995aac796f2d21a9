// SPDX-License-Identifier: Apache-2.0
// Keys or values as ggml's q8_0 blocks, in tensors of u8. A block is 34 bytes for 32 numbers of a head, number = scale *
// byte: the scale as f16 (little-endian), then 32 signed bytes. A head has head size / 32 blocks side by side.
#pragma once
#include "posenc/core/heads.h"

namespace posenc::inline v0 {

// The last axis has head size / 32 * 34 bytes, so dim and strides of the view count bytes. Throws [heads]: as heads
// does, and if the dtype is not u8.
POSENC_API Heads key_blocks(const TensorView&, HeadsLayout);
POSENC_API ConstHeads key_blocks(const ConstTensorView&, HeadsLayout);
// How many numbers a head has: dim, or of key_blocks the numbers of its blocks.
POSENC_API Index head_size(const ConstHeads&) noexcept;

}  // namespace posenc::v0
