// SPDX-License-Identifier: Apache-2.0
// Numbers by the distances on two axes (rows and columns of a picture: Swin), or on one whose keys do not count up by one.
// The pairs of all distances lie one behind the other, and a pair reads
//
//   entry(i) + code(j) = (p_i - p_j - low) width + (high' - (p'_i - p'_j)),  code(j) = p'_j - width p_j
//
// Keys of one row of the picture have codes that count up by one: runs, which read adjacent entries.
#pragma once
#include <optional>
#include <span>

#include "attention/call/ready_call.h"
#include "kernels/attention/fast_reads.h"

namespace posenc::inline v0::detail {

class PictureLines {
 public:
  PictureLines() = default;
  // Of the terms that `adds` names; none where one of them is no number by whole distances on these axes, or where there
  // are many more distances than tokens.
  template <class Adds>
  PictureLines(const ReadyCall& c, const Adds& adds, CallArena& arena) {
    for (const Term& t : c.args.terms)
      if (adds(t) && !take_axes(t)) return;
    find(c, arena);
  }

  bool none() const noexcept { return entries_ == 0; }
  Index entries() const noexcept { return entries_; }
  Index entry_of(const ReadyCall& c, Index b, Index i) const noexcept;
  // Runs of the keys of a row of keys that hold some of these: `first` is a code.
  std::span<const FastRun> runs(Index row, Run keys) const noexcept;
  // Adds the numbers of the term, times `factor`, in the order of entries; of one slab of its table.
  void add(const Term&, Index slab, double factor, double* to) const noexcept;
  // The transpose: gradients of entries to the rows of one slab of the table.
  void pull(const Term&, double factor, const double* d, double* rows) const noexcept;

 private:
  bool take_axes(const Term&) noexcept;
  bool take_axis(std::int32_t) noexcept;
  void find(const ReadyCall&, CallArena&);
  void find_runs(const ReadyCall&, CallArena&);
  Index code(const ReadyCall&, Index row, Index j) const noexcept;
  // fn(entry, row of the table, number that multiplies it)
  template <class F>
  void each_entry(const Term&, const F& fn) const noexcept;

  static constexpr std::int32_t kNone = -1;
  std::int32_t axis_[2] = {kNone, kNone};  // of the rows; of what counts up in a row
  WholeDistances rows_{}, columns_{};
  Index width_ = 1, entries_ = 0, key_rows_ = 1;
  std::span<FastRun> runs_;     // of all rows of keys
  std::span<Index> first_run_;  // [rows of keys + 1]
};

}  // namespace posenc::v0::detail
