// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "posenc/core/error.h"
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kStore = "lowered";

void check_filled(std::size_t size, std::initializer_list<Index> shape) {
  Index n = 1;
  for (const Index s : shape) n *= s;
  if (n != static_cast<Index>(size))
    refuse(kStore, "an array must fill its shape of " + std::to_string(n) + " numbers",
           static_cast<Index>(size));
}

// A call without tokens brings arrays without elements, which have memory all the same: an empty
// view is one that is not given.
std::vector<double> kept(std::vector<double> v) {
  v.reserve(1);
  return v;
}

}  // namespace

ConstTensorView TermStore::table(std::vector<double> v, Index groups, Index n, Index channels,
                                 Index batch) {
  const Index shape[] = {batch, groups, n, channels};
  return array(std::move(v), shape);
}

ConstTensorView TermStore::array(std::vector<double> v, std::span<const Index> shape) {
  Index n = 1;
  for (const Index s : shape) n *= s;
  check_filled(v.size(), {n});
  values.push_back(kept(std::move(v)));
  return tensor(static_cast<const void*>(values.back().data()), DType::f64, shape);
}

ConstHeads TermStore::vectors(std::vector<double> v, Index batch, Index tokens, Index groups,
                              Index channels) {
  check_filled(v.size(), {batch, tokens, groups, channels});
  values.push_back(kept(std::move(v)));
  return heads(tensor(std::as_const(values.back()).data(), {batch, tokens, groups, channels}),
               HeadsLayout::bthd);
}

IndexLine TermStore::line(std::vector<std::int32_t> row, Index lo, std::int32_t axis) {
  if (row.empty()) refuse(kStore, "a line must have at least one row, size", Index{0});
  rows.push_back(std::move(row));
  return {rows.back().data(), static_cast<Index>(rows.back().size()), lo, nullptr, axis};
}

IndexLine TermStore::line(std::vector<std::int32_t> row, std::vector<double> edges,
                          std::int32_t axis) {
  if (row.size() != edges.size() + 1)
    refuse(kStore,
           "a line by edges must have one row more than edges, " + std::to_string(edges.size() + 1),
           static_cast<Index>(row.size()));
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (std::isnan(edges[i]) || (i > 0 && edges[i] < edges[i - 1]))
      refuse_field(kStore, "edges", "must be numbers that do not decrease", edges[i]);
  rows.push_back(std::move(row));
  values.push_back(std::move(edges));
  // A single row has no edge, and no memory either: by whole distances it is the same line.
  const double* first = values.back().empty() ? nullptr : values.back().data();
  return {rows.back().data(), static_cast<Index>(rows.back().size()), 0, first, axis};
}

IndexPair TermStore::pair(std::vector<std::int32_t> row, Index query_classes, Index key_classes) {
  if (query_classes < 1 || key_classes < 1 ||
      static_cast<Index>(row.size()) != query_classes * key_classes)
    refuse(kStore, "a pair must have a row for every two classes, size",
           static_cast<Index>(row.size()));
  rows.push_back(std::move(row));
  return {rows.back().data(), query_classes, key_classes, {}, {}};
}

void LoweredTerms::add(const Term& t) {
  check_rows(t);
  terms.push_back(t);
}

const DistanceRange& ScoreShape::range(Index axis) const {
  if (axis < 0 || axis >= static_cast<Index>(distance.size()))
    refuse_field("shape", "distance",
                 "must have a range for each axis of the positions that a scheme reads, " +
                     std::to_string(axis + 1) + " or more",
                 static_cast<Index>(distance.size()));
  return distance[static_cast<std::size_t>(axis)];
}

double ScoreShape::content_scale() const noexcept {
  return scale ? *scale : 1 / std::sqrt(static_cast<double>(head_dim));
}

ScoreAxes::ScoreAxes(const ScoreShape& s)
    : heads(s.heads, "heads"),
      head_dim(s.head_dim, "head_dim"),
      value_dim(s.value_dim == 0 ? head_dim : AxisSize(s.value_dim, "value_dim")) {}

void check_score_shape(const ScoreShape& s, std::string_view who) {
  if (s.heads < 1 || s.heads > 65536)
    refuse_field(who, "heads", "must lie between 1 and 65536", s.heads);
  if (s.head_dim < 1 || s.head_dim > 65536)
    refuse_field(who, "head_dim", "must lie between 1 and 65536", s.head_dim);
  if (s.value_dim < 0 || s.value_dim > 65536)
    refuse_field(who, "value_dim", "must lie between 0 and 65536", s.value_dim);
  if (s.scale && !std::isfinite(*s.scale)) refuse_field(who, "scale", "must be finite", *s.scale);
  for (const DistanceRange& d : s.distance) {
    if (d.min > d.max) refuse(who, "min of the distances must not be above their max", d.min);
    for (std::size_t n = 0; n < d.runs.size(); ++n) {
      const bool ends =
          (n > 0 || d.runs[n].first == d.min) && (n + 1 < d.runs.size() || d.runs[n].last == d.max);
      if (!ends || d.runs[n].first > d.runs[n].last ||
          (n > 0 && d.runs[n].first <= d.runs[n - 1].last))
        refuse(who, "runs of distances must ascend from min to max without overlap",
               d.runs[n].first);
    }
  }
}

}  // namespace posenc::v0
