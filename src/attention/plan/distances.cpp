// SPDX-License-Identifier: Apache-2.0
// Which distances occur between the positions of queries and keys. Positions far from each other leave
// gaps, which no scheme needs rows for: they are told as runs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention/call/field_name.h"
#include "attention/plan/plan_call.h"
#include "core/element.h"
#include "core/extent.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// Ranges of fewer distances, or of few for each token, are lowered whole.
constexpr Index kWholeSpan = 65536, kSpanOfToken = 8;
// Pairs of runs that are put together at most; beyond them near runs count as one.
constexpr Index kMostPairs = Index{1} << 24;

struct Extent {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
};

Extent extent_of(const Positions& p, std::int32_t axis) {
  Extent e;
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t) {
      const double x = position_at(p, axis, p.batch == 1 ? 0 : b, t);
      if (!std::isfinite(x)) refuse_field("distance", "positions", "must be finite", x);
      e.min = std::min(e.min, x);
      e.max = std::max(e.max, x);
    }
  return e;
}

// Whole numbers that hold all distances. Beyond 2^62 a line is constant for every scheme.
DistanceRange distance_between(const Extent& query, const Extent& key) {
  static constexpr double most = 4611686018427387904.0;
  const auto whole = [](double x) { return static_cast<Index>(std::clamp(x, -most, most)); };
  return {whole(std::floor(query.min - key.max)), whole(std::ceil(query.max - key.min)), {}};
}

using DistanceRuns = std::vector<DistanceRun>;

// DistanceRuns that lie up to `gap` apart are one.
DistanceRuns joined_runs(DistanceRuns runs, Index gap) {
  std::sort(runs.begin(), runs.end(),
            [](const DistanceRun& x, const DistanceRun& y) { return x.first < y.first; });
  DistanceRuns all;
  for (const DistanceRun& run : runs)
    if (!all.empty() && run.first - all.back().last <= gap)
      all.back().last = std::max(all.back().last, run.last);
    else
      all.push_back(run);
  return all;
}

// The positions of a row, rounded outwards where they are real.
DistanceRuns position_runs(const Positions& p, std::int32_t axis, Index row) {
  DistanceRuns runs;
  runs.reserve(static_cast<std::size_t>(p.count));
  for (Index t = 0; t < p.count; ++t) {
    if (p.type == DType::f64) {
      const double x = position_at(p, axis, row, t);
      runs.push_back({static_cast<Index>(std::floor(x)), static_cast<Index>(std::ceil(x))});
    } else {
      const Index x = integer_position_at(p, axis, row, t);
      runs.push_back({x, x});
    }
  }
  return joined_runs(std::move(runs), 1);
}

DistanceRuns runs_between(DistanceRuns query, DistanceRuns key) {
  for (Index gap = 2; saturated_product({static_cast<Index>(query.size()),
                                         static_cast<Index>(key.size())}) > kMostPairs;
       gap *= 2)
    query = joined_runs(std::move(query), gap), key = joined_runs(std::move(key), gap);
  DistanceRuns all;
  all.reserve(query.size() * key.size());
  for (const DistanceRun& q : query)
    for (const DistanceRun& k : key) all.push_back({q.first - k.last, q.last - k.first});
  return joined_runs(std::move(all), 1);
}

// The runs of a range where they leave out more than half of it.
void add_runs(const Positions& query, const Positions& key, std::int32_t axis, DistanceRange& r) {
  const Index span = r.max - r.min, rows = std::max(query.batch, key.batch);
  if (span < kWholeSpan || span / kSpanOfToken < query.count + key.count) return;
  DistanceRuns all;
  for (Index b = 0; b < rows; ++b) {
    DistanceRuns row = runs_between(position_runs(query, axis, query.batch == 1 ? 0 : b),
                                    position_runs(key, axis, key.batch == 1 ? 0 : b));
    all.insert(all.end(), row.begin(), row.end());
    if (static_cast<Index>(all.size()) > kMostPairs) all = joined_runs(std::move(all), 1);
  }
  all = joined_runs(std::move(all), 1);
  Index count = 0;
  for (const DistanceRun& run : all) count += run.last - run.first + 1;
  if (count > span / 2) return;
  r = {all.front().first, all.back().last, std::move(all)};
}

// Positions so far out that their distances are those of doubles.
bool is_far(const Extent& e) noexcept {
  return e.min < -0x1p60 || e.max > 0x1p60;
}

[[noreturn]] void refuse_distance(const DistanceRange& lowered, Index got) {
  refuse_number(kPlan, "query_positions",
                "the distances of a call must lie in those that were lowered, " +
                    std::to_string(lowered.min) + " to " + std::to_string(lowered.max) +
                    (lowered.runs.empty() ? "" : ", of which not all were"),
                got);
}

}  // namespace

void check_lowered(const DistanceRange& call, const DistanceRange& lowered, bool all_future,
                   bool all_past) {
  if (call.max > lowered.max && all_past) refuse_distance(lowered, call.max);
  if (call.min < lowered.min && all_future) refuse_distance(lowered, call.min);
  if (lowered.runs.empty()) return;
  DistanceRuns runs = call.runs;
  if (runs.empty()) runs.push_back({call.min, call.max});
  for (DistanceRun run : runs) {
    if (!all_future) run.first = std::max<Index>(run.first, 0);
    if (!all_past) run.last = std::min<Index>(run.last, 0);
    if (run.first > run.last) continue;
    const auto next = std::upper_bound(lowered.runs.begin(), lowered.runs.end(), run.first,
                                       [](Index x, const DistanceRun& r) { return x < r.first; });
    if (next == lowered.runs.begin()) refuse_distance(lowered, run.first);
    const Index last = std::prev(next)->last;
    if (run.last > last) refuse_distance(lowered, std::max(run.first, last + 1));
  }
}

}  // namespace detail

namespace detail {

// Before axes are read.
void check_distance_positions(const Positions& query, const Positions& key) {
  check_positions_view("distance", "positions of queries", query);
  check_positions_view("distance", "positions of keys", key);
  if (query.axes != key.axes)
    refuse_field("distance", "keys",
                 "must have the axes of the queries, " + std::to_string(query.axes),
                 static_cast<Index>(key.axes));
}

DistanceRange distance_range(const Positions& query, const Positions& key, std::int32_t axis) {
  if (query.count == 0 || key.count == 0 || query.batch == 0 || key.batch == 0) return {};
  // Rows of one batch, or one row for all: else every row may meet every other.
  const bool rows = query.batch == 1 || key.batch == 1 || query.batch == key.batch;
  const Extent q = extent_of(query, axis), k = extent_of(key, axis);
  DistanceRange r = distance_between(q, k);
  if (rows && !is_far(q) && !is_far(k)) add_runs(query, key, axis, r);
  return r;
}

}  // namespace detail

std::vector<DistanceRange> distance_ranges(const Positions& query, const Positions& key) {
  detail::check_distance_positions(query, key);
  std::vector<DistanceRange> ranges;
  for (std::int32_t axis = 0; axis < query.axes; ++axis)
    ranges.push_back(detail::distance_range(query, key, axis));
  return ranges;
}

}  // namespace posenc::v0
