// SPDX-License-Identifier: Apache-2.0
// Where cosines and sines stand in a row that holds both.
#pragma once
#include "posenc/core/rotation.h"

namespace posenc::inline v0::detail {

// The cosine of value m at column step * m, its sine `sine` columns on; each once more at + copy,
// unless that is 0. `columns`: of all values.
struct RowLayout {
  Index step = 1, sine = 0, copy = 0, columns = 0;
};

// Of `values` cosines and as many sines.
constexpr RowLayout row_layout(TableLayout layout, Index values) noexcept {
  switch (layout) {
    case TableLayout::duplicated:
      return {1, 2 * values, values, 4 * values};
    case TableLayout::repeated:
      return {2, 2 * values, 1, 4 * values};
    case TableLayout::pairs:
      return {2, 1, 0, 2 * values};
    default:
      return {1, values, 0, 2 * values};
  }
}

}  // namespace posenc::v0::detail
