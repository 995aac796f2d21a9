// SPDX-License-Identifier: Apache-2.0
// Numbers by the distances on two axes (rows and columns of a picture: Swin), or on one whose keys do not count up by one.
// The pairs of all distances lie one behind the other, and a pair reads
//
//   entry(i) + code(j) = (p_i - p_j - low) width + (high' - (p'_i - p'_j)),  code(j) = p'_j - width p_j
//
// Keys of one row of the picture have codes that count up by one: runs, which read adjacent entries.
//
// Terms may be turned off, or moved to other rows of their table, by the classes of query and key (BEiT's class token, LongT5's
// global keys). Then all distances lie there once for each variant: for what the classes of some pair select of all terms.
#pragma once
#include <array>
#include <optional>
#include <span>

#include "attention/fast/row_classes.h"

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
  // What the classes of a query and of a key, and of the keys of its run, add to the entry.
  Index entry_of_variant(Index b, Index i, Index key_row, Index key) const noexcept {
    if (classes_.none()) return 0;
    return first_[static_cast<std::size_t>(classes_.query_class(b, i) * classes_.width() +
                                           classes_.key_classes(key_row)[key])];
  }
  Index entry_of(const ReadyCall& c, Index b, Index i) const noexcept;
  // Runs of the keys of a row of keys that hold some of these: `first` is a code.
  std::span<const FastRun> runs(Index row, Run keys) const noexcept;
  // The row of the table of a product for each entry; -1: none.
  void find_rows(const Term&, std::int32_t* to) const noexcept;
  // Adds the numbers of the term, times `factor`, in the order of entries; of one slab of its table. rows: of find_rows.
  void add(const Term&, const std::int32_t* rows, Index slab, double factor,
           double* to) const noexcept;
  // The transpose: gradients of entries to the rows of one slab of the table.
  void pull(const Term&, double factor, const double* d, double* rows) const noexcept;

 private:
  bool take_axes(const Term&) noexcept;
  bool take_axis(std::int32_t) noexcept;
  void find(const ReadyCall&, CallArena&);
  // False: there are too many.
  bool find_variants(const ReadyCall&, Index most, CallArena&);
  void find_runs(const ReadyCall&, CallArena&);
  Index code(const ReadyCall&, Index row, Index j) const noexcept;
  // fn(entry, row of the table, number that multiplies it)
  template <class F>
  void each_entry(const Term&, const F& fn) const noexcept;

  // The row that a variant adds to those of a term's lines; -1: the term is turned off.
  Index row_of_variant(const Term&, Index variant) const noexcept;

  static constexpr std::int32_t kNone = -1;
  std::int32_t axis_[2] = {kNone, kNone};  // of the rows; of what counts up in a row
  WholeDistances rows_{}, columns_{};
  Index width_ = 1, size_ = 0, entries_ = 0, key_rows_ = 1;  // size: entries of a variant
  std::array<const PickedRows*, kMostClassTerms> paired_{};  // terms that read classes
  std::size_t pairs_ = 0;
  RowClasses classes_;  // of these; none: there is one variant
  Index variants_ = 1;
  std::span<Index> first_;  // [classes of queries][width of classes]: the entry of the variant
  std::span<std::int32_t> selected_;  // [variants][pairs]: row_of_variant
  std::span<FastRun> runs_;           // of all rows of keys
  std::span<Index> first_run_;        // [rows of keys + 1]
};

}  // namespace posenc::v0::detail
