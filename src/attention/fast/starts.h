// SPDX-License-Identifier: Apache-2.0
// Start values of a call: the sum of its terms for a pair, times log2(e), in double.
#pragma once
#include <optional>
#include <span>

#include "attention/fast/class_numbers.h"
#include "attention/fast/distance_curve.h"
#include "attention/fast/fast_row.h"
#include "attention/fast/pair_rows.h"
#include "attention/fast/pictures.h"
#include "attention/lowered/lowered_call.h"
#include "kernels/attention/args.h"

namespace posenc::inline v0::detail {

// Up to here float holds start values to 2^-18.
inline constexpr double kLineRange = 64;
// A start value below this hides its key as long as another one is near 0.
inline constexpr double kFar = -0x1p40;
inline constexpr double kLog2E = 1.4426950408889634074, kLn2 = 1 / kLog2E;

// Of a table, that of a head.
inline Index slab_of(const ConstTensorView& table, Index b, Index h, Index heads) noexcept {
  return (table.shape[0] == 1 ? 0 : b) * table.shape[1] + Grouping{heads, table.shape[1]}.of(h);
}
// The row of a table for a pair, negative: none.
Index picked_row(const ReadyCall&, const PickedRows&, const FastRow&, Index key) noexcept;

// Of an array with one channel; 0 if there is none.
double token_number(const ReadyCall&, const ConstHeads&, Index batch, Index head,
                    Index token) noexcept;
// Whether a DecayTerm adds to a pair.
bool is_on_side(const ReadyCall&, const DecayTerm&, const FastRow&, Index key) noexcept;

class Starts {
  static constexpr std::int32_t kNoAxis = -1;

 public:
  Starts(const ReadyCall&, const LoweredCall&, CallArena&);

  // Nothing is added to any score but the numbers of classes.
  bool none() const noexcept { return none_ && !classes_.is_wide(); }
  // Terms by classes. Where they are wide, all terms are added pair by pair.
  const ClassNumbers& classes() const noexcept { return classes_; }
  bool adds_nothing() const noexcept { return none() && classes_.none(); }
  // The terms go by one distance or are one number for all pairs, and the keys of each row are neighbours on it: key j
  // is entry entry_of(row) + j of a line. Of wide lines a row is taken in double, relative to one of the numbers that are used,
  // unless its largest number is near 0: what float loses of smaller ones weighs nothing.
  bool has_lines() const noexcept { return line_size_ > 0 && pictures_.none(); }
  bool has_wide_lines() const noexcept { return wide_ && has_lines(); }
  // Lines by key (forgetting gates): a number of the query is added to all of them.
  bool has_offsets() const noexcept { return by_key_ && has_lines(); }
  double offset_of(const FastRow&) const noexcept;
  // Lines whose numbers differ by so much that a row cannot be relative to 0.
  bool is_steep() const noexcept { return steep_ && has_lines(); }
  // The same by several distances, classes or an index, or of keys that do not count up. Wide numbers are read in runs only.
  bool has_pictures() const noexcept { return !pictures_.none(); }
  bool reads_pictures() const noexcept {
    return has_pictures() && !classes_.is_wide() && (!wide_ || (finite_ && pictures_.has_runs()));
  }
  bool has_wide_pictures() const noexcept { return reads_pictures() && wide_; }
  const Pictures& pictures() const noexcept { return pictures_; }
  // to[j - keys.begin] = start of key j, of keys in a block. A vector more may be written behind them.
  void write_pictures(const FastReadKernels&, const FastRow&, Run block, Run keys, PictureWork&,
                      float* to) const noexcept;
  // fn(first key, end, at), of the runs of a picture: key j reads entry at + j.
  template <class F>
  void each_run(const FastRow& r, Run block, Run keys, PictureWork& w, const F& fn) const noexcept {
    if (PictureWork::BlockRuns& x = w.found;
        x.row != r.place.row || x.keys.begin != block.begin || x.keys.end != block.end)
      x = {r.place.row, block, pictures_.only().runs(r.place.row, block)};
    pictures_.only().each_run(r, r.entry, w.found.runs, keys, fn);
  }
  // Lines of one axis in float; the numbers of one head, from entry 0 on, with room for a block on both sides.
  bool has_lines_of(std::int32_t axis) const noexcept {
    return has_lines() && !wide_ && !classes_.is_wide() && axis_ == axis;
  }
  Index line_entries() const noexcept;
  const float* line_of(Index b, Index h) const noexcept;
  Index entry_of(const FastRow&) const noexcept;
  // Where the numbers of the head of a row begin.
  Index head_of(const FastRow& r) const noexcept {
    return ((line_batches_ == 1 ? 0 : r.b) * call_.H + r.h) * line_size_ + kLineMargin;
  }
  Index line_size() const noexcept { return line_size_; }  // from head to head
  const float* lines() const noexcept { return lines_.data(); }
  const double* wide_lines() const noexcept { return wide_lines_.data(); }
  Index line_batches() const noexcept { return line_batches_; }
  // table[slab][row] += gradients of lines, as the term reads its table. Both in double, the table dense.
  void pull_line(const Term&, const double* d_lines, double* table) const noexcept;
  // Of steep lines: the largest entry of a slice; and the largest number, with its offset, of the keys that bounds of a
  // row show, 0 if there are none.
  double largest(Index first, Index count) const noexcept;
  double top(const FastRow&) const noexcept;
  // The key of the first of the largest entries of the line of a row; -1: bounds do not show it.
  Index top_key(const FastRow&) const noexcept;
  // The smallest entry of the line of a row.
  double lowest(const FastRow& r) const noexcept { return top_of(r).lowest; }
  // Of the terms that are curves, in their order.
  std::span<const DistanceCurve> curves() const noexcept { return curves_; }
  // The only term, if it is a curve; else null.
  const DistanceCurve* curve() const noexcept {
    return curve_is_alone_ && !classes_.is_wide() ? curves_.data() : nullptr;
  }
  // Of a product whose numbers are read pair by pair.
  const PairRows& pair_rows(const Term& t) const noexcept { return pair_rows_[number_of(t)]; }
  // to[j - keys.begin] += start of key j.
  void add(const FastRow&, Run keys, double* to) const noexcept;

