// SPDX-License-Identifier: Apache-2.0
// Short sequences: what the next block reads and this one writes comes into the second cache before it is needed. Rows of
// a head lie a row of all heads apart, which the processor does not foresee.
#pragma once
#include "attention/fast/work.h"

namespace posenc::inline v0::detail {

// Tokens of one head. Always inlined: compilers leave out calls of functions that only prefetch.
template <class View>
[[gnu::always_inline]] inline void prefetch_tokens(const View& x, Index row, Index head,
                                                   Run tokens) noexcept {
  if (x.dim_stride != 1 || x.dim == 0 || tokens.begin >= tokens.end) return;
  constexpr Index kLine = 64;
  const Index size = size_of(x.dtype), bytes = x.dim * size;
  const auto* at =
      static_cast<const std::byte*>(x.data) +
      (row * x.batch_stride + tokens.begin * x.token_stride + head * x.head_stride) * size;
  for (Index n = tokens.begin; n < tokens.end; ++n, at += x.token_stride * size) {
    for (Index byte = 0; byte < bytes; byte += kLine) __builtin_prefetch(at + byte, 0, 2);
    __builtin_prefetch(at + bytes - 1, 0, 2);
  }
}

// What a block writes, and q, k and v of the next one, if all of it leaves most of the second cache to the block.
[[gnu::always_inline]] inline void prefetch_blocks(const FastCall& c, const FastRowBlock& now,
                                                   const FastRowBlock* next,
                                                   const Heads& out) noexcept {
  constexpr Index kMostBytes = 128 << 10;
  const Index rows = (now.head_end - now.head) * (now.end - now.begin);
  if (!c.args.block_table.empty() || 4 * (rows + c.Tk) * (c.D + c.V) > kMostBytes) return;
  for (Index h = now.head; h < now.head_end; ++h)
    prefetch_tokens(out, now.b, h, {now.begin, now.end});
  if (next == nullptr) return;
  for (Index h = next->head; h < next->head_end; ++h)
    prefetch_tokens(c.q, next->b, h, {next->begin, next->end});
  prefetch_tokens(c.k, next->row, c.group(next->head), {0, c.Tk});
  prefetch_tokens(c.given_v, next->row, c.group(next->head), {0, c.Tk});
}

}  // namespace posenc::v0::detail
