// SPDX-License-Identifier: Apache-2.0
// Vectors of the caller's tensors, of any strides and float type, as dense doubles.
#pragma once
#include "attention/call/call_arena.h"
#include "kernels/attention/widen.h"
#include "posenc/attention/attention.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

// Vectors [row, group, token] of a tensor [row, tokens, groups, dim], or of pages: then token j of a
// row is in page block_table[row, j / page size].
class VectorSource {
 public:
  VectorSource() = default;
  explicit VectorSource(const ConstHeads& x, const ConstTensorView& block_table = {});

  Index dim() const noexcept { return x_.dim; }
  // Tokens [some.begin, some.end) one after the other.
  void load_rows(Index row, Index group, Run some, double* to) const noexcept;
  // The same as tiles; 0 after the last token of the last tile.
  void load_tiles(Index row, Index group, Run some, double* to) const noexcept;

 private:
  // fn(token, its first element); the block table is read once a page.
  template <class F>
  void each_token(Index row, Index group, Run some, const F& fn) const noexcept;
  const void* at(Index element) const noexcept {
    return static_cast<const std::byte*>(x_.data) + element * size_of(x_.dtype);
  }
  void load_strided(Index element, double* to, Index step) const noexcept;

  ConstHeads x_{};
  ConstTensorView block_table_{};
  const WidenKernels* widen_ = nullptr;
};

// One vector of a tensor.
void read_vector(const ConstHeads&, Index b, Index t, Index h, double* to) noexcept;
// A row of a result, to the caller's.
void put_result_row(const AttentionResult&, Index b, Index h, Index i, const double* out,
                    double log_sum_exp) noexcept;

// [batch, heads, tokens, dim].
std::span<double> load_by_heads(const ConstHeads&, CallArena&, const Executor&);

}  // namespace posenc::v0::detail
