// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/irpe.h"

#include <cmath>
#include <cstdlib>

#include "posenc/core/error.h"
#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kIrpe = Irpe::card.name;

// round(sqrt(n)): no whole n has a root that ends in a half.
Index irpe_rounded_root(Index n) {
  auto r = static_cast<Index>(std::sqrt(static_cast<double>(n)));
  while (r * r > n) --r;
  while ((r + 1) * (r + 1) <= n) ++r;
  return n - r * r > r ? r + 1 : r;
}

// A half goes to the nearest even number, whatever the rounding mode is.
double irpe_round(double x) {
  const double below = std::floor(x), fraction = x - below;
  if (fraction != 0.5) return fraction < 0.5 ? below : below + 1;
  return std::fmod(below, 2.0) == 0 ? below : below + 1;
}

}  // namespace

// How the tables of a setting are kept, and how terms read them.
struct Irpe::Tables {
  const Irpe& scheme;
  Index groups, channels, rows;  // rows: of a parameter, with that of class tokens
  bool joint;                    // a row for every offset in place of one for every bucket

  Tables(const Irpe& x, const ScoreShape& s)
      : scheme(x),
        groups(x.shared ? 1 : s.heads),
        channels(x.meets == IndexedMeets::nothing                    ? 1
                 : x.meets == IndexedMeets::value && s.value_dim > 0 ? s.value_dim
                                                                     : s.head_dim),
        rows(x.buckets() + (x.class_token ? 1 : 0)),
        joint(x.method == IrpeMethod::euclidean || x.method == IrpeMethod::quantised) {}

  std::size_t count() const noexcept { return scheme.method == IrpeMethod::cross ? 2 : 1; }
  const char* name(std::size_t n) const noexcept {
    return count() == 1 ? "table" : n == 0 ? "table_rows" : "table_cols";
  }
  // The table is [groups, channels, rows].
  bool channels_first() const noexcept {
    return scheme.meets == IndexedMeets::query || scheme.meets == IndexedMeets::key;
  }
  Index lowered_rows() const noexcept {
    return joint ? window().rows() + (scheme.class_token ? 1 : 0) : rows;
  }
  detail::WindowRows window() const noexcept {
    return {scheme.height, scheme.width, scheme.meets == IndexedMeets::key, false};
  }
  // The row of the parameter that a row of the lowered table is.
  Index source(Index row) const {
    if (!joint) return row;
    const Index columns = 2 * scheme.width - 1;
    if (row == window().rows()) return rows - 1;
    return scheme.bucket(row / columns - scheme.height + 1, row % columns - scheme.width + 1);
  }
  std::vector<Index> sources() const {
    std::vector<Index> all;
    for (Index row = 0; row < lowered_rows(); ++row) all.push_back(source(row));
    return all;
  }
  std::size_t place(Index group, Index row, Index channel) const noexcept {
    return static_cast<std::size_t>(channels_first() ? (group * channels + channel) * rows + row
                                                     : (group * rows + row) * channels + channel);
  }
  // fn(place in the parameter, place in the lowered table).
  template <class F>
  void each(const F& fn) const {
    const std::vector<Index> from = sources();
    std::size_t to = 0;
    for (Index g = 0; g < groups; ++g)
      for (const Index row : from)
        for (Index c = 0; c < channels; ++c) fn(place(g, row, c), to++);
  }
  void add_lines(std::size_t n, PickedRows& t, TermStore& store) const {
    if (joint) return window().add_lines(kIrpe, t, store);
    const Index sense = scheme.meets == IndexedMeets::key ? -1 : 1;
    const auto b = static_cast<Index>(scheme.beta);
    const auto line = [&](std::int32_t axis, Index size, Index step) {
      return detail::line_over(
          kIrpe, store, {1 - size, size - 1},
          [&](Index d) { return step * (scheme.piecewise(sense * d) + b); }, axis);
    };
    const bool product = scheme.method == IrpeMethod::product;
    if (product || n == 0) t.lines[0] = line(0, scheme.height, product ? 2 * b + 1 : 1);
    if (product || n == 1) t.lines[1] = line(1, scheme.width, 1);
  }
};

Index Irpe::buckets() const noexcept {
  const Index side = 2 * static_cast<Index>(beta) + 1;
  return method == IrpeMethod::product ? side * side : side;
}

Index Irpe::piecewise(Index x) const {
  const double far = std::abs(static_cast<double>(x));
  if (far <= alpha) return x;
  const double y =
      irpe_round(alpha + std::log(far / alpha) / std::log(gamma / alpha) * (beta - alpha));
  const auto n = static_cast<Index>(std::fmin(y, beta));
  return x < 0 ? -n : n;
}

