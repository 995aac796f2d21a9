// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_steps.h"

#include <algorithm>
#include <cmath>

#include "attention/lowered/bands.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Rows of a table that pairs pick from: the products with all of them are kept.
constexpr Index kMostPickedRows = 4096;

// Each row of queries counts up by one.
bool queries_count_up(const AxisView& a) noexcept {
  for (Index row = 0; row < a.query_rows; ++row)
    for (Index i = 1; i < a.queries; ++i)
      if (a.query_whole[static_cast<std::size_t>(row * a.queries + i)] !=
          a.query_whole[static_cast<std::size_t>(row * a.queries + i - 1)] + 1)
        return false;
  return true;
}

// The distances of a term whose pairs read neighbouring entries of a line.
std::optional<WholeDistances> line_distances(const ReadyCall& c, const PickedRows& t) noexcept {
  const std::optional<BandSource> source = band_source(t);
  if (!source) return {};
  const std::optional<WholeDistances> d = consecutive_distances(c, source->axis);
  if (!d || !queries_count_up(c.axes[static_cast<std::size_t>(source->axis)])) return {};
  return d;
}

}  // namespace

bool take_table_row(const ConstTensorView& t, Index slab, Index row, double factor, float* to,
                    Index step) noexcept {
  const Index channels = t.shape[3], batch = slab / t.shape[1], group = slab % t.shape[1];
  const auto clear = [&] {
    for (Index c = 0; c < channels; ++c) to[c * step] = 0;
  };
  if (row < 0) {
    clear();
    return true;
  }
  const Index at = batch * t.stride[0] + group * t.stride[1] + row * t.stride[2];
  float largest = 0, nothing = 0;  // nothing: NaN where a number is not finite
  const auto take = [&](const auto& number) {
    for (Index c = 0; c < channels; ++c) {
      const auto x = static_cast<float>(factor * static_cast<double>(number(at + c * t.stride[3])));
      largest = std::max(largest, std::fabs(x)), nothing += x - x;
      to[c * step] = x;
    }
  };
  if (t.dtype == DType::f64)
    take([data = static_cast<const double*>(t.data)](Index n) { return data[n]; });
  else if (t.dtype == DType::f32)
    take([data = static_cast<const float*>(t.data)](Index n) { return data[n]; });
  else
    take([&](Index n) { return float_element(t.data, t.dtype, n); });
  const bool bounded = largest <= kLargestRow && nothing == 0;
  if (!bounded) clear();
  return bounded;
}

bool take_table_row(const FastReadKernels& k, const ConstTensorView& t, Index slab, Index row,
                    double factor, float* to) noexcept {
  if (row < 0 || (t.dtype != DType::f64 && t.dtype != DType::f32) || t.stride[3] != 1)
    return take_table_row(t, slab, row, factor, to, 1);
  const Index at =
      slab / t.shape[1] * t.stride[0] + slab % t.shape[1] * t.stride[1] + row * t.stride[2];
  const bool bounded =
      t.dtype == DType::f64
          ? k.narrow(to, static_cast<const double*>(t.data) + at, t.shape[3], factor, kLargestRow)
          : k.scale(to, static_cast<const float*>(t.data) + at, t.shape[3], factor, kLargestRow);
  if (!bounded) std::fill_n(to, t.shape[3], 0.0f);
  return bounded;
}

void add_table_rows(const RowSteps& t, const TensorView& to, Index slab, double factor,
                    const float* d, Index stride) noexcept {
  const Index channels = to.shape[3], batch = slab / to.shape[1], group = slab % to.shape[1];
  for (Index step = 0; step < t.steps(); ++step, d += stride) {
    const Index row = t.row[static_cast<std::size_t>(step)];
    if (row < 0) continue;
    const Index at = batch * to.stride[0] + group * to.stride[1] + row * to.stride[2];
    if (to.dtype == DType::f64 && to.stride[3] == 1) {
      double* x = static_cast<double*>(to.data) + at;
      for (Index c = 0; c < channels; ++c) x[c] += factor * static_cast<double>(d[c]);
      continue;
    }
    for (Index c = 0; c < channels; ++c)
      add_element(to.data, to.dtype, at + c * to.stride[3], factor * static_cast<double>(d[c]));
  }
}

RowSteps find_steps(const ReadyCall& c, const PickedRows& picked, CallArena& arena) {
  RowSteps t;
  const std::optional<WholeDistances> d = line_distances(c, picked);
  if (!d) {
    const Index rows = picked.table.shape[2];
    const std::span<Index> row = arena.objects<Index>(rows + 1);
    for (Index n = 0; n < rows; ++n) row[static_cast<std::size_t>(n)] = n;
    row.back() = -1;
    t.row = row;
    return t;
  }
  const BandSource source = *band_source(picked);
  t.by_line = true, t.axis = source.axis, t.high = d->high;
  const Index entries = d->high - d->low + 1;
  const std::span<std::int32_t> step = arena.objects<std::int32_t>(entries + 2 * kLineMargin);
  const std::span<Index> row = arena.objects<Index>(entries);
  const auto row_at = [&](Index e) {
    return std::max<Index>(-1, row_of(*source.line, static_cast<double>(d->high - e)));
  };
  Index changes = 0;
  for (Index e = 1; e < entries; ++e) changes += row_at(e) != row_at(e - 1) ? 1 : 0;
  // A step for each distance where few of them share a row: then nothing is read by an index.
  const bool each = changes + 1 >= entries - entries / 8;
  Index count = 0;
  for (Index e = 0; e < entries; ++e) {
    const Index r = row_at(e);
    if (e == 0 || each || r != row[static_cast<std::size_t>(count - 1)])
      row[static_cast<std::size_t>(count++)] = r;
    step[static_cast<std::size_t>(kLineMargin + e)] = static_cast<std::int32_t>(count - 1);
  }
  std::fill_n(step.begin(), kLineMargin, 0);
  std::fill_n(step.end() - kLineMargin, kLineMargin, static_cast<std::int32_t>(count - 1));
  t.row = row.first(static_cast<std::size_t>(count)), t.step = step.data() + kLineMargin;
  return t;
}

std::string_view steps_why_not(const ReadyCall& c, const PickedRows& t) noexcept {
  if (t.table.shape[2] > kMostPickedRows && !line_distances(c, t))
    return "pairs select among more than 4096 rows of a table";
  return {};
}

RowSteps::Range RowSteps::range(const ReadyCall& c, const FastRow& r, Index rows, Index key,
                                Index count) const noexcept {
  if (!by_line) return {0, steps() - 1};
  // Each query after the first one reads one entry before it.
  const Index at = entry(c, r) + key;
  return {step[at - (rows - 1)], step[at + count - 1]};
}

Index RowSteps::entry(const ReadyCall& c, const FastRow& r) const noexcept {
  const AxisView& a = c.axes[static_cast<std::size_t>(axis)];
  return high - (a.query_whole[a.query_at(r.b, r.i)] - a.key_whole[a.key_at(r.place.row, 0)]);
}

}  // namespace posenc::v0::detail
