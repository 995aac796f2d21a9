// SPDX-License-Identifier: Apache-2.0
// Rows that are added to values (value_rows.h), for few queries: the weights of a slice of the keys are summed by step, and
// the sums multiplied with the rows at its end.
#pragma once
#include "attention/fast/decode.h"

namespace posenc::inline v0::detail {

// Of one thread.
class DecodeValues {
 public:
  DecodeValues(const DecodeCall&, CallArena&);

  // Before a slice of the keys, for the blocks of a piece. Rows whose table float does not hold are left.
  void begin(std::span<const DecodeBlock> blocks, Index slice) noexcept;
  // The weights of row n of a block. moved: what the reference of the row has moved by.
  void add(const DecodeBlock&, Index n, Run keys, const float* weights, Index count,
           double moved) noexcept;
  // Adds the rows to the values of the slice.
  void end(std::span<const DecodeBlock> blocks, Index slice, bool low_only) noexcept;

 private:
  struct Term {
    std::span<float> sums;   // [rows of a piece][width]
    std::span<Index> first;  // [rows of a piece]: the step of the first sum
    Index width = 0;
  };
  void put(const ValueRowTerm&, const Term&, const DecodeBlock&, Index n, Index slice) noexcept;
  std::size_t at(const DecodeBlock& b, Index n) const noexcept {
    return static_cast<std::size_t>(b.first - first_row_ + n);
  }

  const DecodeCall* d_;
  Index first_row_ = 0;  // of the piece
  std::span<Term> terms_;
};

}  // namespace posenc::v0::detail
