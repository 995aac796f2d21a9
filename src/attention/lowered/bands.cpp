// SPDX-License-Identifier: Apache-2.0
#include "attention/lowered/bands.h"

#include <algorithm>

#include "attention/call/grouping.h"

namespace posenc::inline v0::detail {
namespace {

// Numbers of a band that a plan keeps: 8 MiB.
constexpr Index kMostKept = Index{1} << 20;

Index slabs_of(const ConstTensorView& table) {
  return table.shape[0] * table.shape[1];
}
// Entry of the table by its slab.
double table_number(const ConstTensorView& table, Index slab, Index row, Index channel) {
  return read_number(table, slab / table.shape[1], slab % table.shape[1], row, channel);
}

bool is_number_only(const Term& t) {
  const auto* product = std::get_if<ProductTerm>(&t);
  return product != nullptr && !product->query.present() && !product->key.present() &&
         product->table.rank == 4 && product->table.shape[3] == 1;
}

}  // namespace

std::optional<BandSource> band_source(const Term& t) noexcept {
  if (const auto* linear = std::get_if<LinearTerm>(&t))
    return BandSource{linear, nullptr, linear->axis};
  const PickedRows* rows = picked_rows(t);
  return rows == nullptr ? std::nullopt : band_source(*rows);
}

std::optional<BandSource> band_source(const PickedRows& rows) noexcept {
  if (rows.pair.row != nullptr) return {};
  const IndexLine* only = nullptr;
  for (const IndexLine& line : rows.lines) {
    if (line.row == nullptr) continue;
    if (only != nullptr) return {};
    only = &line;
  }
  if (only == nullptr) return {};
  return BandSource{nullptr, only, only->axis};
}

Band::Band(const Term& t, const BandSource& source, Index first, Index last, CallArena& arena)
    : low(first),
      high(last),
      rows_of_(source.line == nullptr ? nullptr : source.line->row),
      table_of_(term_arrays(t).table.data) {
  if (source.linear != nullptr)
    make_slopes(*source.linear, arena);
  else if (source.line != nullptr)
    make_rows(t, *source.line, arena);
}

void Band::make_slopes(const LinearTerm& t, CallArena& arena) {
  const std::span<double> all = arena.array<double>(slabs_of(t.table) * size());
  const std::span<double> positive = arena.array<double>(size());
  const std::span<double> negative = arena.array<double>(size());
  values = all, positive_distance = positive, negative_distance = negative;
  if (arena.counts()) return;
  for (std::size_t n = 0; n < positive.size(); ++n) {
    const auto delta = static_cast<double>(high - static_cast<Index>(n));
    positive[n] = std::max(delta, 0.0);
    negative[n] = std::max(-delta, 0.0);
  }
  double* to = all.data();
  for (Index slab = 0; slab < slabs_of(t.table); ++slab) {
    const double past = table_number(t.table, slab, 0, 0);
    const double future = table_number(t.table, slab, 0, 1);
    for (Index n = 0; n < size(); ++n) {
      const auto delta = static_cast<double>(high - n);
      *to++ = t.scale * (delta > 0 ? past * delta : future * -delta);
    }
  }
}

void Band::make_rows(const Term& t, const IndexLine& line, CallArena& arena) {
  const std::span<std::int32_t> of_line = arena.array<std::int32_t>(size());
  rows = of_line;
  const auto* product = is_number_only(t) ? &std::get<ProductTerm>(t) : nullptr;
  const Index slabs = product == nullptr ? 0 : slabs_of(product->table);
  const std::span<double> all = arena.array<double>(slabs * size());
  values = all;
  // Many distances read one row: its number is read once. Tables of more rows than distances are read row by row.
  const bool once = product != nullptr && product->table.shape[2] <= size();
  const std::span<double> numbers = arena.array<double>(once ? product->table.shape[2] : 0);
  if (arena.counts()) return;
  for (std::size_t n = 0; n < of_line.size(); ++n)
    of_line[n] = row_of(line, static_cast<double>(high - static_cast<Index>(n)));
  double* to = all.data();
  for (Index slab = 0; slab < slabs; ++slab) {
    const auto number = [&](Index row) {
      return product->scale * table_number(product->table, slab, row, 0);
    };
    for (std::size_t n = 0; n < numbers.size(); ++n) numbers[n] = number(static_cast<Index>(n));
    for (const std::int32_t row : rows)
      *to++ = row < 0 ? 0 : once ? numbers[static_cast<std::size_t>(row)] : number(row);
  }
}

bool Band::is_of(const Term& t, const BandSource& source) const noexcept {
  return rows_of_ == (source.line == nullptr ? nullptr : source.line->row) &&
         table_of_ == term_arrays(t).table.data;
}

const Band* lowered_band(const Term& t, std::span<const DistanceRange> ranges, CallArena& arena) {
  const std::optional<BandSource> source = band_source(t);
  if (!source || source->axis < 0 || static_cast<std::size_t>(source->axis) >= ranges.size())
    return nullptr;
  const DistanceRange& r = ranges[static_cast<std::size_t>(source->axis)];
  const ConstTensorView table = term_arrays(t).table;
  Index span = 0;
  if (!r.runs.empty() || table.rank != 4 || __builtin_sub_overflow(r.max, r.min, &span) ||
      span >= kMostKept / std::max<Index>(1, slabs_of(table)))
    return nullptr;
  return arena.made<Band>(1, [&](Index) { return Band(t, *source, r.min, r.max, arena); }).data();
}

}  // namespace posenc::v0::detail
