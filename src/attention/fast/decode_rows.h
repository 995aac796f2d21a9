// SPDX-License-Identifier: Apache-2.0
// Terms that read rows of a table, for few queries: each query is multiplied once with the steps (row_steps.h) that a
// slice of the keys reads, and start values are read of these products.
#pragma once
#include "attention/fast/decode.h"

namespace posenc::inline v0::detail {

// Of one thread and term.
struct DecodeRowTerm {
  DecodeRowTerm(const DecodeCall&, const RowTerm&, CallArena&);

  std::span<float> products;  // [rows of a piece][width]: with steps of the slice
  std::span<Index> first;     // [rows of a piece]: the step of its first product
  std::span<float> x;         // vectors of the rows of a strip, a vector apart
  Index width = 0, x_width = 0;
};

class DecodeRows {
 public:
  DecodeRows(const DecodeCall&, CallArena&);
  // Whether the terms of a call are computed here: those of keys are not.
  static bool takes(const RowTerms&) noexcept;

  // Products of the rows of a piece: blocks from `first` on, against a slice of the keys. Rows that float cannot work
  // with are left.
  void begin(std::span<const DecodeBlock> blocks, Index slice) noexcept;
  // Start values of a row with those of the terms: of `count` keys, from `keys.begin` on. Row n of the block. null: 0,
  // given or returned. What is the same for all keys is added to `base`.
  const float* add(const DecodeBlock&, Index n, Run keys, Index count, const float* start,
                   double& base) noexcept;

 private:
  void multiply(const RowTerm&, DecodeRowTerm&, const DecodeBlock&, Index slice, Run keys) noexcept;
  void take_vectors(const RowTerm&, DecodeRowTerm&, const DecodeBlock&, Index n, Index count,
                    Index slice) noexcept;
  std::size_t at(const DecodeBlock& b, Index n) const noexcept {
    return static_cast<std::size_t>(b.first - first_row_ + n);
  }

  const DecodeCall* d_;
  Index first_row_ = 0;  // of the piece
  std::span<DecodeRowTerm> terms_;
  std::span<float> starts_;        // [rows of a block][kDecodeKeys]
  std::span<std::int32_t> picks_;  // [kDecodeKeys]
};

}  // namespace posenc::v0::detail
