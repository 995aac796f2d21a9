// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/cpmant.h"

#include <cmath>

#include "posenc/core/error.h"
#include "posenc/relative/t5.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kCpmAnt = CpmAnt::card.name;

constexpr detail::TermNames kCpmAntTerms{kCpmAnt, {{"within"}, {"across"}}};

Index cpmant_rows(const CpmAnt& x) {
  return x.num_buckets + x.segments * x.segments;
}

}  // namespace

std::vector<Parameter> CpmAnt::parameters(const ScoreShape& s) const {
  check_score_shape(s, kCpmAnt);
  const ScoreAxes axes(s);
  if (num_buckets < 4 || num_buckets > 65536 || num_buckets % 2 != 0)
    refuse_field(kCpmAnt, "num_buckets", "must be even and lie between 4 and 65536", num_buckets);
  if (max_distance <= num_buckets / 4)
    refuse_field(kCpmAnt, "max_distance", "must be above a quarter of the buckets", max_distance);
  if (segments < 1 || segments > 4096)
    refuse_field(kCpmAnt, "segments", "must lie between 1 and 4096", segments);
  if (!std::isfinite(init) || init < 0)
    refuse_field(kCpmAnt, "init", "must be finite and not negative", init);
  return {{"table", {cpmant_rows(*this), axes.heads}, {InitialKind::normal, 0, init}, {}}};
}

std::vector<Input> CpmAnt::inputs(const ScoreShape&) const {
  return {{.name = "query_segment", .shape = {kBatch, kQueries}, .integer = true},
          {.name = "key_segment", .shape = {kBatch, kKeys}, .integer = true}};
}

void CpmAnt::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                   LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const Index rows = cpmant_rows(*this);
  const ConstTensorView table =
      out.table(detail::transposed_list(value["table"], rows, s.heads), s.heads, rows, 1);
  // Each of two terms is void where the other serves.
  std::vector<std::int32_t> within, across;
  for (Index i = 0; i < segments; ++i)
    for (Index j = 0; j < segments; ++j) {
      within.push_back(i == j ? 0 : -1);
      across.push_back(i == j ? -1 : static_cast<std::int32_t>(num_buckets + i * segments + j));
    }
  T5 rule;
  rule.num_buckets = num_buckets;
  rule.max_distance = max_distance;
  ProductTerm near = detail::number_term(table, rule.line(s, out), 1);
  near.pair = out.pair(std::move(within), segments, segments);
  ProductTerm far = detail::number_term(table, {}, 1);
  far.pair = out.pair(std::move(across), segments, segments);
  detail::NamedTerms terms(kCpmAntTerms, out);
  terms.add("within", near);
  terms.add("across", far);
}

void CpmAnt::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                  std::span<Term> terms, TermStore&) const {
  const detail::CallInputs given(*this, s, call);
  detail::bind_pairs(terms, given["query_segment"], given["key_segment"]);
}

void CpmAnt::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                       const LoweredGradient& g, std::span<const TensorView> dp,
                       std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const Index rows = cpmant_rows(*this);
  std::vector<double> d;
  const detail::TermGradients of(kCpmAntTerms, g);
  for (const char* name : {"within", "across"}) add_to(d, of.table(name, {1, s.heads, rows, 1}));
  detail::LearnedGradients to(value);
  to["table"] = detail::transposed_list(d, s.heads, rows);
  to.accumulate(dp);
}

}  // namespace posenc::v0
