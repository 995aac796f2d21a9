// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/starts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "attention/lowered/bands.h"
#include "core/element.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

constexpr double kSteep = 16;  // beyond it lines are steep
constexpr Index kSome = 8;     // entries of a line whose largest is kept

struct Bounds {
  double low, high;
  bool finite;
};

// Of one number or more, in lanes that the compiler makes vectors of.
Bounds bounds_of(std::span<const double> x) noexcept {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> low, high, nothing{};  // nothing: NaN where a number is not finite
  low.fill(x[0]), high.fill(x[0]);
  const std::size_t whole = x.size() / kLanes * kLanes;
  for (std::size_t n = 0; n < whole; n += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double y = x[n + lane];
      low[lane] = y < low[lane] ? y : low[lane];
      high[lane] = y > high[lane] ? y : high[lane];
      nothing[lane] += y - y;
    }
  for (std::size_t n = whole; n < x.size(); ++n) {
    low[0] = std::min(low[0], x[n]), high[0] = std::max(high[0], x[n]);
    nothing[0] += x[n] - x[n];
  }
  return {std::ranges::min(low), std::ranges::max(high),
          std::ranges::all_of(nothing, [](double y) { return y == 0; })};
}

double linear_value(const LinearTerm& t, Index b, Index group, double delta) noexcept {
  const Index batch = t.table.shape[0] == 1 ? 0 : b;
  const double slope = read_number(t.table, batch, group, 0, delta > 0 ? 0 : 1);
  return t.scale * slope * std::fabs(delta);
}

}  // namespace

Index picked_row(const ReadyCall& c, const PickedRows& t, const FastRow& r, Index j) noexcept {
  Index row = 0;
  for (const IndexLine& line : t.lines) {
    if (line.row == nullptr) continue;
    const AxisView& axis = c.axes[static_cast<std::size_t>(line.axis)];
    const std::int32_t one = row_of(line, axis.delta(r.b, r.i, r.place.row, j));
    if (one < 0) return -1;
    row += one;
  }
  if (const IndexPair& p = t.pair; p.row != nullptr) {
    const std::int32_t one = p.row[read_index(p.query_class, r.b, r.i) * p.key_classes +
                                   read_index(p.key_class, r.place.row, j)];
    if (one < 0) return -1;
    row += one;
  }
  return row;
}

bool is_on_side(const ReadyCall& c, const DecayTerm& t, const FastRow& r, Index j) noexcept {
  if (t.side == Side::both) return true;
  return (c.key_order(r.place, j) <= r.place.order) == (t.side == Side::past);
}

namespace {

void add_linear(const ReadyCall& c, const LinearTerm& t, const FastRow& r, Run keys,
                double* to) noexcept {
  const AxisView& axis = c.axes[static_cast<std::size_t>(t.axis)];
  const Index group = Grouping{c.H, t.table.shape[1]}.of(r.h);
  for (Index j = keys.begin; j < keys.end; ++j)
    to[j - keys.begin] +=
        kLog2E * linear_value(t, r.b, group, axis.delta(r.b, r.i, r.place.row, j));
}

// x_i - y_j where the side of the pair is wanted.
void add_decay(const ReadyCall& c, const DecayTerm& t, const FastRow& r, Run keys,
               double* to) noexcept {
  const double x = token_number(c, t.query.given, r.b, r.h, r.i);
  for (Index j = keys.begin; j < keys.end; ++j) {
    if (!is_on_side(c, t, r, j)) continue;
    to[j - keys.begin] +=
        kLog2E * t.scale * (x - token_number(c, t.key.given, r.place.row, r.h, j));
  }
}

}  // namespace

namespace {

// One number for all pairs of a head.
bool is_constant(const Term& t) noexcept {
  return term_class(t) == TermClass::band && !band_source(t);
}

}  // namespace

bool Starts::takes(const Term& t) noexcept {
  switch (term_class(t)) {
    case TermClass::none:
    case TermClass::linear:
    case TermClass::band:
    case TermClass::pair_number:
    case TermClass::distance_curve:
      return true;
    default:
      return std::holds_alternative<DecayTerm>(t);
  }
}

bool Starts::adds(const Term& t) noexcept {
  return term_class(t) != TermClass::none && takes(t);
}

