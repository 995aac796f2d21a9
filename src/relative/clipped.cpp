// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/clipped.h"

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kClipped = Clipped::card.name;

}  // namespace

std::vector<Parameter> Clipped::parameters(const ScoreShape& s) const {
  check_score_shape(s, kClipped);
  const ScoreAxes axes(s);
  if (clip < 0 || clip > 100000000)
    refuse_field(kClipped, "clip", "must lie between 0 and 1e8", clip);
  if (axis < 0 || axis > 7) refuse_field(kClipped, "axis", "must lie between 0 and 7", axis);
  const ArrayShape shape =
      heads_first ? ArrayShape{axes.heads, rows()} : ArrayShape{rows(), axes.heads};
  return {{"table", shape, {}, {}}};
}

std::vector<Input> Clipped::inputs(const ScoreShape&) const {
  if (!masked_row) return {};
  return {{"query_mask", {kBatch, kQueries}, true, true},
          {"key_mask", {kBatch, kKeys}, true, true}};
}

void Clipped::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                    LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  std::vector<double> table = value["table"];
  if (!heads_first) table = detail::transposed_list(table, rows(), s.heads);
  const Index first = masked_row ? 1 : 0;
  const bool reversed = sign == DistanceSign::key_minus_query;
  const auto row = [&](Index d) {
    return std::clamp(reversed ? -d : d, -clip, clip) + clip + first;
  };
  const ConstTensorView rows_of_heads = out.table(std::move(table), s.heads, rows(), 1);
  ProductTerm t = detail::number_term(
      rows_of_heads,
      detail::line_over(kClipped, out, detail::clipped(s.range(axis), -clip, clip), row,
                        static_cast<std::int32_t>(axis)),
      1);
  if (!masked_row) return out.add(t);
  ProductTerm masked = detail::number_term(rows_of_heads, {}, 1);
  t.pair = out.pair({-1, -1, -1, 0}, 2, 2);
  masked.pair = out.pair({0, 0, 0, -1}, 2, 2);
  out.add(t);
  out.add(masked);
}

void Clipped::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                   std::span<Term> terms, TermStore& store) const {
  if (!masked_row) return;
  if (call.inputs.size() != 2)
    refuse_field(kClipped, "inputs", "must be query_mask and key_mask",
                 static_cast<Index>(call.inputs.size()));
  const ConstTensorView query =
      call.inputs[0].empty() ? detail::one_class(store, call.queries, 1) : call.inputs[0];
  const ConstTensorView key =
      call.inputs[1].empty() ? detail::one_class(store, call.keys, 1) : call.inputs[1];
  detail::bind_pairs(terms, query, key);
}

void Clipped::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                        const LoweredGradient& g, std::span<const TensorView> dp,
                        std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  std::vector<double> d(static_cast<std::size_t>(s.heads * rows()), 0.0);
  for (std::size_t n = 0; n < (masked_row ? 2U : 1U); ++n)
    add_to(d, gradient_values(kClipped, gradient_of(kClipped, g.terms, n).table,
                              {1, s.heads, rows(), 1}));
  if (!heads_first) d = detail::transposed_list(d, s.heads, rows());
  detail::LearnedGradients to(value);
  to["table"] = d;
  to.accumulate(dp);
}

}  // namespace posenc::v0
