// SPDX-License-Identifier: Apache-2.0
// Few queries for each key head: keys and values are read once, as they lie (kernels/attention/fast_decode.h). The
// work is cut into pieces: blocks of rows against a slice of the keys. Each has sums of its own, which are joined in
// the order of the slices, so that the bits do not depend on the threads.
#pragma once
#include "attention/fast/work.h"
#include "kernels/attention/fast_decode.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// Whether the rows of a call that read the same keys are so few. Rows of keys, rows of values and products that
// make q longer are not computed here.
bool decodes(const FastCall&) noexcept;
// Rows that read the same keys, at most.
inline constexpr Index kDecodeMostRows = 8;
// Keys of a slice: whole blocks.
inline constexpr Index kSliceKeys = 4096;
// Writes all rows but those it marks in left[(b * H + h) * Tq + i].
void decode_rows(const FastCall&, const AttentionResult&, std::uint8_t* left, CallArena&,
                 const Executor&);

// Keys or values as kernels read them. Tokens whose channels are not adjacent, or fewer than a vector, are copied to
// whole vectors of floats.
struct DecodeTokens {
  DecodeTokens(const ConstHeads&, Index lanes);
  const ConstHeads* x;
  bool copied;
  std::size_t type;  // fast_type
  Index channels, width;
  Index bytes;  // of a token in place; 0: copied
};

// A block of rows that read the same keys.
struct DecodeBlock {
  FastRowBlock rows{};
  Index first = 0, count = 0, padded = 0;  // of its rows; the kernels work on `padded`
  std::span<RowGroup> groups{};            // one for each head; `first` counts from 0 in a block
  bool low = false;                        // to be done again
};

struct DecodeCall {
  DecodeCall(const FastCall&, CallArena&);

  const FastCall& c;
  const FastDecodeKernels& kernels;
  const DecodeTokens k, v;
  const Index slices;
  Index together = 1;  // blocks that a piece works on in turns: their keys lie side by side
  std::span<DecodeBlock> blocks;
  std::span<FastRow> rows;  // [rows of all blocks]
  std::span<float> q;       // [rows][k.width], times scale and log2(e)
  // Of slices: [slices][rows]
  std::span<float> out, sums;
  std::span<double> reference;
  std::span<std::uint8_t> left;  // another engine must compute the row

  std::size_t at(Index slice, Index row) const noexcept {
    return static_cast<std::size_t>(slice) * rows.size() + static_cast<std::size_t>(row);
  }
  float* out_of(Index slice, Index row) const noexcept {
    return out.data() + at(slice, row) * static_cast<std::size_t>(v.width);
  }
  float* sums_of(Index slice, Index row) const noexcept {
    return sums.data() + at(slice, row) * static_cast<std::size_t>(kernels.lanes);
  }

 private:
  void add_block(const FastRowBlock&, BoundedList<FastRow>&, BoundedList<RowGroup>&) noexcept;
  void take_queries(const DecodeBlock&, std::byte* copies) noexcept;
};

// Joins the slices of a row, relative to the largest of their references: out_of(0, row). Returns the sum.
struct DecodeSum {
  double sum, reference;
};
DecodeSum sum_of_slices(const DecodeCall&, Index row) noexcept;
// Writes the rows of a block.
void put_decoded(const DecodeCall&, const DecodeBlock&, const AttentionResult&,
                 std::uint8_t* left) noexcept;

}  // namespace posenc::v0::detail