Starts::Starts(const ReadyCall& c, const LoweredCall& lowered, CallArena& arena) : call_(c) {
  find_terms(lowered, arena);
  make_curves(arena);
  make_pair_rows(arena);
}

void Starts::make_curves(CallArena& arena) {
  const std::span<const Term> terms = call_.args.terms;
  const auto is_number = [&](const Term& t) { return is_added(t); };
  const auto is_curve = [](const Term& t) { return term_class(t) == TermClass::distance_curve; };
  const auto count = std::count_if(terms.begin(), terms.end(), is_curve);
  curve_is_alone_ = count == 1 && std::count_if(terms.begin(), terms.end(), is_number) == 1;
  auto next = terms.begin();
  curves_ = arena.made<DistanceCurve>(count, [&](Index) {
    next = std::find_if(next, terms.end(), is_curve);
    return DistanceCurve(call_, std::get<DistanceMlpTerm>(*next++), arena);
  });
}

Index Starts::entry_of(const FastRow& r) const noexcept {
  if (has_pictures())
    return head_of(r) + (pictures_.has_runs() ? pictures_.only().entry_of(call_, r.b, r.i) : 0);
  if (axis_ == kNoAxis) return head_of(r);
  const AxisView& axis = call_.axes[static_cast<std::size_t>(axis_)];
  const Index first = axis.key_whole[axis.key_at(r.place.row, 0)];  // of a line of neighbours
  return head_of(r) + (high_ - (axis.query_whole[axis.query_at(r.b, r.i)] - first));
}

// Whether all terms go by one distance; one number for all pairs goes by any.
bool Starts::find_axis(Index& batches) noexcept {
  bool some = false;
  for (const Term& term : call_.args.terms) {
    if (!is_added(term)) continue;
    const std::optional<BandSource> source = band_source(term);
    if (!source && !is_constant(term)) return false;
    if (source && axis_ != kNoAxis && axis_ != source->axis) return false;
    if (source) axis_ = source->axis;
    batches = std::max(batches, term_arrays(term).table.shape[0]);
    some = true;
  }
  return some;
}

std::optional<WholeDistances> Starts::distances() const noexcept {
  if (axis_ != kNoAxis) return consecutive_distances(call_, axis_);
  if (call_.Tk == 0) return {};
  return WholeDistances{.low = 1 - call_.Tk, .high = 0};
}

void Starts::add_constant(const Term& t, bool first) noexcept {
  const ConstTensorView& table = term_arrays(t).table;
  for (Index b = 0; b < line_batches_; ++b)
    for (Index h = 0; h < call_.H; ++h) {
      const double number = kLog2E * std::get<ProductTerm>(t).scale *
                            read_number(table, table.shape[0] == 1 ? 0 : b,
                                        Grouping{call_.H, table.shape[1]}.of(h), 0, 0);
      double* line = wide_lines_.data() + (b * call_.H + h) * line_size_ + kLineMargin;
      for (Index n = 0; n < line_entries(); ++n) line[n] = (first ? 0 : line[n]) + number;
    }
}

void Starts::add_band(const Term& t, const Band& band, bool first) noexcept {
  const ConstTensorView table = term_arrays(t).table;
  for (Index b = 0; b < line_batches_; ++b)
    for (Index h = 0; h < call_.H; ++h) {
      const Index slab =
          (table.shape[0] == 1 ? 0 : b) * table.shape[1] + Grouping{call_.H, table.shape[1]}.of(h);
      const double* values = band.values.data() + slab * band.size() + (band.high - high_);
      double* line = wide_lines_.data() + (b * call_.H + h) * line_size_ + kLineMargin;
      for (Index n = 0; n < line_entries(); ++n)
        line[n] = (first ? 0 : line[n]) + kLog2E * values[n];
    }
}

void Starts::make_room(bool cleared, CallArena& arena) {
  const Index size = line_batches_ * call_.H * line_size_;
  wide_lines_ = arena.array<double>(size);
  lines_ = arena.array<float>(size);
  Index chunks = 0;
  for (Index n = block_count(size, kSome); n > 0; n = n > 1 ? block_count(n, 2) : 0) chunks += n;
  largest_ = arena.array<double>(chunks);
  tops_ = arena.array<Top>(line_batches_ * call_.H);
  if (cleared && !arena.counts()) std::fill(wide_lines_.begin(), wide_lines_.end(), 0.0);
}

