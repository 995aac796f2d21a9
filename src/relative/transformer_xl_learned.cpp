// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/transformer_xl_learned.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kXlLearned = TransformerXlLearned::card.name;
constexpr detail::TermNames kXlLearnedTerms{kXlLearned, {{"keys"}, {"rows"}, {"numbers"}}};

}  // namespace

Index TransformerXlLearned::row(Index delta) const noexcept {
  if (delta < 0) return -1;
  const Index read = clamp_len > 0 ? std::min(clamp_len, rows) : rows;
  return rows - 1 - std::min(delta, read - 1);
}

std::vector<Parameter> TransformerXlLearned::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const Initial normal{InitialKind::normal, 0, init};
  return {{"r_emb", {rows, axes.heads, axes.head_dim}, normal, {}},
          {"r_bias", {rows, axes.heads}, normal, {}},
          {"u", {axes.heads, axes.head_dim}, normal, {}}};
}

void TransformerXlLearned::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                                 LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const double scale = s.content_scale();
  const IndexLine line = detail::line_over(kXlLearned, out, detail::clipped(s.range(), -1, rows),
                                           [this](Index delta) { return row(delta); });
  ProductTerm keys;
  keys.scale = scale;
  keys.query.given = out.vectors(value["u"], 1, 1, s.heads, s.head_dim);
  keys.key = kContent;
  detail::NamedTerms terms(kXlLearnedTerms, out);
  terms.add("keys", keys);
  terms.add("rows",
            detail::query_term(out.table(detail::by_head(value["r_emb"], rows, s.heads, s.head_dim),
                                         s.heads, rows, s.head_dim),
                               line, scale));
  terms.add("numbers",
            detail::number_term(
                out.table(detail::by_head(value["r_bias"], rows, s.heads, 1), s.heads, rows, 1),
                line, scale));
}

void TransformerXlLearned::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                                     const CallData&, const LoweredGradient& g,
                                     std::span<const TensorView> dp,
                                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const detail::TermGradients of(kXlLearnedTerms, g);
  const auto of_rows = [&](const char* term, Index dim) {
    return detail::from_heads(of.table(term, {1, s.heads, rows, dim}), rows, s.heads, dim);
  };
  std::vector<double> du =
      detail::vectors_gradient(kXlLearned, of["keys"].query, {1, 1, s.heads, s.head_dim});
  detail::LearnedGradients to(value);
  to["r_emb"] = of_rows("rows", s.head_dim);
  to["r_bias"] = of_rows("numbers", 1);
  to["u"] = std::move(du);
  to.accumulate(dp);
}

void TransformerXlLearned::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kXlLearned);
  if (rows < 1 || rows > 16777216)
    refuse_field(kXlLearned, "rows", "must lie between 1 and 2^24", rows);
  if (clamp_len < 0) refuse_field(kXlLearned, "clamp_len", "must not be negative", clamp_len);
  if (!std::isfinite(init) || init < 0)
    refuse_field(kXlLearned, "init", "must be finite and not negative", init);
}

}  // namespace posenc::v0
