// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/decomposed.h"

#include <algorithm>
#include <cmath>

#include "posenc/core/error.h"
#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kDecomposed = Decomposed::card.name;

// The two rows of a table of `from` rows that row `r` of `to` rows lies between, and the fraction of
// the second: pixel centres, as PyTorch's linear interpolation without align_corners.
struct Between {
  Index first, second;
  double fraction;
};
Between decomposed_between(Index r, Index from, Index to) {
  const double x = std::max(
      (static_cast<double>(r) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5,
      0.0);
  const Index first = std::min(static_cast<Index>(x), from - 1);
  return {first, std::min(first + 1, from - 1), x - static_cast<double>(first)};
}

}  // namespace

struct Decomposed::Axis {
  Index rows, stored;
  double origin;  // distance + origin is the row

  std::vector<double> resized(const std::vector<double>& v, Index dim) const {
    if (rows == stored) return v;
    std::vector<double> out(static_cast<std::size_t>(rows * dim));
    for (Index r = 0; r < rows; ++r) {
      const Between b = decomposed_between(r, stored, rows);
      for (Index c = 0; c < dim; ++c)
        out[static_cast<std::size_t>(r * dim + c)] =
            (1 - b.fraction) * v[static_cast<std::size_t>(b.first * dim + c)] +
            b.fraction * v[static_cast<std::size_t>(b.second * dim + c)];
    }
    return out;
  }
  std::vector<double> gradient(const std::vector<double>& d, Index dim) const {
    if (rows == stored) return d;
    std::vector<double> out(static_cast<std::size_t>(stored * dim));
    for (Index r = 0; r < rows; ++r) {
      const Between b = decomposed_between(r, stored, rows);
      for (Index c = 0; c < dim; ++c) {
        const double x = d[static_cast<std::size_t>(r * dim + c)];
        out[static_cast<std::size_t>(b.first * dim + c)] += (1 - b.fraction) * x;
        out[static_cast<std::size_t>(b.second * dim + c)] += b.fraction * x;
      }
    }
    return out;
  }
  // Row of every distance; by edges where the origin is no whole number.
  IndexLine line(TermStore& store, std::int32_t axis) const {
    const double whole = std::floor(origin);
    if (whole == origin)
      return detail::line_over(
          kDecomposed, store, {-static_cast<Index>(whole), rows - 1 - static_cast<Index>(whole)},
          [&](Index d) { return d + static_cast<Index>(whole); }, axis);
    std::vector<std::int32_t> row;
    std::vector<double> edges;
    for (Index r = 0; r < rows; ++r) {
      row.push_back(static_cast<std::int32_t>(r));
      if (r > 0) edges.push_back(static_cast<double>(r) - origin);
    }
    return store.line(std::move(row), std::move(edges), axis);
  }
};

Decomposed::Axis Decomposed::axis(std::size_t n) const {
  const Index q = size[n], k = key_size.empty() ? q : key_size[n], rows = 2 * std::max(q, k) - 1;
  const double ratio = std::max(static_cast<double>(q) / static_cast<double>(k), 1.0);
  return {rows, table_rows.empty() ? rows : table_rows[n], static_cast<double>(k - 1) * ratio};
}

namespace {

// Of axis n: a grid of two axes has rows and columns, one of three frames too.
const char* decomposed_table(const Decomposed& x, std::size_t n) {
  const char* names[] = {"rel_pos_t", "rel_pos_h", "rel_pos_w"};
  return names[n + 3 - x.size.size()];
}

}  // namespace

std::vector<Parameter> Decomposed::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  std::vector<Parameter> p;
  for (std::size_t n = 0; n < size.size(); ++n)
    p.push_back({decomposed_table(*this, n), {axis(n).stored, axes.head_dim}, {}, {}});
  return p;
}

std::vector<Input> Decomposed::inputs(const ScoreShape&) const {
  return class_token ? detail::class_inputs() : std::vector<Input>{};
}

void Decomposed::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                       LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  for (std::size_t n = 0; n < size.size(); ++n) {
    const Axis a = axis(n);
    ProductTerm t = detail::query_term(
        out.table(a.resized(value[decomposed_table(*this, n)], s.head_dim), 1, a.rows, s.head_dim),
        a.line(out, static_cast<std::int32_t>(n)), 1);
    if (class_token) t.pair = detail::patches_alone(out);
    out.add(t);
  }
}

void Decomposed::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                      std::span<Term> terms, TermStore&) const {
  if (class_token) detail::bind_classes(kDecomposed, call, terms);
}

void Decomposed::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                           const LoweredGradient& g, std::span<const TensorView> dp,
                           std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  for (std::size_t n = 0; n < size.size(); ++n)
    to[decomposed_table(*this, n)] =
        axis(n).gradient(gradient_values(kDecomposed, gradient_of(kDecomposed, g.terms, n).table,
                                         {1, 1, axis(n).rows, s.head_dim}),
                         s.head_dim);
  to.accumulate(dp);
}

void Decomposed::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kDecomposed);
  const auto sizes = static_cast<Index>(size.size());
  if (sizes != 2 && sizes != 3) refuse_field(kDecomposed, "size", "must have 2 or 3 axes", sizes);
  const auto check = [&](const std::vector<Index>& list, const char* name) {
    if (!list.empty() && list.size() != size.size())
      refuse_field(kDecomposed, name, "must have an entry for each axis of size",
                   static_cast<Index>(list.size()));
    for (const Index n : list)
      if (n < 1 || n > 65536) refuse_field(kDecomposed, name, "must lie between 1 and 65536", n);
  };
  check(size, "size");
  check(key_size, "key_size");
  check(table_rows, "table_rows");
}

}  // namespace posenc::v0