bool Starts::make_lines(const LoweredCall& lowered, bool one, CallArena& arena) {
  if (are_decays()) {
    make_decays(arena);
    return true;
  }
  const bool one_axis = find_axis(line_batches_);
  const std::optional<WholeDistances> d = one_axis ? distances() : std::nullopt;
  if (!d) {
    make_pictures(one, arena);
    return has_pictures();
  }
  high_ = d->high, line_size_ = d->high - d->low + 1 + 2 * kLineMargin;
  make_room(false, arena);
  std::size_t number = 0;
  bool first = true;
  for (const Term& term : call_.args.terms) {
    const std::size_t n = number++;
    if (!is_added(term)) continue;
    const bool begins = std::exchange(first, false);
    if (is_constant(term)) {
      if (!arena.counts()) add_constant(term, begins);
      continue;
    }
    const BandSource source = *band_source(term);
    const Band* band = lowered.band(n);
    const bool fits = band != nullptr && band->is_of(term, source) && band->low <= d->low &&
                      band->high >= d->high;
    if (fits && !arena.counts()) add_band(term, *band, begins);
    if (fits) continue;
    const Band own(term, source, d->low, d->high, arena);
    if (!arena.counts()) add_band(term, own, begins);
  }
  if (!arena.counts()) finish_lines();
  return true;
}

void Starts::finish_lines() noexcept {
  double low = 0, high = 0;  // margins copy entries: they do not widen the range
  for (auto line = wide_lines_.begin(); line < wide_lines_.end(); line += line_size_) {
    const auto first = line + kLineMargin, end = line + line_size_ - kLineMargin;
    const Bounds bounds = bounds_of({first, end});
    // Numbers that are not finite are found pair by pair: rows that see one are left.
    if (!bounds.finite) {
      wide_ = true, finite_ = false;
      if (!has_pictures()) line_size_ = 0;
      return;
    }
    low = std::min(low, bounds.low), high = std::max(high, bounds.high);
    tops_[static_cast<std::size_t>((line - wide_lines_.begin()) / line_size_)] = {0, bounds.high,
                                                                                  bounds.low};
    std::fill(line, first, *first);  // as near as their neighbours
    std::fill(end, line + line_size_, *(end - 1));
  }
  wide_ = !(low >= -kLineRange && high <= kLineRange);
  steep_ = !(low >= -kSteep && high <= kSteep);
  std::transform(wide_lines_.begin(), wide_lines_.end(), lines_.begin(),
                 [](double x) { return static_cast<float>(std::clamp(x, kFar, -kFar)); });
  if (steep_) find_largest();
}

void Starts::find_largest() noexcept {
  Index size = block_count(static_cast<Index>(wide_lines_.size()), kSome);
  for (Index n = 0; n < size; ++n) {
    const double* x = wide_lines_.data() + n * kSome;
    const Index count = std::min(kSome, static_cast<Index>(wide_lines_.size()) - n * kSome);
    static_assert(kSome == 8);
    largest_[static_cast<std::size_t>(n)] =
        count < kSome ? *std::max_element(x, x + count)
                      : std::max(std::max(std::max(x[0], x[1]), std::max(x[2], x[3])),
                                 std::max(std::max(x[4], x[5]), std::max(x[6], x[7])));
  }
  for (double* of = largest_.data(); size > 1;) {
    double* to = of + size;
    for (Index n = 0; n < size; n += 2)
      to[n / 2] = n + 1 < size ? std::max(of[n], of[n + 1]) : of[n];
    of = to, size = block_count(size, 2);
  }
  for (std::size_t n = 0; n < tops_.size(); ++n) {
    const auto first = wide_lines_.begin() + static_cast<Index>(n) * line_size_ + kLineMargin;
    tops_[n].entry =
        std::find(first, first + line_entries(), tops_[n].number) - wide_lines_.begin();
  }
}

