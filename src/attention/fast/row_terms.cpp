// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_terms.h"

#include <algorithm>
#include <cmath>

#include "attention/call/pieces.h"
#include "attention/lowered/bands.h"
#include "core/element.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Rows of a table that pairs pick from: the products with all of them are kept.
constexpr Index kMostPickedRows = 4096;
// Classes of keys that a row of queries keeps a number of.
constexpr Index kMostClasses = 64;
// Fewer queries share too little of the products of keys with rows.
constexpr Index kFewestQueries = 8;

const ProductTerm& product_of(const Term& t) noexcept {
  return std::get<ProductTerm>(t);
}
bool is_of_keys(const Term& t) noexcept {
  return term_class(t) == TermClass::key_rows;
}

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
std::optional<WholeDistances> line_distances(const ReadyCall& c, const ProductTerm& t) noexcept {
  const std::optional<BandSource> source = band_source(t);
  if (!source) return {};
  const std::optional<WholeDistances> d = consecutive_distances(c, source->axis);
  if (!d || !queries_count_up(c.axes[static_cast<std::size_t>(source->axis)])) return {};
  return d;
}

// One row of a table, in float; absent: 0. False: float does not hold it.
bool take_table_row(const ConstTensorView& t, Index batch, Index group, Index row, double factor,
                    float* to, Index step) noexcept {
  const Index channels = t.shape[3];
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

}  // namespace

bool RowTerms::has(const Term& t) noexcept {
  const TermClass kind = term_class(t);
  return kind == TermClass::query_rows || kind == TermClass::key_rows;
}

std::string_view RowTerms::why_not(const ReadyCall& c, const Term& t) noexcept {
  const ProductTerm& term = product_of(t);
  if (is_of_keys(t) && c.Tq < kFewestQueries)
    return "few queries meet keys that read rows of a table";
  if (term.table.shape[2] > kMostPickedRows && !line_distances(c, term))
    return "pairs pick from more than 4096 rows of a table";
  return {};
}

RowTerms::RowTerms(const ReadyCall& c, const Starts& starts, const FastKernels& k, CallArena& arena,
                   const Executor& executor)
    : call_(c) {
  const std::span<const Term> terms = c.args.terms;
  all_ = arena.objects<RowTerm>(std::count_if(terms.begin(), terms.end(), has));
  std::size_t n = 0;
  bool holds = false;
  for (std::size_t number = 0; number < terms.size(); ++number) {
    const Term& term = terms[number];
    if (!has(term)) continue;
    RowTerm& t = all_[n++];
    t.number = number;
    t.term = &product_of(term), t.of_keys = is_of_keys(term), t.channels = t.term->table.shape[3];
    find_steps(t, arena);
    find_classes(t, arena);
    pack_table(t, k, arena, executor);
    copy_keys(t, arena, executor);
    // Its steps are the entries of the lines.
    holds = holds || (t.holds_numbers = t.by_line && !t.of_keys && starts.has_lines_of(t.axis) &&
                                        t.steps() == starts.line_entries());
  }
}

bool RowTerms::are_bounded() const noexcept {
  return std::all_of(all_.begin(), all_.end(), [](const RowTerm& t) {
    const auto slabs = t.term->table.shape[0] * t.term->table.shape[1];
    return std::all_of(t.bounded.begin(), t.bounded.begin() + slabs,
                       [](std::uint8_t x) { return x != 0; });
  });
}

bool RowTerms::hold_numbers() const noexcept {
  return std::any_of(all_.begin(), all_.end(), [](const RowTerm& t) { return t.holds_numbers; });
}

void RowTerms::find_steps(RowTerm& t, CallArena& arena) {
  const std::optional<WholeDistances> d = line_distances(call_, *t.term);
  if (!d) {
    const Index rows = t.term->table.shape[2];
    const std::span<Index> row = arena.objects<Index>(rows + 1);
    for (Index n = 0; n < rows; ++n) row[static_cast<std::size_t>(n)] = n;
    row.back() = -1;
    t.row = row;
    return;
  }
  const BandSource source = *band_source(*t.term);
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
}

