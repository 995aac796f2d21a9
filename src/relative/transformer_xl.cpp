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

}  // namespace

// Of each head, table [n, head_dim] = R [n, d_model] W_kR^T [d_model, head_dim].
void TransformerXl::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                          LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kWho, needed.size(), p.size());
  const std::vector<double> w = parameter_values(kWho, needed[0], p[0]);
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  const Index lo = low(s), n = high(s) - lo + 1, dim = s.head_dim;
  std::vector<double> table(static_cast<std::size_t>(s.heads * n * dim), 0.0);
  std::vector<std::int32_t> row(static_cast<std::size_t>(n));
  std::iota(row.begin(), row.end(), 0);
  const std::vector<double> rows = sinusoids(*this, lo, n);
  for (Index h = 0; h < s.heads; ++h)
    detail::add_product({rows.data(), n, d_model, d_model, 1},
                        {w.data() + h * dim * d_model, d_model, dim, 1, d_model},
                        {table.data() + h * n * dim, dim, 1});
  Term keys;
  keys.kind = TermKind::query_bias;
  keys.scale = scale;
  keys.query_bias = out.table(parameter_values(kWho, needed[1], p[1]), {s.heads, dim});
  out.terms.push_back(keys);
  Term distance;
  distance.kind = TermKind::query_rows;
  distance.scale = scale;
  distance.lines[0] = out.line(std::move(row), lo);
  distance.table = out.table(std::move(table), {s.heads, n, dim});
  distance.query_bias = out.table(parameter_values(kWho, needed[2], p[2]), {s.heads, dim});
  out.terms.push_back(distance);
}

// Of each head, dW_kR [head_dim, d_model] = dtable^T [head_dim, n] R [n, d_model].
void TransformerXl::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                              std::span<const TermGradient> g,
                              std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kWho, needed.size(), p.size());
  const Index lo = low(s), n = high(s) - lo + 1, dim = s.head_dim;
  const std::vector<double> d =
      gradient_values(kWho, gradient_of(kWho, g, 1).table, {s.heads, n, dim});
  std::vector<double> dw(static_cast<std::size_t>(s.heads * dim * d_model), 0.0);
  const std::vector<double> rows = sinusoids(*this, lo, n);
  for (Index h = 0; h < s.heads; ++h)
    detail::add_product({d.data() + h * n * dim, dim, n, 1, dim},
                        {rows.data(), n, d_model, d_model, 1},
                        {dw.data() + h * dim * d_model, d_model, 1});
  const auto bias = [&](std::size_t term) {
    return gradient_values(kWho, gradient_of(kWho, g, term).query_bias, {s.heads, dim});
  };
  accumulate(kWho, needed, dp, std::vector<std::vector<double>>{dw, bias(0), bias(1)});
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
  if (high(s) - low(s) >= Index{1} << 31)
    refuse("transformer_xl", "a table must have fewer than 2^31 distances", high(s) - low(s));
}

}  // namespace posenc::v0
