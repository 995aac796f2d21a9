// SPDX-License-Identifier: Apache-2.0
#include "relative/xl_rows.h"

#include <cmath>
#include <span>
#include <utility>

#include "posenc/core/error.h"
#include "posenc/core/parameter.h"
#include "posenc/phase.h"
#include "posenc/positions/view.h"
#include "relative/lowering.h"

namespace posenc::inline v0::detail {
namespace {

// Fills rows of sinusoids, for any list of distances.
struct XlSinusoids {
  Index width;
  XlLayout layout;
  Spectrum spectrum;

  XlSinusoids(Index row_width, double base, XlLayout row_layout, bool t2t)
      : width(row_width), layout(row_layout) {
    const Index half = width / 2;
    const double most =
        t2t ? std::fmax(static_cast<double>(half - 1), 1) : static_cast<double>(width) / 2;
    for (Index m = 0; m < half; ++m)
      spectrum.frequency.push_back(std::pow(base, -static_cast<double>(m) / most));
  }
  // to [distances, width]: the sines of a row and its cosines behind them, or the two in turn.
  void fill(std::span<const Index> distances, double* to) const {
    const bool halves = layout == XlLayout::halves;
    const auto columns = [&](Index first) {
      const Index shape[] = {static_cast<Index>(distances.size()), width / 2};
      const Index stride[] = {width, halves ? 1 : 2};
      return tensor(static_cast<void*>(to + first), DType::f64, shape, stride);
    };
    phase_rows(spectrum, positions(distances), columns(halves ? width / 2 : 1), columns(0),
               TableLayout::half, Precision::exact, inline_executor());
  }
};

std::vector<Index> all_of(const DistanceRange& r, Index numbers_each) {
  return Distances("sinusoids", r, numbers_each).list();
}

}  // namespace

std::vector<double> xl_sinusoid(Index delta, Index width, double base, XlLayout layout, bool t2t) {
  return xl_sinusoids_at({delta}, width, base, layout, t2t);
}

std::vector<double> xl_sinusoids(const DistanceRange& r, Index width, double base, XlLayout layout,
                                 bool t2t) {
  return xl_sinusoids_at(all_of(r, width), width, base, layout, t2t);
}

std::vector<double> xl_sinusoids_at(const std::vector<Index>& distances, Index width, double base,
                                    XlLayout layout, bool t2t) {
  const auto n = static_cast<Index>(distances.size());
  check_distances("sinusoids", n, width);
  std::vector<double> rows(static_cast<std::size_t>(n * width));
  XlSinusoids(width, base, layout, t2t).fill(distances, rows.data());
  return rows;
}

RowBlock xl_row_blocks(const DistanceRange& r, Index width, double base, XlLayout layout) {
  return xl_row_blocks_at(all_of(r, 1), width, base, layout, false);
}

RowBlock xl_row_blocks_at(std::vector<Index> distances, Index width, double base, XlLayout layout,
                          bool t2t) {
  return [distances = std::move(distances), made = XlSinusoids(width, base, layout, t2t),
          block = std::vector<double>()](Index first, Index count) mutable {
    block.resize(static_cast<std::size_t>(count * made.width));
    made.fill(std::span(distances).subspan(static_cast<std::size_t>(first),
                                           static_cast<std::size_t>(count)),
              block.data());
    return static_cast<const double*>(block.data());
  };
}

Initial xl_glorot(Index rows, Index columns) {
  const double limit = std::sqrt(6 / static_cast<double>(rows + columns));
  return {InitialKind::uniform, -limit, limit};
}

void xl_check_sinusoid(std::string_view who, const char* field, Index width, double base) {
  if (width < 2 || width % 2 != 0) refuse_field(who, field, "must be positive and even", width);
  if (!std::isfinite(base) || base <= 0)
    refuse_field(who, "base", "must be finite and positive", base);
}

ConstTensorView XlScore::add(std::vector<double> table, std::vector<double> u,
                             const std::vector<double>& v, const IndexLine& line, LoweredTerms& out,
                             const IndexPair& pair) const {
  std::vector<double> numbers = table_dots(table, groups, v, shape.heads, n, shape.head_dim);
  ProductTerm keys;
  keys.scale = vector_scale;
  keys.query.given = out.vectors(std::move(u), 1, 1, shape.heads, shape.head_dim);
  keys.key = kContent;
  const ConstTensorView rows = out.table(std::move(table), groups, n, shape.head_dim);
  ProductTerm queries = query_term(rows, line, scale);
  ProductTerm biases =
      number_term(out.table(std::move(numbers), shape.heads, n, 1), line, vector_scale);
  queries.pair = biases.pair = pair;
  const TermNames names = terms();
  NamedTerms to(names, out);
  to.add(kXlKeys.name, keys);
  to.add(kXlRows.name, queries);
  to.add(kXlNumbers.name, biases);
  return rows;
}

XlScore::Gradient XlScore::pull_back(const LoweredGradient& g, const HeadProjection& to_heads,
                                     const RowBlock& r, const std::vector<double>& w,
                                     const std::vector<double>& v, bool wants_rows) const {
  const Index dim = shape.head_dim;
  const TermNames names = terms();
  const TermGradients of(names, g);
  const GradientNumbers table(who, of[kXlRows.name].table, {1, shape.heads, n, dim});
  const GradientNumbers numbers(who, of[kXlNumbers.name].table, {1, shape.heads, n, 1});
  Gradient d;
  d.u = vectors_gradient(who, of[kXlKeys.name].query, {1, 1, shape.heads, dim});
  d.w = to_heads.weight_gradient(r, n, table.data());
  if (wants_rows) {
    d.rows.assign(static_cast<std::size_t>(n * to_heads.width), 0.0);
    to_heads.add_row_gradient(w, n, table.data(), d.rows);
  }
  d.v = to_heads.dots_gradient(r, n, w, v, numbers.data(), d.w, wants_rows ? &d.rows : nullptr);
  return d;
}

}  // namespace posenc::v0::detail
