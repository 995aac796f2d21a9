// SPDX-License-Identifier: Apache-2.0
// Terms by several distances, classes or an index, where no line holds them all (starts.h). One picture (picture_lines.h) holds
// all terms where their distances and classes are few together. Otherwise each has its own, or some do: LayoutLM's order, x and
// y. What is no picture, because its distances are many or no whole numbers, is a table whose rows are found pair by pair.
//
//   number(i, j) = sum_p x_p[entry_p(i) + code_p(j)] + sum_t x_t[row_t(i, j)]
//
// The numbers of a head lie behind each other, those of one picture or table after those of another.
#pragma once
#include <span>

#include "attention/fast/pair_rows.h"
#include "attention/fast/picture_lines.h"

namespace posenc::inline v0::detail {

// Of one thread.
struct PictureWork {
  PictureWork() = default;
  PictureWork(bool wanted, Index block_keys, CallArena&);

  // Runs of the only picture in a block of keys, which are searched once.
  struct BlockRuns {
    Index row = -1;
    Run keys{0, 0};
    std::span<const FastRun> runs;
  } found;
  std::span<std::int32_t> rows;  // [keys of a block]: of a table
  std::span<float> numbers;      // [keys of a block]
};

class Pictures {
 public:
  Pictures() = default;
  // Of terms by their numbers; none where one of them is neither a picture nor a table of few rows, or the numbers of a head
  // are many together. one: one picture of all, or none.
  Pictures(const ReadyCall&, std::span<const std::size_t> terms, bool one, CallArena&);

  bool none() const noexcept { return entries_ == 0; }
  Index entries() const noexcept { return entries_; }  // of a head
  // There is one picture, and its keys lie in runs.
  bool has_runs() const noexcept {
    return parts_.size() == 1 && parts_[0].table == nullptr && parts_[0].lines.has_runs();
  }
  const PictureLines& only() const noexcept { return parts_[0].lines; }

  // to[j - keys.begin] = number of key j, from the numbers of its head. A vector more may be written behind them.
  void write(const ReadyCall&, const FastReadKernels&, const FastRow&, Run keys, const float* head,
             std::int32_t* rows, float* to) const noexcept;
  // The transpose: head[entry] += s[j - keys.begin]
  void add_slopes(const ReadyCall&, const FastRow&, Run keys, const float* s, std::int32_t* rows,
                  double* head) const noexcept;

  // The numbers of a term: head[entry] += factor * number, for each head.
  template <class Heads>
  void add_numbers(const Term& term, CallArena& arena, const Heads& heads) const {
    const Part& p = part_of(term);
    const std::span<std::int32_t> rows = arena.array<std::int32_t>(p.lines.entries());
    if (arena.counts()) return;
    if (p.table == nullptr && std::holds_alternative<ProductTerm>(term))
      p.lines.find_rows(term, rows.data());
    heads([&](Index slab, double factor, double* head) {
      add_numbers(p, term, rows.data(), slab, factor, head + p.first);
    });
  }
  // The transpose: gradients of the numbers of a head to the rows of one slab of the table.
  void pull(const Term&, double factor, const double* head, double* rows) const noexcept;
  // The largest sum of numbers of a head, without their signs.
  double largest(const double* head) const noexcept;

 private:
  struct Part {
    std::span<std::size_t> terms;        // their numbers
    PictureLines lines;                  // none: rows of a table
    const ProductTerm* table = nullptr;  // the only term
    PairRows rows;
    Index first = 0, size = 0;  // of its numbers; of a table, the last is 0: of pairs without a row
  };
  const Part& part_of(const Term&) const noexcept;
  bool add_part(const ReadyCall&, std::size_t term, CallArena&);
  void add_numbers(const Part&, const Term&, const std::int32_t* rows, Index slab, double factor,
                   double* to) const noexcept;

  const ReadyCall* call_ = nullptr;
  std::span<Part> parts_;
  Index entries_ = 0;
};

}  // namespace posenc::v0::detail
