// SPDX-License-Identifier: Apache-2.0
// The rows of a table that pairs read, where they are looked for pair by pair: several distances, classes, an index matrix.
#pragma once
#include <array>
#include <span>

#include "attention/call/ready_call.h"
#include "attention/fast/fast_row.h"

namespace posenc::inline v0::detail {

class PairRows {
 public:
  PairRows() = default;
  // fill: else nothing is prepared, and rows are found from the term itself.
  PairRows(const ReadyCall&, const PickedRows&, bool fill, CallArena&);

  // to[j - keys.begin]: the row that a query and key j read; negative: none.
  void find(const ReadyCall&, const PickedRows&, const FastRow&, Run keys,
            std::int32_t* to) const noexcept;

 private:
  struct Line {
    std::span<std::int32_t> row;  // by distance, from `low` on
    Index low = 0;
    std::int32_t axis = 0;
  };
  bool filled_ = false;
  std::size_t count_ = 0;
  std::array<Line, 3> lines_;
  std::span<std::int32_t> key_class_;  // [rows of keys][Tk]
  Index key_rows_ = 1;
};

// to[j - keys.begin] += number of key j, times log2(e)
void add_numbers(const ReadyCall&, const ProductTerm&, const PairRows&, const FastRow&, Run keys,
                 double* to) noexcept;

}  // namespace posenc::v0::detail
