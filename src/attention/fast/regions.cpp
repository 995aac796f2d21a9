// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/regions.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/content_weights.h"
#include "attention/fast/gates.h"
#include "attention/fast/row_terms.h"
#include "attention/fast/sticks.h"
#include "attention/fast/wide_products.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

// Differences of such numbers are exact, and bounds that a double does not hold lie beyond them.
constexpr double kLargestChunk = 0x1p51;

double chunk_of(const AxisView& a, std::span<const Index> whole, std::span<const double> real,
                Index chunk, std::size_t n) noexcept {
  return a.whole ? static_cast<double>(floor_divide(whole[n], chunk))
                 : std::floor(real[n] / static_cast<double>(chunk));
}

}  // namespace

std::string_view Regions::why_not(const AttentionArgs& a) noexcept {
  if (a.regions.empty()) return {};
  if (a.regions.size() > kMostRegions) return "the call has more than 31 regions";
  if (breaks_sticks(a)) return "the call has regions and stick-breaking";
  for (const Term& t : a.terms) {
    if (Gates::has(t)) return "the call has regions and gates";
    if (ContentWeights::has(t)) return "the call has regions and a number that multiplies q.k";
    if (WideProducts::takes(t)) return "the call has regions and products of vectors";
    if (RowTerms::has(t) && term_arrays(t).key.content)
      return "the call has regions and rows of a table that multiply k";
  }
  return {};
}

Regions::Regions(const ReadyCall& c, CallArena& arena) : call_(c) {
  if (c.axes.empty()) return;  // neither queries nor keys
  all_ = arena.objects<Chunks>(static_cast<Index>(c.args.regions.size()));
  for (std::size_t n = 0; n < all_.size(); ++n) {
    Chunks& x = all_[n];
    x.region = &c.args.regions[n];
    x.axis = &c.axes[static_cast<std::size_t>(x.region->axis)];
    x.query = arena.array<double>(static_cast<Index>(x.axis->query.size()));
    x.key = arena.array<double>(static_cast<Index>(x.axis->key.size()));
    const Index tiles = x.axis->key_rows * (whole_tiles(c.Tk) / kTile);
    x.low = arena.array<double>(tiles), x.high = arena.array<double>(tiles);
    if (!arena.counts()) fill(x);
  }
}

void Regions::fill(Chunks& x) noexcept {
  const AxisView& a = *x.axis;
  x.exact = x.sorted = true;
  const auto fill_side = [&](std::span<double> to, std::span<const Index> whole,
                             std::span<const double> real) {
    for (std::size_t n = 0; n < to.size(); ++n) {
      to[n] = chunk_of(a, whole, real, x.region->chunk, n);
      x.exact = x.exact && std::fabs(to[n]) <= kLargestChunk;
    }
  };
  fill_side(x.query, a.query_whole, a.query);
  fill_side(x.key, a.key_whole, a.key);
  const Index tiles = whole_tiles(call_.Tk) / kTile;
  for (Index r = 0; r < a.key_rows; ++r) {
    const double* key = x.key.data() + a.key_at(r, 0);
    x.sorted = x.sorted && std::is_sorted(key, key + call_.Tk);
    for (Index t = 0; t < tiles; ++t) {
      const double *first = key + t * kTile, *end = key + std::min(call_.Tk, (t + 1) * kTile);
      const auto at = static_cast<std::size_t>(r * tiles + t);
      x.low[at] = *std::min_element(first, end), x.high[at] = *std::max_element(first, end);
    }
  }
}

bool Regions::splits_groups() const noexcept {
  return std::any_of(all_.begin(), all_.end(), [&](const Chunks& x) {
    return x.region->rotary == nullptr && call_.G % x.region->qk.k.heads != 0;
  });
}

Regions::Share Regions::share(const Chunks& x, const Span& q, Index key_row,
                              Run keys) const noexcept {
  if (!x.exact) return Share::some;
  const AxisView& a = *x.axis;
  double k_low = HUGE_VAL, k_high = -HUGE_VAL;
  const Index row = a.key_rows == 1 ? 0 : key_row;
  if (x.sorted) {
    const double* key = x.key.data() + a.key_at(row, 0);
    k_low = key[keys.begin], k_high = key[keys.end - 1];
  } else {
    const Index first = row * (whole_tiles(call_.Tk) / kTile);
    for (Index t = keys.begin / kTile; t * kTile < keys.end; ++t) {
      k_low = std::min(k_low, x.low[static_cast<std::size_t>(first + t)]);
      k_high = std::max(k_high, x.high[static_cast<std::size_t>(first + t)]);
    }
  }
  const auto low = static_cast<double>(x.region->low), high = static_cast<double>(x.region->high);
  if (q.high - k_low < low || q.low - k_high > high) return Share::none;
  return q.low - k_high >= low && q.high - k_low <= high ? Share::all : Share::some;
}