  // Whether a term is a number by distance, class or token; others are no part of this.
  static bool takes(const Term&) noexcept;
  // Whether it is one that adds something.
  static bool adds(const Term&) noexcept;

 private:
  bool is_added(const Term& t) const noexcept { return adds(t) && !classes_.has(number_of(t)); }
  std::size_t number_of(const Term& t) const noexcept {
    return static_cast<std::size_t>(&t - call_.args.terms.data());
  }
  void find_terms(const LoweredCall&, CallArena&);
  bool find_axis(Index& batches) noexcept;
  std::optional<WholeDistances> distances() const noexcept;
  // False: the terms that are added are neither lines nor pictures. one: nor one picture.
  bool make_lines(const LoweredCall&, bool one, CallArena&);
  // first: of all terms, the numbers before it are not read.
  void add_constant(const Term&, bool first) noexcept;
  void add_band(const Term&, const Band&, bool first) noexcept;
  void finish_lines() noexcept;
  void find_largest() noexcept;
  void make_curves(CallArena&);
  void make_pair_rows(CallArena&);
  void make_pictures(bool one, CallArena&);
  bool are_decays() const noexcept;
  void make_decays(CallArena&);
  void make_room(bool cleared, CallArena&);

  const ReadyCall& call_;
  bool none_ = true, wide_ = false, finite_ = true, steep_ = false, by_key_ = false;
  // [B|1][H][distances], entry n of the distance high_ - n, with room for whole vectors on both sides.
  ClassNumbers classes_;
  Pictures pictures_;
  std::span<double> wide_lines_;
  std::span<float> lines_;
  std::span<const DistanceCurve> curves_;
  std::span<const PairRows> pair_rows_;  // by term
  bool curve_is_alone_ = false;
  // Of every kSome entries of wide_lines_, then of every two of those, and so on.
  std::span<double> largest_;
  struct Top {
    Index entry;
    double number, lowest;
  };
  std::span<Top> tops_;  // [B|1][H]: the first of the largest entries, and the smallest number
  const Top& top_of(const FastRow& r) const noexcept {
    return tops_[static_cast<std::size_t>((line_batches_ == 1 ? 0 : r.b) * call_.H + r.h)];
  }
  Index line_size_ = 0, high_ = 0, line_batches_ = 1;
  std::int32_t axis_ =
      kNoAxis;  // of the distance; none: all rows read the line from its first entry on
};

}  // namespace posenc::v0::detail
