// SPDX-License-Identifier: Apache-2.0
// Which row of a table a token reads.
#include <cmath>

#include "absolute/names.h"
#include "absolute/rows.h"
#include "core/element.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"

namespace posenc::inline v0 {
namespace {}  // namespace

Index InputRows::table_position(std::int32_t axis, Index b, Index token) const {
  if (positions_.type == DType::f64) {
    const double x = position(axis, b, token);
    if (!(std::fabs(x) <= 0x1p62) || x != std::floor(x))
      refuse(kApplyInput, "a table needs integer positions", x);
    return static_cast<Index>(x);
  }
  return integer_position_at(positions_, axis, positions_.batch == 1 ? 0 : b, token);
}

Index InputRows::table_row(const InputTerm& t, Index b, Index token) const {
  const Index p = table_position(t.axis, b, token), n = t.table.shape[0];
  Index row = p;
  bool fits = t.minus < 0 || !__builtin_sub_overflow(p, table_position(t.minus, b, token), &row);
  row = detail::floor_divide(row, t.divide);
  if (t.wrap > 0) row -= detail::floor_divide(row, t.wrap) * t.wrap;
  fits = fits && !__builtin_add_overflow(row, t.offset, &row);
  if (fits && row >= 0 && row < n) return row;
  if (t.beyond == Beyond::extend && fits && n > 0 && row >= 0 && row / n < n) return row;
  if (t.beyond == Beyond::error || t.beyond == Beyond::extend ||
      (n == 0 && t.beyond == Beyond::clamp))
    refuse(kApplyInput,
           std::string("position ") +
               (t.offset == 0 ? "" : "plus the offset of " + std::to_string(t.offset) + " ") +
               "must have a row in the table of " + std::to_string(n),
           p);
  if (t.beyond == Beyond::zero) return -1;
  return (fits ? row : p) < 0 ? 0 : n - 1;
}

void InputRows::pull_table(const InputTerm& t, Index b, Index token, const std::vector<double>& d,
                           const InputGradient& g) const {
  const Index row = g.table.empty() ? -1 : table_row(t, b, token), n = t.table.shape[0];
  if (row < 0) return;
  const auto add = [&](Index r, double factor) {
    if (t.frozen_row == r) return;
    double* to = static_cast<double*>(g.table.data) + r * g.table.stride[0];
    for (std::size_t c = 0; c < d.size(); ++c)
      to[static_cast<Index>(c) * g.table.stride[1]] += factor * d[c];
  };
  if (row < n) return add(row, 1);
  add(row % n, 1);
  add(row / n, t.extension);
  add(0, -t.extension);
}

}  // namespace posenc::v0
