// SPDX-License-Identifier: Apache-2.0
// Few queries for each key head: keys and values are read once, as they lie (kernels/attention/fast_decode.h). The
// work is cut into pieces: blocks of rows against a slice of the keys. Each has sums of its own, which are joined in
// the order of the slices, so that the bits do not depend on the threads.
#pragma once
#include "attention/fast/work.h"
#include "kernels/attention/fast_decode.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// Rows that read the same keys, at most.
inline constexpr Index kDecodeMostRows = kFewRows;
// Keys of a slice: whole blocks.
inline constexpr Index kSliceKeys = 4096;
// Writes all rows but those it marks in left[(b * H + h) * Tq + i].
void decode_rows(const FastCall&, const AttentionResult&, std::uint8_t* left, CallArena&,
                 const Executor&);

// Keys or values as kernels read them. Tokens whose channels are not adjacent, or fewer than a vector, are copied to
// whole vectors of floats.
struct DecodeTokens {
  DecodeTokens(const ConstHeads&, Index lanes);
  // Heads with such tokens. sums: FastDecodeHeads::sums, which scores need.
  FastDecodeHeads of(std::span<const FastDecodeHead>, Index rows,
                     std::span<float> sums = {}) const noexcept;
  const ConstHeads* x;
  bool copied;
  std::size_t type;  // fast_type
  Index channels, width;
  AccessPattern access = access_pattern();
};

// The last vector of a row of q holds the last channels, as FastDecodeKernels reads a token.
void place_tail(const DecodeTokens&, Index lanes, float* q) noexcept;

// A block of rows that read the same keys.
struct DecodeBlock {
  FastRowBlock rows{};
  Index first = 0, count = 0;    // of its rows
  std::span<RowGroup> groups{};  // one for each head; `first` counts from 0 in a block
  bool low = false;              // to be done again
};

// k and q of a region, as DecodeCall has them.
struct DecodeRegion {
  DecodeTokens k;
  std::span<float> q;
};

class DecodeProducts;
struct DecodeCall {
  DecodeCall(const FastCall&, CallArena&);
  // Rows of q, and of the products that make it longer.
  void take_queries(DecodeProducts&) noexcept;

  const FastCall& c;
  const FastDecodeKernels& kernels;
  const DecodeTokens k, v;
  const Index slices;
  Index together = 1;  // blocks that a piece works on in turns: their keys lie side by side
  std::span<DecodeBlock> blocks;
  std::span<FastRow> rows;  // [rows of all blocks]
  std::span<float> q;       // [rows][k.width], times scale and log2(e)
  std::span<DecodeRegion> regions;
  // Of slices: [slices][rows]
  std::span<float> out, sums;
  std::span<double> reference;
  std::span<double> tops;        // [rows]: find_tops
  std::span<std::uint8_t> left;  // another engine must compute the row
  std::span<std::byte> copy;     // of a token of q
  std::span<float> wide;         // a row of q with all products
  const DecodeProducts* products = nullptr;

  std::size_t at(Index slice, Index row) const noexcept {
    return static_cast<std::size_t>(slice) * rows.size() + static_cast<std::size_t>(row);
  }
  const DecodeTokens& tokens_of(int region) const noexcept {
    return region < 0 ? k : regions[static_cast<std::size_t>(region)].k;
  }
  const float* query_of(int region, Index row) const noexcept {
    const auto& x = region < 0 ? q : regions[static_cast<std::size_t>(region)].q;
    return x.data() + row * k.width;
  }
  // Numbers of FastDecodeHeads::sums.
  Index sums_of_rows(Index count) const noexcept { return count * kernels.lanes * kernels.lanes; }
  float* out_of(Index slice, Index row) const noexcept {
    return out.data() + at(slice, row) * static_cast<std::size_t>(v.width);
  }
  float* sums_of(Index slice, Index row) const noexcept {
    return sums.data() + at(slice, row) * static_cast<std::size_t>(kernels.lanes);
  }

 private:
  void add_block(const FastRowBlock&, BoundedList<FastRow>&, BoundedList<RowGroup>&) noexcept;
  void take_queries(const DecodeBlock&, DecodeProducts&) noexcept;
  void take_region_queries(const DecodeBlock&) noexcept;
};

// A token in whole vectors of floats.
const void* copy_token(const DecodeCall&, const DecodeTokens&, const void* token,
                       float* copy) noexcept;
// Keys of a row and head.
struct GivenKeys {
  Index row, head;
  Run keys;
};
// Where vectors of keys lie that come with a term; `zeros` where k has that, too, or no key.
void find_given_tokens(const DecodeCall&, const DecodeTokens&, const GivenKeys&,
                       std::span<const void* const> k, const std::byte* zeros,
                       std::span<const void*> to, std::span<float> copies) noexcept;

// Joins the slices of a row, relative to the largest of their references: out_of(0, row). Returns the sum.
struct DecodeSum {
  double sum, reference;
};
DecodeSum sum_of_slices(const DecodeCall&, Index row) noexcept;
// Writes the rows of a block.
class DecodeScans;
struct DecodeScanWork;
void put_decoded(DecodeCall&, const DecodeScans&, const DecodeBlock&, const AttentionResult&,
                 std::uint8_t* left, DecodeScanWork&) noexcept;

}  // namespace posenc::v0::detail
