// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/clipped.h"

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kClipped = Clipped::card.name;

detail::TermNames clipped_terms(const Clipped& c) {
  return {kClipped, {{"distances"}, {"masked", c.masked_row}}};
}

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
  const detail::TermNames names = clipped_terms(*this);
  detail::NamedTerms terms(names, out);
  if (!masked_row) return terms.add("distances", t);
  ProductTerm masked = detail::number_term(rows_of_heads, {}, 1);
  t.pair = out.pair({-1, -1, -1, 0}, 2, 2);
  masked.pair = out.pair({0, 0, 0, -1}, 2, 2);
  terms.add("distances", t);
  terms.add("masked", masked);
}

void Clipped::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                   std::span<Term> terms, TermStore& store) const {
  if (!masked_row) return;
  const detail::CallInputs given(*this, s, call);
  const auto classes = [&](const char* name, Index tokens) {
    return given[name].empty() ? detail::one_class(store, tokens, 1) : given[name];
  };
  const ConstTensorView query = classes("query_mask", call.queries);
  detail::bind_pairs(terms, query, classes("key_mask", call.keys));
}

void Clipped::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                        const LoweredGradient& g, std::span<const TensorView> dp,
                        std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  std::vector<double> d(static_cast<std::size_t>(s.heads * rows()), 0.0);
  const detail::TermNames names = clipped_terms(*this);
  const detail::TermGradients of(names, g);
  add_to(d, of.table("distances", {1, s.heads, rows(), 1}));
  if (masked_row) add_to(d, of.table("masked", {1, s.heads, rows(), 1}));
  if (!heads_first) d = detail::transposed_list(d, s.heads, rows());
  detail::LearnedGradients to(value);
  to["table"] = d;
  to.accumulate(dp);
}

}  // namespace posenc::v0
