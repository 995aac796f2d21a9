// SPDX-License-Identifier: Apache-2.0
// Queries and keys in classes that some terms do not tell apart: tokens of a picture in one row or column (SAM), or of one
// segment. A query then has one number for each class of keys. Neighbouring keys of one class, or of classes that count
// up by one, are runs, which kernels read as slices.
#pragma once
#include <span>

#include "attention/call/ready_call.h"
#include "kernels/attention/fast_reads.h"

namespace posenc::inline v0::detail {

// Entries before and behind a line: room for whole vectors and blocks of keys.
inline constexpr Index kLineMargin = 256;

// A row of queries keeps a number, and backward a sum, of each class of keys.
inline constexpr std::size_t kMostTokenClasses = 128;
// Keys of a run, at least on average; where they are less, keys are read by index.
inline constexpr Index kShortRun = 4;
// Terms that one RowClasses is of, at most.
inline constexpr std::size_t kMostClassTerms = 16;

class RowClasses {
 public:
  RowClasses() = default;
  // none: the step of pairs that no row of the table has. No classes where queries or keys have many.
  RowClasses(const ReadyCall&, std::span<const PickedRows* const>, Index none, CallArena&);

  bool none() const noexcept { return size_ == 0; }
  // Classes of keys, and those in whole vectors, with one vector more that may be read and written.
  Index size() const noexcept { return size_; }
  Index width() const noexcept { return width_; }
  Index query_classes() const noexcept { return query_classes_; }
  Index query_class(Index b, Index i) const noexcept {
    return query_class_[static_cast<std::size_t>((query_rows_ == 1 ? 0 : b) * queries_ + i)];
  }
  // The row of the table of a term for each class of keys; width() numbers.
  const std::int32_t* picks(Index term, Index query_class) const noexcept {
    return picks_.data() + (term * query_classes_ + query_class) * width_;
  }
  const std::int32_t* picks_of(Index b, Index i) const noexcept {
    return picks(0, query_class(b, i));
  }
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
  Index find(const ReadyCall&, std::span<const PickedRows* const>, bool of_queries,
             std::span<std::int32_t> to, std::span<Sample> samples) noexcept;
  void find_picks(const ReadyCall&, const PickedRows&, std::span<const Sample> queries,
                  std::span<const Sample> keys, std::int32_t* to) noexcept;
  void find_runs(CallArena&);

  Index query_classes_ = 0, size_ = 0, width_ = 0, queries_ = 0, keys_ = 0, query_rows_ = 1,
        key_rows_ = 1;
  std::span<std::int32_t> query_class_, key_class_;  // [rows][tokens]
  std::span<std::int32_t> picks_;                    // [terms][classes of queries][width]
  std::span<FastRun> runs_;                          // of all rows of keys
  std::span<Index> first_run_;                       // [rows of keys + 1]
};

}  // namespace posenc::v0::detail
