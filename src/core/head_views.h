// SPDX-License-Identifier: Apache-2.0
// Parts of heads as tensors of their own, and dense heads in new memory.
#pragma once
#include <cstddef>
#include <type_traits>

#include "posenc/core/heads.h"

namespace posenc::inline v0::detail {

// Tokens [first, first + count) of one batch entry, [1, count, heads, dim]. Null stays null.
template <class Data>
BasicHeads<Data> token_range(BasicHeads<Data> h, Index batch, Index first, Index count) noexcept {
  if (h.data == nullptr) return h;
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  h.data = static_cast<Byte*>(h.data) +
           (batch * h.batch_stride + first * h.token_stride) * size_of(h.dtype);
  h.batch = 1, h.tokens = count;
  return h;
}

// [1, tokens, heads, dim], row-major.
inline Heads dense_heads(void* data, DType dtype, Index tokens, Index heads, Index dim) noexcept {
  Heads h{data, 1, tokens, heads, dim};
  h.dtype = dtype;
  h.head_stride = dim, h.token_stride = heads * dim, h.batch_stride = tokens * h.token_stride;
  return h;
}

}  // namespace posenc::v0::detail
