// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/modality_pairs.h"

#include <algorithm>
#include <string>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kModalityPairs = ModalityPairs::card.name;

std::string modality_table(std::size_t t) {
  return "table_" + std::to_string(t);
}

}  // namespace

std::vector<Parameter> ModalityPairs::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  std::vector<Parameter> p{{"pairs", {modalities, modalities, axes.heads}, {}, {}}};
  for (std::size_t t = 0; t < tables(); ++t)
    p.push_back({modality_table(t), {2 * clip[t] + 1, axes.heads}, {}, {}});
  return p;
}

std::vector<Input> ModalityPairs::inputs(const ScoreShape&) const {
  return {{"query_modality", {kBatch, kQueries}, true}, {"key_modality", {kBatch, kKeys}, true}};
}

void ModalityPairs::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                          LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const Index m = modalities;
  const auto table = [&](const std::string& name, Index rows) {
    return out.table(detail::transposed_list(value[name], rows, s.heads), s.heads, rows, 1);
  };
  ProductTerm pairs = detail::number_term(table("pairs", m * m), {}, 1);
  std::vector<std::int32_t> row;
  for (Index i = 0; i < m * m; ++i) row.push_back(static_cast<std::int32_t>(i));
  pairs.pair = out.pair(std::move(row), m, m);
  out.add(pairs);
  for (std::size_t t = 0; t < tables(); ++t) {
    const Index k = clip[t], at = axis.empty() ? 0 : axis[t];
    ProductTerm one =
        detail::number_term(table(modality_table(t), 2 * k + 1),
                            detail::line_over(
                                kModalityPairs, out, detail::clipped(s.range(at), -k, k),
                                [k](Index d) { return d + k; }, static_cast<std::int32_t>(at)),
                            1);
    std::vector<std::int32_t> serves(static_cast<std::size_t>(m * m), -1);
    serves[static_cast<std::size_t>(query_modality[t] * m + keys_of(t))] = 0;
    one.pair = out.pair(std::move(serves), m, m);
    out.add(one);
  }
}

void ModalityPairs::bind(const ScoreShape& s, std::span<const ConstTensorView>,
                         const CallData& call, std::span<Term> terms, TermStore&) const {
  const detail::CallInputs given(*this, s, call);
  detail::bind_pairs(terms, given["query_modality"], given["key_modality"]);
}

void ModalityPairs::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData&, const LoweredGradient& g,
                              std::span<const TensorView> dp, std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  const auto take = [&](const std::string& name, std::size_t term, Index rows) {
    to[name] = detail::transposed_list(
        gradient_values(kModalityPairs, gradient_of(kModalityPairs, g.terms, term).table,
                        {1, s.heads, rows, 1}),
        s.heads, rows);
  };
  take("pairs", 0, modalities * modalities);
  for (std::size_t t = 0; t < tables(); ++t) take(modality_table(t), t + 1, 2 * clip[t] + 1);
  to.accumulate(dp);
}

void ModalityPairs::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kModalityPairs);
  if (modalities < 1 || modalities > 1024)
    refuse_field(kModalityPairs, "modalities", "must lie between 1 and 1024", modalities);
  const auto check = [&](const std::vector<Index>& list, const char* name, bool needed,
                         Index most) {
    if (list.size() != tables() && (needed || !list.empty()))
      refuse_field(kModalityPairs, name, "must have an entry for each of query_modality",
                   static_cast<Index>(list.size()));
    for (const Index n : list)
      if (n < 0 || n > most)
        refuse_field(kModalityPairs, name, "must lie between 0 and " + std::to_string(most), n);
  };
  check(query_modality, "query_modality", true, modalities - 1);
  check(key_modality, "key_modality", false, modalities - 1);
  check(axis, "axis", false, 7);
  check(clip, "clip", true, 100000000);
}

}  // namespace posenc::v0