void Starts::pull_line(const Term& term, const double* d_lines, double* table) const noexcept {
  const ConstTensorView& shape = term_arrays(term).table;
  const Index groups = shape.shape[1], rows = shape.shape[2] * shape.shape[3];
  if (has_pictures()) {
    const double scale = std::visit([](const auto& kind) { return kind.scale; }, term);
    for (Index n = 0; n < line_batches_ * call_.H; ++n)
      pictures_.pull(term, scale, d_lines + n * line_size_ + kLineMargin,
                     table + slab_of(shape, n / call_.H, n % call_.H, call_.H) * rows);
    return;
  }
  const BandSource source = band_source(term).value_or(BandSource{});
  for (Index n = 0; n < line_size_ - 2 * kLineMargin; ++n) {
    const auto delta = static_cast<double>(high_ - n);
    Index row = delta > 0 ? 0 : 1;
    double factor = 0;
    if (source.linear != nullptr) {
      factor = source.linear->scale * std::fabs(delta);
    } else {
      row = source.line == nullptr ? 0 : row_of(*source.line, delta);
      factor = std::get<ProductTerm>(term).scale;
      if (row < 0) continue;
    }
    for (Index b = 0; b < line_batches_; ++b)
      for (Index h = 0; h < call_.H; ++h) {
        const Index slab = (shape.shape[0] == 1 ? 0 : b) * groups + Grouping{call_.H, groups}.of(h);
        table[slab * rows + row] +=
            factor * d_lines[(b * call_.H + h) * line_size_ + kLineMargin + n];
      }
  }
}

Index Starts::line_entries() const noexcept {
  return line_size_ - 2 * kLineMargin;
}
const float* Starts::line_of(Index b, Index h) const noexcept {
  return lines_.data() + ((line_batches_ == 1 ? 0 : b) * call_.H + h) * line_size_ + kLineMargin;
}

double Starts::largest(Index first, Index count) const noexcept {
  const auto number = [&](Index n) { return wide_lines_[static_cast<std::size_t>(n)]; };
  Index begin = first, end = first + count;
  double most = -HUGE_VAL;
  while (begin < end && begin % kSome != 0) most = std::max(most, number(begin++));
  while (begin < end && end % kSome != 0) most = std::max(most, number(--end));
  begin /= kSome, end /= kSome;
  Index size = block_count(static_cast<Index>(wide_lines_.size()), kSome);
  for (const double* of = largest_.data(); begin < end; of += size, size = block_count(size, 2)) {
    if (begin % 2 != 0) most = std::max(most, of[begin++]);
    if (end % 2 != 0) most = std::max(most, of[--end]);
    begin /= 2, end /= 2;
  }
  return most;
}

Index Starts::top_key(const FastRow& r) const noexcept {
  const Index key = top_of(r).entry - r.entry;
  for (const Run& run : r.bounds.runs())
    if (key >= run.begin && key < run.end) return key;
  return -1;
}

double Starts::top(const FastRow& r) const noexcept {
  if (top_key(r) >= 0) return top_of(r).number + r.offset;
  double most = -HUGE_VAL;
  for (const Run& run : r.bounds.runs())
    if (run.begin < run.end)
      most = std::max(most, largest(r.entry + run.begin, run.end - run.begin));
  return most > -HUGE_VAL ? most + r.offset : 0;
}

void Starts::add(const FastRow& r, Run keys, double* to) const noexcept {
  if (has_lines()) {
    const Index first = entry_of(r) + keys.begin;
    for (Index n = 0; n < keys.end - keys.begin; ++n)
      to[n] += wide_lines_[static_cast<std::size_t>(first + n)] + r.offset;
  }
  std::size_t curve = 0;
  for (const Term& t : call_.args.terms) {
    // The lines are all terms but those by classes, which are added here where they are wide.
    if (!adds(t) || (is_added(t) ? has_lines() : !classes_.is_wide())) continue;
    if (std::holds_alternative<DistanceMlpTerm>(t))
      curves_[curve++].add(r.b, r.h, r.i, r.place.row, keys, to);
    if (const auto* product = std::get_if<ProductTerm>(&t))
      add_numbers(call_, *product, pair_rows(t), r, keys, to);
    if (const auto* linear = std::get_if<LinearTerm>(&t)) add_linear(call_, *linear, r, keys, to);
    if (const auto* decay = std::get_if<DecayTerm>(&t)) add_decay(call_, *decay, r, keys, to);
  }
}

}  // namespace posenc::v0::detail
