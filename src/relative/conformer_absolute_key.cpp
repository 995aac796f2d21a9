// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/conformer_absolute_key.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/lowering.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kAbsoluteKey = "conformer_absolute_key";

detail::XlProjection absolute_key_projection(const ConformerAbsoluteKey& c, const ScoreShape& s) {
  return {s.heads, s.head_dim, c.d_model, false};
}

}  // namespace

std::vector<Parameter> ConformerAbsoluteKey::parameters(const ScoreShape& s) const {
  check_fields(s);
  const double limit = 1 / std::sqrt(static_cast<double>(d_model));
  const Initial bias = detail::xl_glorot(s.heads, s.head_dim);
  return {{"P",
           {rows, d_model},
           {},
           detail::xl_sinusoids({0, rows - 1}, d_model, base, detail::XlLayout::interleaved)},
          {"w_kr", {s.heads * s.head_dim, d_model}, {InitialKind::uniform, -limit, limit}, {}},
          {"u", {s.heads, s.head_dim}, bias, {}},
          {"v_bias", {s.heads, s.head_dim}, bias, {}}};
}

std::vector<Input> ConformerAbsoluteKey::inputs(const ScoreShape& s) const {
  check_fields(s);
  return {{.name = "key_row", .shape = {kBatch, kKeys}, .integer = true}};
}

// A pair of one class of queries and a class for every row: the row depends on the key alone.
void ConformerAbsoluteKey::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                                 LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kAbsoluteKey, needed.size(), p.size());
  const auto value = [&](std::size_t i) { return parameter_values(kAbsoluteKey, needed[i], p[i]); };
  std::vector<std::int32_t> row(static_cast<std::size_t>(rows));
  std::iota(row.begin(), row.end(), 0);
  const IndexPair pair = out.pair(std::move(row), 1, rows);
  detail::XlScore{kAbsoluteKey, s, s.content_scale(), s.heads, rows}.add(
      absolute_key_projection(*this, s).table(value(0), rows, value(1)), value(2), value(3), {},
      out, pair);
}

void ConformerAbsoluteKey::bind(const ScoreShape&, std::span<const ConstTensorView>,
                                const CallData& call, std::span<Term> terms,
                                TermStore& store) const {
  store.rows.emplace_back(static_cast<std::size_t>(call.queries), 0);
  const Index shape[] = {1, call.queries};
  for (Term& t : terms) {
    if (t.pair.row == nullptr) continue;
    t.pair.query_class =
        tensor(static_cast<const void*>(store.rows.back().data()), DType::i32, shape);
    t.pair.key_class = call.inputs[0];
  }
}

void ConformerAbsoluteKey::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                                     const CallData&, const LoweredGradient& g,
                                     std::span<const TensorView> dp,
                                     std::span<const TensorView>) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kAbsoluteKey, needed.size(), p.size());
  const auto value = [&](std::size_t i) { return parameter_values(kAbsoluteKey, needed[i], p[i]); };
  const detail::XlProjection to_heads = absolute_key_projection(*this, s);
  detail::XlScore::Gradient d =
      detail::XlScore{kAbsoluteKey, s, s.content_scale(), s.heads, rows}.pull_back(
          g, to_heads.table(value(0), rows, value(1)), value(3));
  accumulate(kAbsoluteKey, needed, dp,
             std::vector<std::vector<double>>{to_heads.row_gradient(value(1), rows, d.table),
                                              to_heads.weight_gradient(value(0), rows, d.table),
                                              std::move(d.u), std::move(d.v)});
}

void ConformerAbsoluteKey::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kAbsoluteKey);
  detail::xl_check_sinusoid(kAbsoluteKey, "d_model", d_model, base);
  if (rows < 1 || rows > 16777216) refuse(kAbsoluteKey, "rows must lie between 1 and 2^24", rows);
}

}  // namespace posenc::v0
