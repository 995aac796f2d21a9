// SPDX-License-Identifier: Apache-2.0
// What schemes of images share: rows by the offset of two places on a grid, and class tokens, which
// are on no grid.
#pragma once
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// Row of an offset (dy, dx): (dy + height - 1) (2 width - 1) + dx + width - 1, reversed: of
// (-dy, -dx); absolute: |dy| width + |dx|. Offsets beyond the window count as its longest ones.
struct WindowRows {
  Index height = 1, width = 1;
  bool reversed = false, absolute = false;

  Index rows() const noexcept {
    return absolute ? height * width : (2 * height - 1) * (2 * width - 1);
  }
  // Throws [who]: height or width outside 1 .. 4096.
  void check(std::string_view who) const;
  // The lines of axis 0 (y) and axis 1 (x).
  void add_lines(std::string_view who, PickedRows&, TermStore&) const;
};

// How a table of numbers is kept: [rows, heads] or [heads, rows], and as the terms read it, by head.
std::vector<double> window_by_head(std::vector<double>, bool heads_first, Index heads, Index rows);
std::vector<double> window_from_heads(std::vector<double>, bool heads_first, Index heads,
                                      Index rows);

// query_class and key_class, integers: 0 a patch, 1 a class token.
std::vector<Input> class_inputs();
void bind_classes(std::string_view who, const CallData&, std::span<Term>);
// The pair that keeps a term to patches.
IndexPair patches_alone(TermStore&);

}  // namespace posenc::v0::detail
