// SPDX-License-Identifier: Apache-2.0
// Terms whose number for a pair is a vector of the query, or of the key, times a row of a table: Shaw's keys,
// Transformer-XL, DeBERTa. What does not change during a call: which row a pair reads, and the rows in float.
#pragma once
#include <span>

#include "attention/fast/starts.h"
#include "kernels/attention/fast_reads.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

// Numbers of a table up to this: products with a vector that is bounded stay finite, and so do sums of several.
inline constexpr float kLargestRow = 0x1p50f;

struct RowTerm {
  const ProductTerm* term = nullptr;
  std::size_t number = 0;  // of the terms of the call
  bool of_keys = false;
  Index channels = 0;

  // By one distance, where positions of queries and keys count up: key j of query i has the entry
  // high - (position of i) + (position of key 0) + j of a line. Neighbouring distances of one row are a step; steps are
  // counted along the line, so a block of pairs reads neighbouring ones.
  bool by_line = false;
  std::int32_t axis = 0;
  Index high = 0;
  const std::int32_t* step = nullptr;  // of an entry; kLineMargin more on both sides
  std::span<const Index>
      row;  // of a step; -1: none. Otherwise a step is a row, and the last one is none
  // By classes alone: [R|1][Tk], the class of a key.
  std::span<const std::int32_t> key_class;

  // [slab of the table], by panels of steps: [panels][channels][panel]; of keys: [steps][channels] and rows of a strip.
  std::span<const float> table;
  Index slab_size = 0;
  std::span<const std::uint8_t> bounded;  // [slab]: float holds its numbers
  std::span<const float>
      keys;  // vectors of keys that the term comes with: [batch][tokens][heads][channels]
  bool holds_numbers =
      false;  // its steps are distances, and its products begin with the lines of Starts

  Index steps() const noexcept { return static_cast<Index>(row.size()); }
  Index slab(Index b, Index h, Index heads) const noexcept {
    const ConstTensorView& t = term->table;
    return (t.shape[0] == 1 ? 0 : b) * t.shape[1] + Grouping{heads, t.shape[1]}.of(h);
  }
  const float* table_of(Index slab) const noexcept { return table.data() + slab * slab_size; }
};

class RowTerms {
 public:
  RowTerms(const ReadyCall&, const Starts&, const FastKernels&, CallArena&, const Executor&);

  // Whether a term is one of these; whether it is computed here.
  static bool has(const Term&) noexcept;
  static std::string_view why_not(const ReadyCall&, const Term&) noexcept;

  bool none() const noexcept { return all_.empty(); }
  std::span<const RowTerm> all() const noexcept { return all_; }
  // Whether float holds all tables.
  bool are_bounded() const noexcept;
  // One of them adds the numbers of the lines of Starts.
  bool hold_numbers() const noexcept;
  Index entry(const RowTerm&, const FastRow&) const noexcept;

 private:
  void find_steps(RowTerm&, CallArena&);
  void find_classes(RowTerm&, CallArena&);
  void pack_table(RowTerm&, const FastKernels&, CallArena&, const Executor&);
  void copy_keys(RowTerm&, CallArena&, const Executor&);

  const ReadyCall& call_;
  std::span<RowTerm> all_;
};

}  // namespace posenc::v0::detail
