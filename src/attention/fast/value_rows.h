// SPDX-License-Identifier: Apache-2.0
// Rows of a table that are added to values (Shaw's): o_i += sum_j p_ij t(i, j).
//
// The weights of a strip are summed by step of the line (row_steps.h), and the sums multiplied with the rows of the
// steps. Where all pairs of a strip and a block of keys read one row, that waits until another row comes: what the sums
// of weights have grown by, which the strip adds anyway, are its weights.
#pragma once
#include <span>

#include "attention/fast/row_blocks.h"
#include "attention/fast/row_steps.h"
#include "kernels/attention/fast_reads.h"
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {

struct FastCall;
struct FastWork;

struct ValueRowTerm : RowSteps {
  const ValueRowsTerm* term = nullptr;
  std::size_t number = 0;  // of the terms of the call
  // Times the term's scale: [slab][panels of channels][steps][panel]; for gradients [slab][panels of steps][channels]
  // [panel]; for few queries [slab][steps][channels in whole vectors].
  std::span<const float> table;
  Index slab_size = 0;
  std::span<const std::uint8_t> bounded;  // [slab]: float holds its numbers

  Index slab(Index b, Index h, Index heads) const noexcept {
    return slab_of(term->table, b, h, heads);
  }
};

class ValueRows {
 public:
  enum class For : std::uint8_t { strips, gradients, few_queries };
  ValueRows(const ReadyCall&, const FastKernels&, For, CallArena&);

  static bool has(const Term&) noexcept;
  static std::string_view why_not(const ReadyCall&, const Term&) noexcept;

  bool none() const noexcept { return all_.empty(); }
  std::span<const ValueRowTerm> all() const noexcept { return all_; }
  // Whether float holds all tables.
  bool are_bounded() const noexcept;

 private:
  void pack_channels(ValueRowTerm&, const FastKernels&, CallArena&);
  void pack_steps(ValueRowTerm&, const FastKernels&, CallArena&);
  void pack_rows(ValueRowTerm&, const FastKernels&, CallArena&);

  std::span<ValueRowTerm> all_;
};

// Of one thread and term.
struct ValueRowWork {
  ValueRowWork(const ValueRowTerm&, const FastKernels&, Index rows, CallArena&);

  std::span<float>
      before;  // [rows][lanes]: sums of weights before those that read `step` of their group
  std::span<Index> step;  // by group; -1: no block of keys has read one step
  std::span<float> sums;  // [rows of a strip][width]: of weights by step
  Index width = 0;
};

// Before the blocks of keys of a group. Rows whose table float does not hold are left.
void clear_value_rows(const FastCall&, FastWork&, const RowGroup&) noexcept;
// Before a strip against `count` keys of a block.
void begin_value_rows(const FastCall&, FastWork&, const RowGroup&, Run keys, Index count) noexcept;
// The weights of the strip. moved: put_value_rows was called after it began.
void add_value_rows(const FastCall&, FastWork&, const RowGroup&, Run keys, Index count,
                    bool moved) noexcept;
// What waits goes to the output of a group: before references move, and at the end.
void put_value_rows(const FastCall&, FastWork&, const RowGroup&) noexcept;

}  // namespace posenc::v0::detail
