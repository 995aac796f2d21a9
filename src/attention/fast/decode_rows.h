// SPDX-License-Identifier: Apache-2.0
// Terms that read rows of a table, for few queries. Each query is multiplied once with the steps (row_steps.h) that a
// slice of the keys reads, and start values are read of these products. Rows that are multiplied with keys meet each key
// while it lies in the first cache.
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
  std::span<float> rows;  // of RowTerm::in_place: [kDecodeKeys][x_width], rows of some steps
  std::span<float> sums;  // FastDecodeHeads::sums
  // Of keys that the term comes with and that have fewer channels than a vector.
  std::span<float> copies;
};
// The keys of a unit. zeros: of those that no row sees.
struct DecodeKeys {
  Run keys;
  std::span<const void* const> k;
  const void* zeros;
};

class DecodeRows {
 public:
  DecodeRows(const DecodeCall&, CallArena&);
  // Products of the rows of a piece: blocks from `first` on, against a slice of the keys. Rows that float cannot work
  // with are left.
  void begin(std::span<const DecodeBlock> blocks, Index slice) noexcept;
  // Start values of a row with those of the terms: of `count` keys, from the first on. Row n of the block. null: 0,
  // given or returned. What is the same for all keys is added to `base`.
  const float* add(const DecodeBlock&, Index n, const DecodeKeys&, Index count, const float* start,
                   double& base) noexcept;

 private:
  void multiply(const RowTerm&, DecodeRowTerm&, const DecodeBlock&, Index slice, Run keys) noexcept;
  // The same of a term in place.
  void multiply_in_place(const RowTerm&, DecodeRowTerm&, const DecodeBlock&, Index n, Index count,
                         Index slice, const RowSteps::Range&) noexcept;
  void add_keys(const RowTerm&, DecodeRowTerm&, const FastRow&, const DecodeKeys&, Index count,
                float* to) noexcept;
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
  std::span<float> x_;             // [kDecodeKeys]: products of rows and keys
};

}  // namespace posenc::v0::detail