void RowTerms::find_classes(RowTerm& t, CallArena& arena) {
  const IndexPair& p = t.term->pair;
  const auto& lines = t.term->lines;
  const bool alone = std::all_of(lines.begin(), lines.end(),
                                 [](const IndexLine& line) { return line.row == nullptr; });
  if (p.row == nullptr || !alone || t.of_keys || p.key_classes > kMostClasses) return;
  const Index rows = p.key_class.shape[0];
  const std::span<std::int32_t> classes = arena.array<std::int32_t>(rows * call_.Tk + kLineMargin);
  t.key_class = classes;
  if (arena.counts()) return;
  for (Index n = 0; n < rows * call_.Tk; ++n)
    classes[static_cast<std::size_t>(n)] =
        static_cast<std::int32_t>(read_index(p.key_class, n / call_.Tk, n % call_.Tk));
  std::fill_n(classes.end() - kLineMargin, kLineMargin, 0);
}

void RowTerms::pack_table(RowTerm& t, const FastKernels& k, CallArena& arena,
                          const Executor& executor) {
  const ConstTensorView& table = t.term->table;
  const Index slabs = table.shape[0] * table.shape[1], panel = 2 * k.lanes;
  const double factor = t.of_keys ? kLog2E * t.term->scale : 1;
  const Index unit = t.of_keys ? k.rows : panel;  // steps that are read at once
  const Index units = block_count(t.steps(), unit) + (t.of_keys ? 1 : 0);
  t.slab_size = units * unit * t.channels;
  const std::span<float> to = arena.array<float>(slabs * t.slab_size);
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(slabs * units);
  t.table = to, t.bounded = bounded;
  if (arena.counts()) return;
  parallel_for(
      executor, slabs * units, slabs * t.slab_size / kValuesPerTask,
      [&](Index begin, Index end) noexcept {
        for (Index n = begin; n < end; ++n) {
          const Index slab = n / units, first = n % units * unit;
          float* x = to.data() + slab * t.slab_size + first * t.channels;
          bool all = true;
          for (Index s = 0; s < unit; ++s)
            all = take_table_row(
                      table, slab / table.shape[1], slab % table.shape[1],
                      first + s < t.steps() ? t.row[static_cast<std::size_t>(first + s)] : -1,
                      factor, t.of_keys ? x + s * t.channels : x + s, t.of_keys ? 1 : panel) &&
                  all;
          bounded[static_cast<std::size_t>(n)] = all ? 1 : 0;
        }
      });
  // One flag a slab, in front.
  for (Index slab = 0; slab < slabs; ++slab)
    bounded[static_cast<std::size_t>(slab)] =
        std::all_of(bounded.begin() + slab * units, bounded.begin() + (slab + 1) * units,
                    [](std::uint8_t x) { return x != 0; })
            ? 1
            : 0;
}

void RowTerms::copy_keys(RowTerm& t, CallArena& arena, const Executor& executor) {
  const ConstHeads& x = t.term->key.given;
  if (!t.of_keys || x.data == nullptr) return;
  const std::span<float> to = arena.array<float>(x.batch * x.tokens * x.heads * x.dim);
  t.keys = to;
  if (arena.counts()) return;
  const Index size = x.heads * x.dim;
  parallel_for(executor, x.batch * x.tokens, x.batch * x.tokens * size / kValuesPerTask,
               [&](Index begin, Index end) noexcept {
                 for (Index n = begin; n < end; ++n) {
                   const Index at = n / x.tokens * x.batch_stride + n % x.tokens * x.token_stride;
                   for (Index h = 0; h < x.heads; ++h)
                     for (Index c = 0; c < x.dim; ++c)
                       to[static_cast<std::size_t>(n * size + h * x.dim + c)] =
                           static_cast<float>(float_element(
                               x.data, x.dtype, at + h * x.head_stride + c * x.dim_stride));
                 }
               });
}

Index RowTerms::entry(const RowTerm& t, const FastRow& r) const noexcept {
  const AxisView& a = call_.axes[static_cast<std::size_t>(t.axis)];
  return t.high - (a.query_whole[a.query_at(r.b, r.i)] - a.key_whole[a.key_at(r.place.row, 0)]);
}

}  // namespace posenc::v0::detail
