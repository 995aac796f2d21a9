// SPDX-License-Identifier: Apache-2.0
// Numbers by the distances on two axes (rows and columns of a picture: Swin), or on one whose keys do not count up by one.
// The pairs of all distances lie one behind the other, and a pair reads
//
//   entry(i) + code(j) = (p_i - p_j - low) width + (high' - (p'_i - p'_j)),  code(j) = p'_j - width p_j
//
// Keys of one row of the picture have codes that count up by one: runs, which read adjacent entries. Where runs would be
// short, each key reads by its code.
//
// Terms may be turned off, or moved to other rows of their table, by the classes of query and key (BEiT's class token, LongT5's
// global keys). Then all distances lie there once for each variant: for what the classes of some pair select of all terms.
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "attention/fast/fast_row.h"
#include "attention/fast/row_classes.h"

namespace posenc::inline v0::detail {

// Numbers of a head that are worth an array for a call, at most.
inline Index most_entries(const ReadyCall& c) noexcept {
  return 8 * (c.Tq + c.Tk);
}

class PictureLines {
 public:
  PictureLines() = default;
  // Of terms by their numbers; none where one of them is no number by whole distances on two axes, or where there are many
  // more distances than tokens.
  PictureLines(const ReadyCall&, std::span<const std::size_t> terms, CallArena&);

  bool none() const noexcept { return entries_ == 0; }
  Index entries() const noexcept { return entries_; }
  // What the classes of a query and of a key, and of the keys of its run, add to the entry.
  Index entry_of_variant(Index b, Index i, Index key_row, Index key) const noexcept {
    if (classes_.none()) return 0;
    return first_[static_cast<std::size_t>(classes_.query_class(b, i) * classes_.width() +
                                           classes_.key_classes(key_row)[key])];
  }
  Index entry_of(const ReadyCall& c, Index b, Index i) const noexcept;
  bool has_runs() const noexcept { return codes_.empty(); }
  // Without runs: what the keys of a row add to the entry of a query, with its variant, from key 0 on; kLineMargin more
  // may be read.
  const std::int32_t* codes(Index b, Index i, Index row) const noexcept {
    const Index of = classes_.none() ? 0 : classes_.query_class(b, i);
    return codes_.data() + (of * key_rows_ + (key_rows_ == 1 ? 0 : row)) * keys_;
  }
  // fn(first key, end, at): key j of a run reads at + j. entry: of the row; runs: these of the keys, and some more.
  template <class F>
  void each_run(const FastRow& r, Index entry, std::span<const FastRun> runs, Run keys,
                const F& fn) const noexcept {
    for (const FastRun& run : runs) {
      const Index first = std::max(run.at, keys.begin),
                  end = std::min(run.at + run.count, keys.end);
      if (first < end)
        fn(first, end, entry + run.first - run.at + entry_of_variant(r.b, r.i, r.place.row, first));
    }
  }
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
  void find_codes(const ReadyCall&, CallArena&);
  Index code(const ReadyCall&, Index row, Index j) const noexcept;
  // fn(entry, row of the table, number that multiplies it)
  template <class F>
  void each_entry(const Term&, const F& fn) const noexcept;

  // The row that a variant adds to those of a term's lines; -1: the term is turned off.
  Index row_of_variant(const Term&, Index variant) const noexcept;

  static constexpr std::int32_t kNone = -1;
  std::int32_t axis_[2] = {kNone, kNone};  // of the rows; of what counts up in a row
  WholeDistances rows_{}, columns_{};
  Index width_ = 1, size_ = 0, entries_ = 0;  // size: entries of a variant
  Index key_rows_ = 1, keys_ = 0;
  std::array<const PickedRows*, kMostClassTerms> paired_{};  // terms that read classes
  std::size_t pairs_ = 0;
  RowClasses classes_;  // of these; none: there is one variant
  Index variants_ = 1;
  std::span<Index> first_;  // [classes of queries][width of classes]: the entry of the variant
  std::span<std::int32_t> selected_;  // [variants][pairs]: row_of_variant
  std::span<FastRun> runs_;           // of all rows of keys
  std::span<Index> first_run_;        // [rows of keys + 1]
  std::span<std::int32_t> codes_;     // [classes of queries][rows of keys][keys]
};

}  // namespace posenc::v0::detail
