// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/transformer_xl.h"

#include <cmath>
#include <vector>
#include "posenc/core/error.h"

#include <numeric>

#include "core/matmul.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kWho = "transformer_xl";

// R_delta of lo .. lo + n - 1, a row each.
std::vector<double> sinusoids(const TransformerXl& t, Index lo, Index n) {
  std::vector<double> rows;
  rows.reserve(static_cast<std::size_t>(n * t.d_model));
  for (Index r = 0; r < n; ++r) {
    const std::vector<double> row = t.sinusoid(lo + r);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

// W_kR R of every distance, [heads, n, head_dim].
std::vector<double> projected(const TransformerXl& t, const ScoreShape& s,
                              const std::vector<double>& w, Index lo, Index n) {
  const Index dim = s.head_dim, width = t.d_model;
  std::vector<double> table(static_cast<std::size_t>(s.heads * n * dim), 0.0);
  const std::vector<double> rows = sinusoids(t, lo, n);
  for (Index h = 0; h < s.heads; ++h)
    detail::add_product({rows.data(), n, width, width, 1},
                        {w.data() + h * dim * width, width, dim, 1, width},
                        {table.data() + h * n * dim, dim, 1});
  return table;
}

// The gradient of u, [heads, head_dim]; zeros where it is not given.
std::vector<double> vector_gradient(const ConstHeads& g, const ScoreShape& s) {
  const std::vector<Index> shape{1, 1, s.heads, s.head_dim};
  if (g.data == nullptr) return gradient_values(kWho, ConstTensorView{}, shape);
  const Index sizes[] = {g.batch, g.tokens, g.heads, g.dim};
  const Index strides[] = {g.batch_stride, g.token_stride, g.head_stride, g.dim_stride};
  return gradient_values(kWho, tensor(g.data, g.dtype, sizes, strides), shape);
}

}  // namespace

// Of each head, table [n, head_dim] = R [n, d_model] W_kR^T [d_model, head_dim], and the numbers
// [n] = table v of the third term.
void TransformerXl::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                          LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kWho, needed.size(), p.size());
  const std::vector<double> v = parameter_values(kWho, needed[2], p[2]);
  const Index lo = low(s), n = high(s) - lo + 1, dim = s.head_dim;
  std::vector<double> table = projected(*this, s, parameter_values(kWho, needed[0], p[0]), lo, n);
  std::vector<double> numbers(static_cast<std::size_t>(s.heads * n), 0.0);
  for (Index h = 0; h < s.heads; ++h)
    detail::add_product({table.data() + h * n * dim, n, dim, dim, 1},
                        {v.data() + h * dim, dim, 1, 1, 1}, {numbers.data() + h * n, 1, 1});
  std::vector<std::int32_t> row(static_cast<std::size_t>(n));
  std::iota(row.begin(), row.end(), 0);
  Term keys, queries, positions;
  keys.scale = queries.scale = positions.scale = s.content_scale();
  keys.query.given = out.vectors(parameter_values(kWho, needed[1], p[1]), 1, 1, s.heads, dim);
  keys.key = kContent;
  queries.query = kContent;
  queries.lines[0] = positions.lines[0] = out.line(std::move(row), lo);
  queries.table = out.table(std::move(table), s.heads, n, dim);
  positions.table = out.table(std::move(numbers), s.heads, n, 1);
  out.add(keys);
  out.add(queries);
  out.add(positions);
}

// Of each head, with d [n, head_dim] the gradient of the table and e [n] that of the numbers:
// d += e v^T, dv = table^T e, dW_kR [head_dim, d_model] = d^T [head_dim, n] R [n, d_model].
void TransformerXl::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData&, const LoweredGradient& g,
                              std::span<const TensorView> dp, std::span<const TensorView>) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kWho, needed.size(), p.size());
  const Index lo = low(s), n = high(s) - lo + 1, dim = s.head_dim;
  const std::vector<double> v = parameter_values(kWho, needed[2], p[2]);
  const std::vector<double> table =
      projected(*this, s, parameter_values(kWho, needed[0], p[0]), lo, n);
  const std::vector<double> du = vector_gradient(gradient_of(kWho, g.terms, 0).query, s);
  std::vector<double> d =
      gradient_values(kWho, gradient_of(kWho, g.terms, 1).table, {1, s.heads, n, dim});
  const std::vector<double> e =
      gradient_values(kWho, gradient_of(kWho, g.terms, 2).table, {1, s.heads, n, 1});
  std::vector<double> dw(static_cast<std::size_t>(s.heads * dim * d_model), 0.0);
  std::vector<double> dv(static_cast<std::size_t>(s.heads * dim), 0.0);
  const std::vector<double> rows = sinusoids(*this, lo, n);
  for (Index h = 0; h < s.heads; ++h) {
    double* dh = d.data() + h * n * dim;
    detail::add_product({e.data() + h * n, n, 1, 1, 1}, {v.data() + h * dim, 1, dim, dim, 1},
                        {dh, dim, 1});
    detail::add_product({e.data() + h * n, 1, n, n, 1},
                        {table.data() + h * n * dim, n, dim, dim, 1},
                        {dv.data() + h * dim, dim, 1});
    detail::add_product({dh, dim, n, 1, dim}, {rows.data(), n, d_model, d_model, 1},
                        {dw.data() + h * dim * d_model, d_model, 1});
  }
  accumulate(kWho, needed, dp, std::vector<std::vector<double>>{dw, du, dv});
}

std::vector<double> TransformerXl::sinusoid(Index delta) const {
  const Index half = d_model / 2;
  std::vector<double> r(static_cast<std::size_t>(d_model));
  for (Index m = 0; m < half; ++m) {
    const double angle = static_cast<double>(delta) *
                         std::pow(base, -2 * static_cast<double>(m) / static_cast<double>(d_model));
    r[static_cast<std::size_t>(m)] = std::sin(angle);
    r[static_cast<std::size_t>(half + m)] = std::cos(angle);
  }
  return r;
}

std::vector<Parameter> TransformerXl::parameters(const ScoreShape& s) const {
  check_fields(s);
  const Initial normal{InitialKind::normal, 0, init};
  return {{"w_kr", {s.heads * s.head_dim, d_model}, normal, {}},
          {"u", {s.heads, s.head_dim}, normal, {}},
          {"v_bias", {s.heads, s.head_dim}, normal, {}}};
}

void TransformerXl::check_fields(const ScoreShape& s) const {
  check_score_shape(s, "transformer_xl");
  if (d_model < 2 || d_model % 2 != 0)
    refuse("transformer_xl", "d_model must be positive and even", d_model);
  if (!std::isfinite(base) || base <= 0)
    refuse("transformer_xl", "base must be finite and positive", base);
  if (clamp_len < 0) refuse("transformer_xl", "clamp_len must not be negative", clamp_len);
  if (!s.distance.empty() && high(s) - low(s) >= Index{1} << 31)
    refuse("transformer_xl", "a table must have fewer than 2^31 distances", high(s) - low(s));
}

}  // namespace posenc::v0
