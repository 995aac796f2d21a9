// SPDX-License-Identifier: Apache-2.0
// Queries and keys in classes that a term does not tell apart: tokens of a picture in one row or column (SAM), or of one
// segment. A query then has one number for each class of keys. Neighbouring keys of one class, or of classes that count
// up by one, are runs, which kernels read as slices.
#pragma once
#include <span>

#include "attention/fast/starts.h"
#include "kernels/attention/fast_reads.h"

namespace posenc::inline v0::detail {

class RowClasses {
 public:
  RowClasses() = default;
  // none: the step of pairs that no row of the table has. No classes where queries or keys have many.
  RowClasses(const ReadyCall&, const PickedRows&, Index none, CallArena&);

  bool none() const noexcept { return size_ == 0; }
  // Classes of keys, and those in whole vectors, with one vector more that may be read and written.
  Index size() const noexcept { return size_; }
  Index width() const noexcept { return width_; }
  // The row of the table for each class of keys; width() numbers.
  const std::int32_t* picks(Index b, Index i) const noexcept;
  // The class of key 0 of a row of keys; kLineMargin more may be read behind the last one.
  const std::int32_t* key_classes(Index row) const noexcept;
  // Runs of some keys, counted from the first one; at most so many as keys. Not where they would be short.
  bool has_runs() const noexcept { return !runs_.empty(); }
  Index clip(Index row, Run keys, FastRun* to) const noexcept;

 private:
  // A token that stands for its class.
  struct Sample {
    Index row, token;
  };
  template <class Same>
  static Index find(Index rows, Index tokens, const Same& same, std::span<std::int32_t> to,
                    std::span<Sample> samples) noexcept;
  void find_picks(const ReadyCall&, const PickedRows&, Index none, std::span<const Sample> queries,
                  std::span<const Sample> keys, CallArena&);
  void find_runs(CallArena&);

  Index size_ = 0, width_ = 0, queries_ = 0, keys_ = 0, query_rows_ = 1, key_rows_ = 1;
  std::span<std::int32_t> query_class_, key_class_;  // [rows][tokens]
  std::span<std::int32_t> picks_;                    // [classes of queries][width]
  std::span<FastRun> runs_;                          // of all rows of keys
  std::span<Index> first_run_;                       // [rows of keys + 1]
};

}  // namespace posenc::v0::detail
