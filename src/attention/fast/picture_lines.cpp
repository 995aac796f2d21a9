// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/picture_lines.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Distances beside tokens, at most.
constexpr Index kMostOfTokens = 8;

}  // namespace

bool PictureLines::take_axis(std::int32_t axis) noexcept {
  for (std::int32_t& own : axis_) {
    if (own == axis) return true;
    if (own != kNone) continue;
    own = axis;
    return true;
  }
  return false;
}

bool PictureLines::take_axes(const Term& term) noexcept {
  if (const auto* linear = std::get_if<LinearTerm>(&term)) return take_axis(linear->axis);
  const auto* t = std::get_if<ProductTerm>(&term);
  if (t == nullptr || t->pair.row != nullptr) return false;
  return std::ranges::all_of(
      t->lines, [&](const IndexLine& line) { return line.row == nullptr || take_axis(line.axis); });
}

void PictureLines::find(const ReadyCall& c, CallArena& arena) {
  if (axis_[0] == kNone) return;
  // In a row of keys the second axis counts up. Of one axis there is one row.
  if (axis_[1] == kNone || axis_[0] > axis_[1]) std::swap(axis_[0], axis_[1]);
  const std::optional<WholeDistances> columns = whole_distances(c, axis_[1]),
                                      rows = axis_[0] == kNone ? WholeDistances{}
                                                               : whole_distances(c, axis_[0]);
  if (!columns || !rows) return;
  rows_ = *rows, columns_ = *columns;
  const Index width = columns_.high - columns_.low + 1, height = rows_.high - rows_.low + 1;
  if (height > kMostOfTokens * (c.Tq + c.Tk) / width + 1) return;
  width_ = width, entries_ = width * height;
  find_runs(c, arena);
}

Index PictureLines::code(const ReadyCall& c, Index row, Index j) const noexcept {
  const auto at = [&](std::int32_t axis) {
    const AxisView& a = c.axes[static_cast<std::size_t>(axis)];
    return a.key_whole[a.key_at(row, j)] - a.key_whole[0];
  };
  return at(axis_[1]) - (axis_[0] == kNone ? 0 : width_ * at(axis_[0]));
}

Index PictureLines::entry_of(const ReadyCall& c, Index b, Index i) const noexcept {
  const auto at = [&](std::int32_t axis) {
    const AxisView& a = c.axes[static_cast<std::size_t>(axis)];
    return a.query_whole[a.query_at(b, i)] - a.key_whole[0];
  };
  return columns_.high - at(axis_[1]) +
         (axis_[0] == kNone ? 0 : (at(axis_[0]) - rows_.low) * width_);
}

void PictureLines::find_runs(const ReadyCall& c, CallArena& arena) {
  for (const std::int32_t axis : axis_)
    if (axis != kNone)
      key_rows_ = std::max(key_rows_, c.axes[static_cast<std::size_t>(axis)].key_rows);
  first_run_ = arena.objects<Index>(key_rows_ + 1);
  const auto each_run = [&](Index row, const auto& fn) {
    for (Index j = 0; j < c.Tk;) {
      const Index first = j, from = code(c, row, j);
      while (j < c.Tk && code(c, row, j) == from + (j - first)) ++j;
      fn(first, j, from);
    }
  };
  Index count = 0;
  for (Index row = 0; row < key_rows_; ++row) {
    first_run_[static_cast<std::size_t>(row)] = count;
    each_run(row, [&](Index, Index, Index) { ++count; });
  }
  first_run_.back() = count;
  runs_ = arena.objects<FastRun>(count);
  auto run = runs_.begin();
  for (Index row = 0; row < key_rows_; ++row)
    each_run(row, [&](Index first, Index end, Index from) {
      *run++ = {first, end - first, from, true};
    });
}

std::span<const FastRun> PictureLines::runs(Index row, Run keys) const noexcept {
  const auto of = static_cast<std::size_t>(key_rows_ == 1 ? 0 : row);
  const auto end = runs_.begin() + first_run_[of + 1];
  const auto first =
      std::partition_point(runs_.begin() + first_run_[of], end,
                           [&](const FastRun& x) { return x.at + x.count <= keys.begin; });
  const auto last =
      std::partition_point(first, end, [&](const FastRun& x) { return x.at < keys.end; });
  return {first, last};
}

template <class F>
void PictureLines::each_entry(const Term& term, const F& fn) const noexcept {
  const auto* linear = std::get_if<LinearTerm>(&term);
  const auto* product = std::get_if<ProductTerm>(&term);
  Index entry = 0;
  for (Index row = rows_.low; row <= rows_.high; ++row)
    for (Index column = columns_.high; column >= columns_.low; --column, ++entry) {
      const auto delta = [&](std::int32_t axis) {
        return static_cast<double>(axis == axis_[1] ? column : row);
      };
      if (linear != nullptr) {
        const double d = delta(linear->axis);
        fn(entry, d > 0 ? Index{0} : Index{1}, std::fabs(d));
        continue;
      }
      Index of_table = 0;
      for (const IndexLine& line : product->lines) {
        if (line.row == nullptr || of_table < 0) continue;
        const std::int32_t one = row_of(line, delta(line.axis));
        of_table = one < 0 ? -1 : of_table + one;
      }
      if (of_table >= 0) fn(entry, of_table, 1.0);
    }
}

void PictureLines::add(const Term& term, Index slab, double factor, double* to) const noexcept {
  const ConstTensorView& table = term_arrays(term).table;
  const bool linear = std::holds_alternative<LinearTerm>(term);
  each_entry(term, [&](Index entry, Index row, double by) {
    to[entry] += factor * by *
                 read_number(table, slab / table.shape[1], slab % table.shape[1], linear ? 0 : row,
                             linear ? row : 0);
  });
}

void PictureLines::pull(const Term& term, double factor, const double* d,
                        double* rows) const noexcept {
  each_entry(term, [&](Index entry, Index row, double by) { rows[row] += factor * by * d[entry]; });
}

}  // namespace posenc::v0::detail
