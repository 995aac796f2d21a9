// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/drawn_distances.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/lowering.h"

namespace posenc::inline v0::detail {
namespace {

constexpr std::string_view kDrawn = "drawn_distances";

void check_drawn(std::span<const Index> list, const char* name, Index farthest) {
  if (list.empty() || list[0] != 0)
    refuse_field(kDrawn, name, "must start at 0", list.empty() ? Index{-1} : list[0]);
  for (std::size_t d = 1; d < list.size(); ++d)
    if (list[d] <= list[d - 1]) refuse_field(kDrawn, name, "must rise", list[d]);
  if (farthest >= static_cast<Index>(list.size()))
    refuse_field(kDrawn, name, "must have an entry for every distance of the call, up to",
                 farthest);
}

Index drawn_at(Index delta, std::span<const Index> past, std::span<const Index> future) {
  return delta >= 0 ? past[static_cast<std::size_t>(delta)]
                    : -future[static_cast<std::size_t>(-delta)];
}

void check_lines(const PickedRows& t) {
  for (const IndexLine& line : t.lines)
    if (line.row != nullptr && line.axis == 0 && line.edges != nullptr)
      refuse(kDrawn, "the scheme must have terms by whole distance; it has edges", line.count);
}

// [batch, groups, distances, 1] numbers of a linear term [batch, groups, 1, 2].
ProductTerm numbers_of(const LinearTerm& linear, TermStore& store, const DistanceRange& r,
                       std::span<const Index> past, std::span<const Index> future) {
  const Index rows = linear.table.shape[0] * linear.table.shape[1];
  const double* slope = data_of<double>(linear.table);
  std::vector<double> v;
  v.reserve(static_cast<std::size_t>(rows * (r.max - r.min + 1)));
  for (Index n = 0; n < rows; ++n)
    for (Index delta = r.min; delta <= r.max; ++delta) {
      const auto d = static_cast<double>(drawn_at(delta, past, future));
      v.push_back(delta > 0 ? slope[2 * n] * d : slope[2 * n + 1] * -d);
    }
  const IndexLine line = line_over(kDrawn, store, r, [&](Index delta) { return delta - r.min; });
  return number_term(
      store.table(std::move(v), linear.table.shape[1], r.max - r.min + 1, 1, linear.table.shape[0]),
      line, linear.scale);
}

}  // namespace

ScoreShape drawn_shape(const ScoreShape& s, std::span<const Index> past,
                       std::span<const Index> future) {
  const DistanceRange& r = s.range();
  check_drawn(past, "past", std::max<Index>(r.max, 0));
  check_drawn(future, "future", std::max<Index>(-r.min, 0));
  ScoreShape d = s;
  d.distance[0] = {drawn_at(r.min, past, future), drawn_at(r.max, past, future)};
  return d;
}

void redraw_terms(LoweredTerms& out, std::size_t first, const ScoreShape& s,
                  std::span<const Index> past, std::span<const Index> future) {
  const DistanceRange& r = s.range();
  for (std::size_t n = first; n < out.terms.size(); ++n) {
    Term& t = out.terms[n];
    if (std::holds_alternative<DistanceMlpTerm>(t))
      refuse(kDrawn, "the scheme must have terms by distance; it has", term_name(t));
    const auto* linear = std::get_if<LinearTerm>(&t);
    if (linear != nullptr && linear->axis == 0) {
      t = numbers_of(LinearTerm(*linear), out, r, past, future);
    } else if (PickedRows* rows = picked_rows(t)) {
      check_lines(*rows);
      for (IndexLine& line : rows->lines) {
        if (line.row == nullptr || line.axis != 0) continue;
        const IndexLine old = line;
        line = line_over(kDrawn, out, r, [&](Index delta) {
          return row_of(old, static_cast<double>(drawn_at(delta, past, future)));
        });
      }
    }
    check_rows(t);
  }
}

DrawnGradient undraw_gradient(std::span<const Term> terms, const LoweredGradient& g,
                              const ScoreShape& s, std::span<const Index> past,
                              std::span<const Index> future) {
  const DistanceRange& r = s.range();
  DrawnGradient d;
  d.terms.assign(g.terms.begin(), g.terms.end());
  for (std::size_t n = 0; n < std::min(terms.size(), d.terms.size()); ++n) {
    const auto* t = std::get_if<LinearTerm>(&terms[n]);
    if (t == nullptr || t->axis != 0 || d.terms[n].table.empty()) continue;
    const Index batch = t->table.shape[0], groups = t->table.shape[1], count = r.max - r.min + 1;
    const std::vector<double> from =
        gradient_values(kDrawn, d.terms[n].table, {batch, groups, count, 1});
    std::vector<double> to(static_cast<std::size_t>(2 * batch * groups));
    std::size_t at = 0;
    for (std::size_t row = 0; row < to.size() / 2; ++row)
      for (Index delta = r.min; delta <= r.max; ++delta, ++at)
        to[2 * row + (delta > 0 ? 0 : 1)] +=
            from[at] * static_cast<double>(std::abs(drawn_at(delta, past, future)));
    d.values.push_back(std::move(to));
    d.terms[n].table =
        tensor(static_cast<void*>(d.values.back().data()), DType::f64, {batch, groups, 1, 2});
  }
  return d;
}

}  // namespace posenc::v0::detail
