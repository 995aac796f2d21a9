// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/transformer_xl.h"

#include <numeric>
#include <vector>

#include "posenc/core/error.h"
#include "relative/xl_rows.h"

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

detail::XlProjection projection(const TransformerXl& t, const ScoreShape& s) {
  return {s.heads, s.head_dim, t.d_model, false};
}

}  // namespace

// Of each head, table [n, head_dim] = R [n, d_model] W_kR^T [d_model, head_dim], and the numbers
// [n] = table v of the third term.
void TransformerXl::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                          LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kWho, needed.size(), p.size());
  const Index lo = low(s), n = high(s) - lo + 1;
  std::vector<double> table = projection(*this, s).table(sinusoids(*this, lo, n), n,
                                                         parameter_values(kWho, needed[0], p[0]));
  std::vector<double> numbers =
      detail::xl_numbers(s, parameter_values(kWho, needed[2], p[2]), table, s.heads, n);
  std::vector<std::int32_t> row(static_cast<std::size_t>(n));
  std::iota(row.begin(), row.end(), 0);
  const IndexLine line = out.line(std::move(row), lo);
  out.add(detail::xl_key_term(s, parameter_values(kWho, needed[1], p[1]), out));
  out.add(detail::xl_query_term(s, out.table(std::move(table), s.heads, n, s.head_dim), line));
  out.add(detail::xl_number_term(s, out.table(std::move(numbers), s.heads, n, 1), line));
}

// Of each head, with d [n, head_dim] the gradient of the table and e [n] that of the numbers:
// d += e v^T, dv = table^T e, dW_kR [head_dim, d_model] = d^T [head_dim, n] R [n, d_model].
void TransformerXl::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData&, const LoweredGradient& g,
                              std::span<const TensorView> dp, std::span<const TensorView>) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kWho, needed.size(), p.size());
  const Index lo = low(s), n = high(s) - lo + 1;
  const detail::XlProjection to_heads = projection(*this, s);
  const std::vector<double> rows = sinusoids(*this, lo, n);
  const std::vector<double> table =
      to_heads.table(rows, n, parameter_values(kWho, needed[0], p[0]));
  const std::vector<double> du =
      detail::xl_vector_gradient(kWho, gradient_of(kWho, g.terms, 0).query, s);
  std::vector<double> d =
      gradient_values(kWho, gradient_of(kWho, g.terms, 1).table, {1, s.heads, n, s.head_dim});
  const std::vector<double> e =
      gradient_values(kWho, gradient_of(kWho, g.terms, 2).table, {1, s.heads, n, 1});
  const std::vector<double> dv =
      detail::xl_numbers_back(s, e, parameter_values(kWho, needed[2], p[2]), table, s.heads, n, d);
  const std::vector<double> dw = to_heads.weight_gradient(rows, n, d);
  accumulate(kWho, needed, dp, std::vector<std::vector<double>>{dw, du, dv});
}

std::vector<double> TransformerXl::sinusoid(Index delta) const {
  return detail::xl_sinusoid(delta, d_model, base, detail::XlLayout::halves);
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
  detail::xl_check_sinusoid(kWho, "d_model", d_model, base);
  if (clamp_len < 0) refuse("transformer_xl", "clamp_len must not be negative", clamp_len);
  if (!s.distance.empty() && high(s) - low(s) >= Index{1} << 31)
    refuse("transformer_xl", "a table must have fewer than 2^31 distances", high(s) - low(s));
}

}  // namespace posenc::v0
