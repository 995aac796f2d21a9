// SPDX-License-Identifier: Apache-2.0
#include "relative/xl_rows.h"

#include <cmath>
#include <utility>

#include "core/matmul.h"
#include "posenc/core/error.h"
#include "posenc/core/parameter.h"
#include "relative/lowering.h"

namespace posenc::inline v0::detail {
namespace {

std::vector<double> xl_zeros(Index n) {
  return std::vector<double>(static_cast<std::size_t>(n), 0.0);
}

// Of one head, W [width, head_dim].
ConstMatrix xl_head_weights(const XlProjection& p, const std::vector<double>& w, Index head) {
  if (p.in_out) return {w.data() + head * p.head_dim, p.width, p.head_dim, p.heads * p.head_dim, 1};
  return {w.data() + head * p.head_dim * p.width, p.width, p.head_dim, 1, p.width};
}

}  // namespace

std::vector<double> xl_sinusoid(Index delta, Index width, double base, XlLayout layout, bool t2t) {
  return xl_sinusoids({delta, delta}, width, base, layout, t2t);
}

std::vector<double> xl_sinusoids(const DistanceRange& r, Index width, double base, XlLayout layout,
                                 bool t2t) {
  check_distances("sinusoids", r.max - r.min + 1, width);
  const Index half = width / 2;
  const double most =
      t2t ? std::fmax(static_cast<double>(half - 1), 1) : static_cast<double>(width) / 2;
  std::vector<double> rows = xl_zeros((r.max - r.min + 1) * width), frequency = xl_zeros(half);
  for (Index m = 0; m < half; ++m)
    frequency[static_cast<std::size_t>(m)] = std::pow(base, -static_cast<double>(m) / most);
  const bool halves = layout == XlLayout::halves;
  for (Index delta = r.min; delta <= r.max; ++delta) {
    double* row = rows.data() + (delta - r.min) * width;
    // The row of -delta has the same cosines and the sines with the other sign.
    const double* mirror =
        delta > 0 && -delta >= r.min ? rows.data() + (-delta - r.min) * width : nullptr;
    for (Index m = 0; m < half; ++m) {
      const Index s = halves ? m : 2 * m, c = halves ? half + m : 2 * m + 1;
      const double angle = static_cast<double>(delta) * frequency[static_cast<std::size_t>(m)];
      row[s] = mirror != nullptr ? -mirror[s] : std::sin(angle);
      row[c] = mirror != nullptr ? mirror[c] : std::cos(angle);
    }
  }
  return rows;
}

Initial xl_glorot(Index rows, Index columns) {
  const double limit = std::sqrt(6 / static_cast<double>(rows + columns));
  return {InitialKind::uniform, -limit, limit};
}

void xl_check_sinusoid(const char* who, const char* field, Index width, double base) {
  if (width < 2 || width % 2 != 0)
    refuse(who, std::string(field) + " must be positive and even", width);
  if (!std::isfinite(base) || base <= 0) refuse(who, "base must be finite and positive", base);
}

std::vector<double> XlProjection::table(const std::vector<double>& r, Index n,
                                        const std::vector<double>& w) const {
  check_distances("projection", n, heads * head_dim);
  std::vector<double> table = xl_zeros(heads * n * head_dim);
  for (Index h = 0; h < heads; ++h)
    add_product({r.data(), n, width, width, 1}, xl_head_weights(*this, w, h),
                {table.data() + h * n * head_dim, head_dim, 1});
  return table;
}

std::vector<double> XlProjection::weight_gradient(const std::vector<double>& r, Index n,
                                                  const std::vector<double>& d_table) const {
  std::vector<double> d = xl_zeros(heads * head_dim * width);
  const ConstMatrix rows{r.data(), n, width, width, 1};
  for (Index h = 0; h < heads; ++h) {
    const ConstMatrix dt{d_table.data() + h * n * head_dim, n, head_dim, head_dim, 1};
    if (in_out)
      add_product(transposed(rows), dt, {d.data() + h * head_dim, heads * head_dim, 1});
    else
      add_product(transposed(dt), rows, {d.data() + h * head_dim * width, width, 1});
  }
  return d;
}

std::vector<double> XlProjection::row_gradient(const std::vector<double>& w, Index n,
                                               const std::vector<double>& d_table) const {
  std::vector<double> d = xl_zeros(n * width);
  for (Index h = 0; h < heads; ++h)
    add_product({d_table.data() + h * n * head_dim, n, head_dim, head_dim, 1},
                transposed(xl_head_weights(*this, w, h)), {d.data(), width, 1});
  return d;
}

ConstTensorView XlScore::add(std::vector<double> table, std::vector<double> u,
                             const std::vector<double>& v, const IndexLine& line, LoweredTerms& out,
                             const IndexPair& pair) const {
  std::vector<double> numbers = table_dots(table, groups, v, shape.heads, n, shape.head_dim);
  Term keys;
  keys.scale = scale;
  keys.query.given = out.vectors(std::move(u), 1, 1, shape.heads, shape.head_dim);
  keys.key = kContent;
  const ConstTensorView rows = out.table(std::move(table), groups, n, shape.head_dim);
  Term queries = query_term(rows, line, scale);
  Term biases = number_term(out.table(std::move(numbers), shape.heads, n, 1), line, scale);
  queries.pair = biases.pair = pair;
  out.add(keys);
  out.add(queries);
  out.add(biases);
  return rows;
}

// With d the gradient of t and e [heads, n] that of the numbers v.t: d += e v, dv = e t.
XlScore::Gradient XlScore::pull_back(const LoweredGradient& g, const std::vector<double>& table,
                                     const std::vector<double>& v) const {
  const Index dim = shape.head_dim;
  Gradient d;
  d.u = vectors_gradient(who, gradient_of(who, g.terms, 0).query, {1, 1, shape.heads, dim});
  d.table = gradient_values(who, gradient_of(who, g.terms, 1).table, {1, groups, n, dim});
  const std::vector<double> e =
      gradient_values(who, gradient_of(who, g.terms, 2).table, {1, shape.heads, n, 1});
  d.v = xl_zeros(shape.heads * dim);
  pull_table_dots(e, table, groups, v, shape.heads, n, dim, d.table, d.v);
  return d;
}

}  // namespace posenc::v0::detail
