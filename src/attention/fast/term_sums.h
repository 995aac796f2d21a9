// SPDX-License-Identifier: Apache-2.0
// Gradients of what is added to the scores, from the gradients of the scores of a tile.
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

// Gradients of the scores of some rows of one head, and a block of keys.
struct ScoreSlopes {
  const FastRow* row;  // [rows]
  const float* s;      // [rows][stride]; 0 where a pair is hidden
  Index rows, stride;
  Run keys;
  Index slice;                 // of the keys
  float* diagonals;            // memory of Diagonals
  FastRun* runs;               // of RowClasses::clip
  std::int32_t* rows_of_keys;  // of PairRows::find
};

// What pieces share has an array for each part of the pieces; the parts are added in their order.
class FastTermSums {
 public:
  // most_parts: that other sums of the call allow.
  FastTermSums(const FastCall&, const FastTileKernels&, const AttentionGradients&, Index pieces,
               Index slices, Index most_parts, CallArena&);

  // Pieces [first_of(part), first_of(part + 1)) are done one after the other.
  Index parts() const noexcept { return parts_; }
  Index first_of(Index part) const noexcept { return pieces_ * part / parts_; }
  // Whether anything is summed.
  bool none() const noexcept {
    return !lines_.is_wanted() && !classes_.is_wanted() && pairs_ == 0 && gradients_.bias.empty();
  }
  // Whether tiles must be 0 behind their keys: sums of diagonals read them.
  bool reads_diagonals() const noexcept { return lines_.is_wanted(); }
  void add(const ScoreSlopes&, Index part) noexcept;
  // To the caller's gradients.
  void finish() noexcept;

 private:
  // Of one term, where it is wanted.
  struct Wanted {
    Index table = 0, at = 0;  // numbers of its table, and where they begin in an array of a part
    bool by_pair = false;     // neither a line nor by classes
    bool query = false, key = false;  // of a DecayTerm
    Index tokens = 0;                 // which of the arrays by token
  };
  // Sums of the lines of Starts, or of its numbers by classes: head by head, of all heads or those of a piece.
  struct HeadSums {
    Index of_head = 0;  // numbers; 0: not wanted
    Index batches = 1;
    Index size = 0;                // of a part
    std::span<double> parts, all;  // all: of all heads, with by_group_
    bool is_wanted() const noexcept { return of_head > 0; }
  };
  void want_terms(CallArena&);
  void share_parts(bool owned, Index most_parts) noexcept;
  void add_line(const ScoreSlopes&, double* to) noexcept;
  void add_classes(const ScoreSlopes&, double* to) noexcept;
  void add_table(const Term&, const ScoreSlopes&, double* to) noexcept;
  void add_pairs(const ScoreSlopes&, double* to) noexcept;
  void add_bias(const ScoreSlopes&) noexcept;
  void add_decay(const DecayTerm&, const Wanted&, const ScoreSlopes&, Index n) noexcept;
  void finish_decay(const DecayTerm&, const Wanted&, const TermGradient&) noexcept;
  double* part(Index n) noexcept { return sums_.data() + n * size_; }
  // Where the array of a part begins in that of all heads: with `by_group_` it has those of its piece's heads.
  Index first_entry(const HeadSums&, Index part) const noexcept;
  // The array of a part, as one of all heads.
  double* part_of(const HeadSums& x, Index n) const noexcept {
    return x.parts.data() + n * x.size - first_entry(x, n);
  }
  std::span<double> add_parts(const HeadSums&) noexcept;
  double* of_queries(const Wanted& w, Index slice) noexcept;
  double* of_keys(const Wanted& w) noexcept;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  const AttentionGradients& gradients_;
  std::span<Wanted> wanted_;
  bool by_group_ = false;
  HeadSums lines_, classes_;
  Index pairs_ = 0;  // terms whose pairs are visited
  Index pieces_, slices_, parts_ = 1, size_ = 0, largest_ = 0, decays_ = 0;
  std::span<double> sums_, table_;    // sums_: of tables pair by pair
  std::span<double> queries_, keys_;  // of DecayTerms: [terms][slices][B][H][Tq], [terms][B][H][Tk]
};

}  // namespace posenc::v0::detail
