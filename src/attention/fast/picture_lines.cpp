// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/picture_lines.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"

namespace posenc::inline v0::detail {

PictureLines::PictureLines(const ReadyCall& c, std::span<const std::size_t> terms,
                           CallArena& arena) {
  for (const std::size_t n : terms)
    if (!take_axes(c.args.terms[n])) return;
  find(c, arena);
}

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
  if (t == nullptr || (t->pair.row != nullptr && pairs_ == paired_.size())) return false;
  if (t->pair.row != nullptr) paired_[pairs_++] = t;
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
  const Index most = most_entries(c) / width + 1;
  width_ = width, size_ = width * height;
  if (height > most || !find_variants(c, most / height, arena)) return;
  entries_ = variants_ * size_;
  keys_ = c.Tk;
  find_runs(c, arena);
}

bool PictureLines::find_variants(const ReadyCall& c, Index most, CallArena& arena) {
  if (pairs_ == 0) return true;
  std::array<PickedRows, kMostClassTerms> pairs;  // without lines
  std::array<const PickedRows*, kMostClassTerms> terms;
  for (std::size_t n = 0; n < pairs_; ++n) pairs[n].pair = paired_[n]->pair, terms[n] = &pairs[n];
  classes_ = RowClasses(c, std::span(terms).first(pairs_), -1, arena);
  if (classes_.none()) return false;
  first_ = arena.objects<Index>(classes_.query_classes() * classes_.width());
  selected_ = arena.objects<std::int32_t>(most * static_cast<Index>(pairs_));
  variants_ = 0;
  for (Index q = 0; q < classes_.query_classes(); ++q)
    for (Index k = 0; k < classes_.size(); ++k) {
      const auto row = [&](std::size_t n) { return classes_.picks(static_cast<Index>(n), q)[k]; };
      const auto of = [&](Index variant) {
        return selected_.begin() + variant * static_cast<Index>(pairs_);
      };
      const auto is_other = [&](Index variant) {
        for (std::size_t n = 0; n < pairs_; ++n)
          if (of(variant)[static_cast<Index>(n)] != row(n)) return true;
        return false;
      };
      Index variant = 0;
      while (variant < variants_ && is_other(variant)) ++variant;
      if (variant == variants_) {
        if (variant == most) return false;
        for (std::size_t n = 0; n < pairs_; ++n) of(variant)[static_cast<Index>(n)] = row(n);
        ++variants_;
      }
      first_[static_cast<std::size_t>(q * classes_.width() + k)] = variant * size_;
    }
  return true;
}

Index PictureLines::row_of_variant(const Term& term, Index variant) const noexcept {
  const auto end = paired_.begin() + pairs_;
  const auto at = std::find(paired_.begin(), end, picked_rows(term));
  return at == end ? 0
                   : selected_[static_cast<std::size_t>(variant) * pairs_ +
                               static_cast<std::size_t>(at - paired_.begin())];
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
  const bool by_class = !classes_.none();
  for (std::size_t n = 0; n < pairs_; ++n)
    key_rows_ = std::max(key_rows_, paired_[n]->pair.key_class.shape[0]);
  first_run_ = arena.objects<Index>(key_rows_ + 1);
  const auto each_run = [&](Index row, const auto& fn) {
    for (Index j = 0; j < c.Tk;) {
      const Index first = j, from = code(c, row, j);
      const auto continues = [&] {
        return code(c, row, j) == from + (j - first) &&
               (!by_class || classes_.key_classes(row)[j] == classes_.key_classes(row)[first]);
      };
      while (j < c.Tk && continues()) ++j;
      fn(first, j, from);
    }
  };
  Index count = 0;
  for (Index row = 0; row < key_rows_; ++row) {
    first_run_[static_cast<std::size_t>(row)] = count;
    each_run(row, [&](Index, Index, Index) { ++count; });
  }
  first_run_.back() = count;
  if (count * kShortRun > key_rows_ * c.Tk && count > key_rows_) return find_codes(c, arena);
  runs_ = arena.objects<FastRun>(count);
  auto run = runs_.begin();
  for (Index row = 0; row < key_rows_; ++row)
    each_run(row, [&](Index first, Index end, Index from) {
      *run++ = {first, end - first, from, true};
    });
}

void PictureLines::find_codes(const ReadyCall& c, CallArena& arena) {
  const Index classes = classes_.none() ? 1 : classes_.query_classes();
  codes_ = arena.array<std::int32_t>(classes * key_rows_ * keys_ + kLineMargin);
  if (arena.counts()) return;
  auto to = codes_.begin();
  for (Index of = 0; of < classes; ++of)
    for (Index row = 0; row < key_rows_; ++row)
      for (Index j = 0; j < keys_; ++j) {
        const Index variant = classes_.none()
                                  ? 0
                                  : first_[static_cast<std::size_t>(of * classes_.width() +
                                                                    classes_.key_classes(row)[j])];
        *to++ = static_cast<std::int32_t>(code(c, row, j) + variant);
      }
  std::fill(to, codes_.end(), *codes_.begin());
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
  for (Index variant = 0; variant < variants_; ++variant) {
    const Index of_classes = row_of_variant(term, variant);
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
        Index of_table = of_classes;
        for (const IndexLine& line : product->lines) {
          if (line.row == nullptr || of_table < 0) continue;
          const std::int32_t one = row_of(line, delta(line.axis));
          of_table = one < 0 ? -1 : of_table + one;
        }
        if (of_table >= 0) fn(entry, of_table, 1.0);
      }
  }
}

void PictureLines::find_rows(const Term& term, std::int32_t* to) const noexcept {
  std::fill_n(to, entries_, -1);
  each_entry(term,
             [&](Index entry, Index row, double) { to[entry] = static_cast<std::int32_t>(row); });
}

void PictureLines::add(const Term& term, const std::int32_t* rows, Index slab, double factor,
                       double* to) const noexcept {
  const ConstTensorView& table = term_arrays(term).table;
  const Index batch = slab / table.shape[1], group = slab % table.shape[1];
  if (std::holds_alternative<LinearTerm>(term))
    return each_entry(term, [&](Index entry, Index row, double by) {
      to[entry] += factor * by * read_number(table, batch, group, 0, row);
    });
  const Index first = batch * table.stride[0] + group * table.stride[1];
  for (Index entry = 0; entry < entries_; ++entry)
    if (rows[entry] >= 0)
      to[entry] +=
          factor * float_element(table.data, table.dtype, first + rows[entry] * table.stride[2]);
}

void PictureLines::pull(const Term& term, double factor, const double* d,
                        double* rows) const noexcept {
  each_entry(term, [&](Index entry, Index row, double by) { rows[row] += factor * by * d[entry]; });
}

}  // namespace posenc::v0::detail
