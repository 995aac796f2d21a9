// SPDX-License-Identifier: Apache-2.0
// Numbers that a pair reads by the classes of its query and its key alone (row_classes.h): segments, modalities, paragraphs.
//
//   number(i, j) = sum of scale t_r,  r = row of (class of i, class of j)
//
// Queries of one class read the same start values of a block of keys, so these are written once for each class.
#pragma once
#include <span>

#include "attention/fast/row_classes.h"

namespace posenc::inline v0::detail {

class ClassNumbers {
 public:
  ClassNumbers() = default;
  // Of the products that `takes` names (by their number among the terms), as many as have few classes together.
  template <class Takes>
  ClassNumbers(const ReadyCall& c, const Takes& takes, CallArena& arena) {
    const std::span<const Term> terms = c.args.terms;
    std::span<std::size_t> all = arena.objects<std::size_t>(static_cast<Index>(terms.size()));
    std::size_t count = 0;
    for (std::size_t n = 0; n < terms.size(); ++n)
      if (std::holds_alternative<ProductTerm>(terms[n]) && takes(n)) all[count++] = n;
    find(c, all.first(count), arena);
  }

  // No term is one of these.
  bool none() const noexcept { return terms_.empty(); }
  bool has(std::size_t term) const noexcept;
  // Float holds the numbers; else they are found pair by pair, in double.
  bool adds() const noexcept { return !none() && !wide_; }
  bool is_wide() const noexcept { return wide_; }
  const RowClasses& classes() const noexcept { return classes_; }
  // to[j - keys.begin] = the number of key j of row `key_row` of the keys, times log2(e), for queries of a class. `runs`
  // has room for the keys. A vector more may be written behind them.
  void write(const FastReadKernels&, Index slab, Index query_class, Index key_row, Run keys,
             FastRun* runs, float* to) const noexcept;

  // Slabs of numbers: [batches()][H], each [classes of queries][width].
  Index slab(const ReadyCall& c, Index b, Index h) const noexcept {
    return (batches_ == 1 ? 0 : b) * c.H + h;
  }
  Index batches() const noexcept { return batches_; }
  Index slab_size() const noexcept { return classes_.query_classes() * classes_.width(); }
  // table[slab][row] += gradients of all numbers, as term `term` reads its table; in double, dense.
  void pull(const ReadyCall&, std::size_t term, const double* d, double* table) const noexcept;

 private:
  void find(const ReadyCall&, std::span<const std::size_t> terms, CallArena&);
  void fill(const ReadyCall&) noexcept;

  bool wide_ = false;
  Index batches_ = 1;
  std::span<const std::size_t> terms_;
  RowClasses classes_;
  std::span<float> numbers_;  // [slabs][classes of queries][width]
};

// Of one thread: numbers of a block of keys, for classes that were asked for.
struct ClassWork {
  ClassWork() = default;
  ClassWork(const ClassNumbers&, Index rows, Index block_keys, CallArena&);

  // Whose numbers these are.
  struct Block {
    Index b = -1, h = -1, row = -1;
    Run keys{0, 0};
    bool operator==(const Block& x) const noexcept {
      return b == x.b && h == x.h && row == x.row && keys.begin == x.keys.begin &&
             keys.end == x.keys.end;
    }
  } block;
  std::span<std::uint8_t> done;  // [classes of queries]
  std::span<float> numbers;      // [classes of queries][keys of a block]
  std::span<float> starts;       // [rows][keys of a block]: numbers and what a row has besides
  std::span<FastRun> runs;
  Index rows = 0;
  bool other_heads = false;  // are written before the numbers of a row are read
};

}  // namespace posenc::v0::detail