Index Irpe::bucket(Index dy, Index dx) const {
  const auto b = static_cast<Index>(beta);
  switch (method) {
    case IrpeMethod::euclidean:
      return piecewise(irpe_rounded_root(dy * dy + dx * dx)) + b;
    case IrpeMethod::quantised:
      return piecewise(dy * dy + dx * dx) + b;
    case IrpeMethod::product:
      return (piecewise(dy) + b) * (2 * b + 1) + piecewise(dx) + b;
    case IrpeMethod::cross:
      break;
  }
  return piecewise(dy) + b;
}

void Irpe::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kIrpe);
  detail::WindowRows{height, width, false, false}.check(kIrpe);
  if (!std::isfinite(alpha) || !(alpha > 0))
    refuse_field(kIrpe, "alpha", "must be finite and positive", alpha);
  if (!std::isfinite(beta) || beta < alpha || beta > 4096)
    refuse_field(kIrpe, "beta", "must lie between alpha and 4096", beta);
  if (!std::isfinite(gamma) || !(gamma > alpha))
    refuse_field(kIrpe, "gamma", "must be finite and above alpha", gamma);
}

std::vector<Parameter> Irpe::parameters(const ScoreShape& s) const {
  check_fields(s);
  const Tables t(*this, s);
  const ScoreAxes axes(s);
  const AxisSize g = shared ? AxisSize(1) : axes.heads;
  const AxisSize c = meets == IndexedMeets::nothing ? AxisSize(1)
                     : meets == IndexedMeets::value ? axes.value_dim
                                                    : axes.head_dim;
  ArrayShape shape = t.channels_first() ? ArrayShape{g, c, t.rows} : ArrayShape{g, t.rows, c};
  if (meets == IndexedMeets::nothing) shape.drop_last();
  if (method == IrpeMethod::cross)
    return {{"table_rows", shape, {}, {}}, {"table_cols", shape, {}, {}}};
  return {{"table", shape, {}, {}}};
}

std::vector<Input> Irpe::inputs(const ScoreShape&) const {
  return class_token ? detail::class_inputs() : std::vector<Input>{};
}

void Irpe::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const Tables tables(*this, s);
  const bool content = tables.channels_first();
  detail::check_distances(kIrpe, tables.lowered_rows(), tables.groups * tables.channels);
  for (std::size_t n = 0; n < tables.count(); ++n) {
    const std::vector<double> given = value[tables.name(n)];
    std::vector<double> rows(
        static_cast<std::size_t>(tables.groups * tables.lowered_rows() * tables.channels));
    tables.each([&](std::size_t from, std::size_t to) { rows[to] = given[from]; });
    ProductTerm t = detail::number_term(
        out.table(std::move(rows), tables.groups, tables.lowered_rows(), tables.channels), {},
        content ? s.content_scale() : 1);
    if (meets == IndexedMeets::query) t.query = kContent;
    if (meets == IndexedMeets::key) t.key = kContent;
    const auto add = [&](const ProductTerm& term) {
      if (meets == IndexedMeets::value) return out.add(ValueRowsTerm{{term}, term.scale});
      out.add(term);
    };
    ProductTerm classes = t;
    tables.add_lines(n, t, out);
    if (!class_token) {
      add(t);
      continue;
    }
    // Two terms of one table, each void where the other serves.
    t.pair = detail::patches_alone(out);
    const auto last = static_cast<std::int32_t>(tables.lowered_rows() - 1);
    classes.pair = out.pair({-1, last, last, last}, 2, 2);
    add(t);
    add(classes);
  }
}

void Irpe::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                std::span<Term> terms, TermStore&) const {
  if (class_token) detail::bind_classes(kIrpe, call, terms);
}

void Irpe::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const Tables tables(*this, s);
  const std::vector<Index> shape{1, tables.groups, tables.lowered_rows(), tables.channels};
  detail::LearnedGradients to(value);
  std::size_t term = 0;
  for (std::size_t n = 0; n < tables.count(); ++n) {
    std::vector<double> d;
    for (int side = 0; side < (class_token ? 2 : 1); ++side)
      add_to(d, gradient_values(kIrpe, gradient_of(kIrpe, g.terms, term++).table, shape));
    std::vector<double>& sum = to[tables.name(n)];
    sum.resize(static_cast<std::size_t>(tables.groups * tables.rows * tables.channels));
    tables.each([&](std::size_t from, std::size_t at) { sum[from] += d[at]; });
  }
  to.accumulate(dp);
}

}  // namespace posenc::v0
