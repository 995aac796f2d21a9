// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/pair_rows.h"

#include <algorithm>

#include "attention/fast/starts.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Distances beside tokens, at most.
constexpr Index kMostDistances = 16;
// Of pairs without a row: sums of four of them are negative too.
constexpr std::int32_t kNoRow = -(1 << 29);

std::int32_t row_or_none(std::int32_t row) noexcept {
  return row < 0 ? kNoRow : row;
}

}  // namespace

PairRows::PairRows(const ReadyCall& c, const PickedRows& t, bool fill, CallArena& arena) {
  bool fits = t.table.shape[2] < -kNoRow;
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr || !fits) continue;
    const std::optional<WholeDistances> d = whole_distances(c, line.axis);
    fits = d && d->high - d->low <= kMostDistances * (c.Tq + c.Tk);
    if (!fits) break;
    Line& to = lines_[count_++];
    to = {arena.array<std::int32_t>(d->high - d->low + 1), d->low, line.axis};
    for (Index n = 0; fill && n < static_cast<Index>(to.row.size()); ++n)
      to.row[static_cast<std::size_t>(n)] =
          row_or_none(row_of(line, static_cast<double>(d->low + n)));
  }
  if (t.pair.row != nullptr) {
    key_rows_ = t.pair.key_class.shape[0];
    key_class_ = arena.array<std::int32_t>(key_rows_ * c.Tk);
    for (Index n = 0; fill && n < key_rows_ * c.Tk; ++n)
      key_class_[static_cast<std::size_t>(n)] =
          static_cast<std::int32_t>(read_index(t.pair.key_class, n / c.Tk, n % c.Tk));
  }
  filled_ = fits && fill && t.pair.key_classes < -kNoRow;
}

void PairRows::find(const ReadyCall& c, const PickedRows& t, const FastRow& r, Run keys,
                    std::int32_t* to) const noexcept {
  const Index count = keys.end - keys.begin;
  if (!filled_) {
    for (Index j = 0; j < count; ++j)
      to[j] = static_cast<std::int32_t>(picked_row(c, t, r, keys.begin + j));
    return;
  }
  if (t.pair.row == nullptr) {
    std::fill_n(to, count, 0);
  } else {
    const std::int32_t* row =
        t.pair.row + read_index(t.pair.query_class, r.b, r.i) * t.pair.key_classes;
    const std::int32_t* key =
        key_class_.data() + (key_rows_ == 1 ? 0 : r.place.row) * c.Tk + keys.begin;
    for (Index j = 0; j < count; ++j) to[j] = row_or_none(row[key[j]]);
  }
  for (const Line& line : std::span(lines_).first(count_)) {
    const AxisView& axis = c.axes[static_cast<std::size_t>(line.axis)];
    const Index* key = axis.key_whole.data() + axis.key_at(r.place.row, keys.begin);
    const Index query = axis.query_whole[axis.query_at(r.b, r.i)] - line.low;
    const std::int32_t* row = line.row.data();
    for (Index j = 0; j < count; ++j) to[j] += row[query - key[j]];
  }
}

void add_numbers(const ReadyCall& c, const ProductTerm& t, const PairRows& rows, const FastRow& r,
                 Run keys, double* to) noexcept {
  constexpr Index kSome = 256;
  std::array<std::int32_t, kSome> row;
  const ConstTensorView& table = t.table;
  const Index slab = slab_of(table, r.b, r.h, c.H), groups = table.shape[1];
  const Index first = slab / groups * table.stride[0] + slab % groups * table.stride[1];
  const double factor = kLog2E * t.scale;
  for (Run some = keys; some.begin < keys.end; some.begin = some.end) {
    some.end = std::min(keys.end, some.begin + kSome);
    rows.find(c, t, r, some, row.data());
    double* x = to + (some.begin - keys.begin);
    for (Index j = 0; j < some.end - some.begin; ++j)
      if (const Index at = row[static_cast<std::size_t>(j)]; at >= 0)
        x[j] += factor * float_element(table.data, table.dtype, first + at * table.stride[2]);
  }
}

}  // namespace posenc::v0::detail
