// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/indexed.h"

#include <algorithm>
#include <cmath>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kIndexed = Indexed::card.name;

Index indexed_at(const ConstTensorView& t, Index i, Index j) {
  const Index o = i * t.stride[0] + j * t.stride[1];
  return t.dtype == DType::i64 ? static_cast<const std::int64_t*>(t.data)[o]
                               : static_cast<const std::int32_t*>(t.data)[o];
}

}  // namespace

Index Indexed::channels(const ScoreShape& s) const noexcept {
  if (meets == IndexedMeets::nothing) return 1;
  return meets == IndexedMeets::value && s.value_dim > 0 ? s.value_dim : s.head_dim;
}

std::vector<Parameter> Indexed::parameters(const ScoreShape& s) const {
  check_score_shape(s, kIndexed);
  if (rows < 1 || rows > 1000000000)
    refuse_field(kIndexed, "rows", "must lie between 1 and 1e9", rows);
  if (groups < 0 || (groups > 0 && s.heads % groups != 0))
    refuse_field(kIndexed, "groups", "must be 0 or divide the heads", groups);
  if (!std::isfinite(scale)) refuse_field(kIndexed, "scale", "must be finite", scale);
  const ScoreAxes axes(s);
  const AxisSize g = groups == 0 ? axes.heads : AxisSize(groups);
  const AxisSize c = meets == IndexedMeets::value ? axes.value_dim : axes.head_dim;
  const bool by_row = table == IndexedTable::rows;
  ArrayShape shape = by_row ? ArrayShape{g, rows, c} : ArrayShape{g, c, rows};
  if (meets == IndexedMeets::nothing) shape = by_row ? ArrayShape{g, rows} : ArrayShape{rows, g};
  return {{"table", shape, {InitialKind::truncated_normal, 0, 0.02}, {}}};
}

std::vector<Input> Indexed::inputs(const ScoreShape&) const {
  return {{"index", {key_first ? kKeys : kQueries, key_first ? kQueries : kKeys}, true}};
}

// The axes of the parameter to [groups, rows, channels], or back.
std::vector<double> Indexed::moved(const ScoreShape& s, std::vector<double> v, bool back) const {
  if (table == IndexedTable::rows) return v;
  const Index g = tables(s), c = channels(s);
  if (meets == IndexedMeets::nothing)
    return back ? detail::transposed_list(v, g, rows) : detail::transposed_list(v, rows, g);
  std::vector<double> out;
  out.reserve(v.size());
  const Index one = rows * c;
  for (Index n = 0; n < g; ++n) {
    const auto from = v.begin() + n * one;
    const std::vector<double> part(from, from + one);
    const std::vector<double> moved_part =
        back ? detail::transposed_list(part, rows, c) : detail::transposed_list(part, c, rows);
    out.insert(out.end(), moved_part.begin(), moved_part.end());
  }
  return out;
}

void Indexed::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                    LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  ProductTerm t =
      detail::number_term(out.table(moved(s, value["table"], false), tables(s), rows, channels(s)),
                          {}, scale * (content_scale ? s.content_scale() : 1));
  if (meets == IndexedMeets::query) t.query = kContent;
  if (meets == IndexedMeets::key) t.key = kContent;
  if (meets == IndexedMeets::value) return out.add(ValueRowsTerm{{t}, t.scale});
  out.add(t);
}

// The classes of the pair are the numbers of the tokens.
void Indexed::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                   std::span<Term> terms, TermStore& store) const {
  const ConstTensorView given = detail::CallInputs(*this, s, call)["index"];
  if (given.rank != 2)
    refuse_field(kIndexed, "index", "must be [queries, keys] or [keys, queries]",
                 Index{given.rank});
  std::vector<std::int32_t> row, number;
  row.reserve(static_cast<std::size_t>(call.queries * call.keys));
  for (Index i = 0; i < call.queries; ++i)
    for (Index j = 0; j < call.keys; ++j) {
      const Index r = key_first ? indexed_at(given, j, i) : indexed_at(given, i, j);
      if (r >= rows) refuse_field(kIndexed, "index", "must be below rows", r);
      row.push_back(static_cast<std::int32_t>(std::max(r, Index{-1})));
    }
  // Without tokens one class each, which nobody has.
  const Index queries = std::max<Index>(1, call.queries), keys = std::max<Index>(1, call.keys);
  row.resize(static_cast<std::size_t>(queries * keys), -1);
  const Index most = std::max(queries, keys);
  for (Index i = 0; i < most; ++i) number.push_back(static_cast<std::int32_t>(i));
  store.rows.push_back(std::move(number));
  const auto numbers = [&](Index n) {
    return tensor(static_cast<const void*>(store.rows.back().data()), DType::i32, {1, n});
  };
  const ConstTensorView query = numbers(call.queries), key = numbers(call.keys);
  picked_rows(terms[0])->pair = store.pair(std::move(row), queries, keys);
  detail::bind_pairs(terms, query, key);
}

void Indexed::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                        const LoweredGradient& g, std::span<const TensorView> dp,
                        std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> d =
      moved(s,
            gradient_values(kIndexed, gradient_of(kIndexed, g.terms, 0).table,
                            {1, tables(s), rows, channels(s)}),
            true);
  detail::LearnedGradients to(value);
  to["table"] = d;
  to.accumulate(dp);
}

}  // namespace posenc::v0
