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
  if (rows == nullptr || rows->pair.row != nullptr) return {};
  const IndexLine* only = nullptr;
  for (const IndexLine& line : rows->lines) {
    if (line.row == nullptr) continue;
    if (only != nullptr) return {};
    only = &line;
  }
  if (only == nullptr) return {};
  return BandSource{nullptr, only, only->axis};
}

Band::Band(const Term& t, const BandSource& source, Index first, Index last)
    : low(first),
      high(last),
      rows_of_(source.line == nullptr ? nullptr : source.line->row),
      table_of_(term_arrays(t).table.data) {
  if (source.linear != nullptr) {
    const ConstTensorView& table = source.linear->table;
    const double scale = source.linear->scale;
    for (Index n = 0; n < size(); ++n) {
      const auto delta = static_cast<double>(high - n);
      positive_distance.push_back(std::max(delta, 0.0));
      negative_distance.push_back(std::max(-delta, 0.0));
    }
    for (Index slab = 0; slab < slabs_of(table); ++slab) {
      const double past = table_number(table, slab, 0, 0), future = table_number(table, slab, 0, 1);
      for (Index n = 0; n < size(); ++n) {
        const auto delta = static_cast<double>(high - n);
        values.push_back(scale * (delta > 0 ? past * delta : future * -delta));
      }
    }
    return;
  }
  for (Index n = 0; n < size(); ++n)
    rows.push_back(row_of(*source.line, static_cast<double>(high - n)));
  if (!is_number_only(t)) return;
  const auto& product = std::get<ProductTerm>(t);
  for (Index slab = 0; slab < slabs_of(product.table); ++slab)
    for (const std::int32_t row : rows)
      values.push_back(row < 0 ? 0 : product.scale * table_number(product.table, slab, row, 0));
}

bool Band::is_of(const Term& t, const BandSource& source) const noexcept {
  return rows_of_ == (source.line == nullptr ? nullptr : source.line->row) &&
         table_of_ == term_arrays(t).table.data;
}

std::unique_ptr<const Band> lowered_band(const Term& t, std::span<const DistanceRange> ranges) {
  const std::optional<BandSource> source = band_source(t);
  if (!source || source->axis < 0 || static_cast<std::size_t>(source->axis) >= ranges.size())
    return nullptr;
  const DistanceRange& r = ranges[static_cast<std::size_t>(source->axis)];
  const ConstTensorView table = term_arrays(t).table;
  Index span = 0;
  if (!r.runs.empty() || table.rank != 4 || __builtin_sub_overflow(r.max, r.min, &span) ||
      span >= kMostKept / std::max<Index>(1, slabs_of(table)))
    return nullptr;
  return std::make_unique<const Band>(t, *source, r.min, r.max);
}

}  // namespace posenc::v0::detail
