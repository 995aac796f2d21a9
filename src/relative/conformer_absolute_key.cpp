// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/conformer_absolute_key.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kAbsoluteKey = ConformerAbsoluteKey::card.name;

detail::HeadProjection absolute_key_projection(const ConformerAbsoluteKey& c, const ScoreShape& s) {
  return {s.heads, s.head_dim, c.d_model, false};
}

// The row of P for each key of each batch row: its position, or its place where none are given.
std::vector<std::int32_t> absolute_key_rows(const CallData& call, Index rows) {
  const Positions& at = call.key_positions;
  if (at.data != nullptr && at.type != DType::i64 && at.type != DType::i32)
    refuse(kAbsoluteKey, "positions of keys must be i64 or i32", dtype_name(at.type));
  std::vector<std::int32_t> row;
  for (Index b = 0; b < (at.data == nullptr ? 1 : at.batch); ++b)
    for (Index j = 0; j < call.keys; ++j) {
      const Index offset = b * at.batch_stride + j * at.token_stride;
      const Index position = at.data == nullptr ? j
                             : at.type == DType::i64
                                 ? static_cast<const std::int64_t*>(at.data)[offset]
                                 : static_cast<const std::int32_t*>(at.data)[offset];
      if (position < 0 || position >= rows)
        refuse(kAbsoluteKey, "the position of a key must have a row of P, 0 .. rows - 1", position);
      row.push_back(static_cast<std::int32_t>(position));
    }
  return row;
}

// The last rows of the store as classes, with memory also where there is no token.
ConstTensorView absolute_key_classes(TermStore& store, Index batch, Index tokens) {
  const Index shape[] = {batch, tokens};
  store.rows.back().reserve(1);
  return tensor(static_cast<const void*>(store.rows.back().data()), DType::i32, shape);
}

}  // namespace

std::vector<Input> ConformerAbsoluteKey::inputs(const ScoreShape&) const {
  return {};
}

std::vector<Parameter> ConformerAbsoluteKey::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const double limit = 1 / std::sqrt(static_cast<double>(d_model));
  const Initial bias = detail::xl_glorot(s.heads, s.head_dim);
  return {
      {"P",
       {rows, d_model},
       {},
       detail::xl_sinusoids({0, rows - 1}, d_model, base, detail::XlLayout::interleaved)},
      {"w_kr", {axes.heads * axes.head_dim, d_model}, {InitialKind::uniform, -limit, limit}, {}},
      {"u", {axes.heads, axes.head_dim}, bias, {}},
      {"v_bias", {axes.heads, axes.head_dim}, bias, {}}};
}

// A pair of one class of queries and a class for every row: the row depends on the key alone.
void ConformerAbsoluteKey::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                                 LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  std::vector<std::int32_t> row(static_cast<std::size_t>(rows));
  std::iota(row.begin(), row.end(), 0);
  const IndexPair pair = out.pair(std::move(row), 1, rows);
  const std::vector<double> made = value["P"];
  detail::XlScore{kAbsoluteKey, s, s.content_scale(), s.heads, rows}.add(
      absolute_key_projection(*this, s).table(detail::rows_of(made, d_model), rows, value["w_kr"]),
      value["u"], value["v_bias"], {}, out, pair);
}

void ConformerAbsoluteKey::bind(const ScoreShape&, std::span<const ConstTensorView>,
                                const CallData& call, std::span<Term> terms,
                                TermStore& store) const {
  store.rows.emplace_back(static_cast<std::size_t>(call.queries), 0);
  const ConstTensorView queries = absolute_key_classes(store, 1, call.queries);
  store.rows.push_back(absolute_key_rows(call, rows));
  const Index batch = call.keys == 0 ? 1 : static_cast<Index>(store.rows.back().size()) / call.keys;
  const ConstTensorView keys = absolute_key_classes(store, batch, call.keys);
  detail::bind_pairs(terms, queries, keys);
}

void ConformerAbsoluteKey::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                                     const CallData&, const LoweredGradient& g,
                                     std::span<const TensorView> dp,
                                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const detail::HeadProjection to_heads = absolute_key_projection(*this, s);
  const std::vector<double> made = value["P"];
  detail::XlScore::Gradient d =
      detail::XlScore{kAbsoluteKey, s, s.content_scale(), s.heads, rows}.pull_back(
          g, to_heads, detail::rows_of(made, d_model), value["w_kr"], value["v_bias"], true);
  detail::LearnedGradients to(value);
  to["P"] = std::move(d.rows);
  to["w_kr"] = std::move(d.w);
  to["u"] = std::move(d.u);
  to["v_bias"] = std::move(d.v);
  to.accumulate(dp);
}

void ConformerAbsoluteKey::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kAbsoluteKey);
  detail::xl_check_sinusoid(kAbsoluteKey, "d_model", d_model, base);
  if (rows < 1 || rows > 16777216)
    refuse_field(kAbsoluteKey, "rows", "must lie between 1 and 2^24", rows);
}

}  // namespace posenc::v0
