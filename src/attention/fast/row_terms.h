// SPDX-License-Identifier: Apache-2.0
// Terms whose number for a pair is a vector of the query, or of the key, times a row of a table: Shaw's keys,
// Transformer-XL, DeBERTa. What does not change during a call: which row a pair reads, and the rows in float.
#pragma once
#include <span>

#include "attention/fast/row_classes.h"
#include "attention/fast/row_steps.h"
#include "attention/fast/starts.h"
#include "kernels/attention/fast_reads.h"
#include "kernels/attention/fast_strips.h"
#include "posenc/core/executor.h"

namespace posenc::inline v0::detail {

struct RowTerm : RowSteps {
  const ProductTerm* term = nullptr;
  std::size_t number = 0;  // of the terms of the call
  bool of_keys = false;
  Index channels = 0;

  // Of queries, not by a line.
  RowClasses classes;
  // Neither by a line nor by classes.
  PairRows pairs;

  // Each row is read once or twice a call, as doubles: decode_rows.h converts those that it needs, and `table` is empty.
  bool in_place = false;
  // [slab of the table], by panels of steps: [panels][channels][panel]; of keys: [steps][channels] and rows of a strip.
  std::span<const float> table;
  Index slab_size = 0;
  std::span<const std::uint8_t> bounded;  // [slab]: float holds its numbers
  std::span<const float>
      keys;  // vectors of keys that the term comes with: [batch][tokens][heads][channels]
  bool holds_numbers =
      false;  // its steps are distances, and its products begin with the lines of Starts

  Index slab(Index b, Index h, Index heads) const noexcept {
    return slab_of(term->table, b, h, heads);
  }
  const float* table_of(Index slab) const noexcept { return table.data() + slab * slab_size; }
  // Whether the vectors are the call's q or k.
  bool is_content() const noexcept { return of_keys ? term->key.content : term->query.content; }
  // Of keys that the term comes with.
  const float* own_key(Index row, Index j, Index h, Index heads) const noexcept {
    const ConstHeads& x = term->key.given;
    const Index token = (x.batch == 1 ? 0 : row) * x.tokens + (x.tokens == 1 ? 0 : j);
    return keys.data() + (token * x.heads + Grouping{heads, x.heads}.of(h)) * x.dim;
  }
};

class RowTerms {
 public:
  // few_queries: the call reads keys as they lie (has_few_rows), forward.
  RowTerms(const ReadyCall&, const Starts&, const FastKernels&, bool few_queries, CallArena&,
           const Executor&);

  // Whether a term is one of these; whether it is computed here.
  static bool has(const Term&) noexcept;
  static std::string_view why_not(const ReadyCall&, const Term&) noexcept;

  bool none() const noexcept { return all_.empty(); }
  std::span<const RowTerm> all() const noexcept { return all_; }
  // Whether float holds all tables.
  bool are_bounded() const noexcept;
  // Whether float holds the vectors of a key that terms come with, for all heads.
  bool is_key_bounded(Index row, Index j) const noexcept;
  // One of them adds the numbers of the lines of Starts.
  bool hold_numbers() const noexcept;

 private:
  bool reads_in_place(const RowTerm&) const noexcept;
  void pack_table(RowTerm&, const FastKernels&, CallArena&, const Executor&);

  const ReadyCall& call_;
  std::span<RowTerm> all_;
};

}  // namespace posenc::v0::detail