template <class SpanOf>
RegionSet Regions::of(const SpanOf& queries, Index key_row, Run keys) const noexcept {
  RegionSet found = 0, bit = kNoRegion;
  for (const Chunks& x : all_) {
    bit <<= 1;
    const Share s = share(x, queries(x), key_row, keys);
    if (s != Share::none) found |= bit;
    if (s == Share::all) return found;
  }
  return found | kNoRegion;
}

RegionSet Regions::of(const FastRow* rows, Index count, Run keys) const noexcept {
  const auto span_of = [&](const Chunks& x) {
    Span span;
    for (Index n = 0; n < count; ++n) span.add(x.query[x.axis->query_at(rows[n].b, rows[n].i)]);
    return span;
  };
  return of(span_of, rows->place.row, keys);
}

std::span<const RegionSet> Regions::of_tiles(CallArena& arena) const {
  const Index tiles = whole_tiles(call_.Tk) / kTile;
  const std::span<RegionSet> sets = arena.objects<RegionSet>(call_.R * tiles);
  const std::span<Span> queries = arena.objects<Span>(call_.R * static_cast<Index>(all_.size()));
  if (arena.counts()) return sets;
  const auto of_row = [&](Index r) { return queries.data() + r * static_cast<Index>(all_.size()); };
  for (Index b = 0; b < call_.B; ++b)
    for (Index i = 0; i < call_.Tq; ++i) {
      Span* span = of_row(call_.place(b, i).row);
      for (const Chunks& x : all_) span++->add(x.query[x.axis->query_at(b, i)]);
    }
  for (Index r = 0; r < call_.R; ++r)
    for (Index t = 0; t < tiles; ++t)
      sets[static_cast<std::size_t>(r * tiles + t)] =
          of([&](const Chunks& x) { return of_row(r)[&x - all_.data()]; }, r,
             {t * kTile, std::min(call_.Tk, (t + 1) * kTile)});
  return sets;
}

RegionSet Regions::of(const RowGroup& g, Run keys) const noexcept {
  const Run some{std::max(keys.begin, g.seen.begin), std::min(keys.end, g.seen.end)};
  return some.begin < some.end ? of(g.row, g.count, some) : 0;
}

template <class F>
void Regions::each_run(const Chunks& x, const FastRow& r, Run keys, const F& fn) const {
  const AxisView& a = *x.axis;
  const double q = x.query[a.query_at(r.b, r.i)];
  const double* key = x.key.data() + a.key_at(r.place.row, 0);
  const auto low = static_cast<double>(x.region->low), high = static_cast<double>(x.region->high);
  if (x.exact && x.sorted) {
    const double* begin = std::lower_bound(key + keys.begin, key + keys.end, q - high);
    const double* end = std::upper_bound(key + keys.begin, key + keys.end, q - low);
    if (begin < end) fn(Run{begin - key, end - key});
    return;
  }
  const auto number = static_cast<std::size_t>(&x - all_.data());
  for (Index j = keys.begin; j < keys.end; ++j) {
    const bool inside = x.exact ? q - key[j] >= low && q - key[j] <= high
                                : call_.is_in_region(number, r.b, r.i, r.place.row, j);
    if (inside) fn(Run{j, j + 1});
  }
}

Run Regions::hide_others(int number, const FastRow& r, Run keys, const float* start, Index width,
                         float* to) const noexcept {
  Run all{keys.end, keys.begin};
  const auto copy = [&](Run run) {
    all = {std::min(all.begin, run.begin), std::max(all.end, run.end)};
    const Index at = run.begin - keys.begin, count = run.end - run.begin;
    if (start == nullptr)
      std::fill_n(to + at, count, 0.0f);
    else
      std::copy_n(start + at, count, to + at);
  };
  std::fill_n(to, width, -HUGE_VALF);
  if (number < 0)
    copy(keys);
  else
    each_run(all_[static_cast<std::size_t>(number)], r, keys, copy);
  // The first region that contains a pair applies.
  const auto before = number < 0 ? all_.size() : static_cast<std::size_t>(number);
  for (std::size_t n = 0; n < before; ++n)
    each_run(all_[n], r, keys, [&](Run run) {
      std::fill_n(to + (run.begin - keys.begin), run.end - run.begin, -HUGE_VALF);
      if (run.begin <= all.begin) all.begin = std::max(all.begin, run.end);
      if (run.end >= all.end) all.end = std::min(all.end, run.begin);
    });
  return all;
}

}  // namespace posenc::v0::detail
