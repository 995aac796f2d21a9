// SPDX-License-Identifier: Apache-2.0
// Sizes of ggml's q8_0 blocks (posenc/core/key_blocks.h).
#pragma once
#include "posenc/core/key_blocks.h"

namespace posenc::inline v0::detail {

inline constexpr Index kQ8Numbers = 32, kQ8Bytes = 34;

inline bool has_blocks(const ConstHeads& x) noexcept {
  return x.dtype == DType::u8;
}
// Keys or values of a call by their numbers: of blocks, dim counts numbers too. Strides count bytes.
inline ConstHeads by_numbers(ConstHeads x) noexcept {
  x.dim = head_size(x);
  return x;
}

}  // namespace posenc::v0::detail
