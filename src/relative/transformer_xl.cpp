// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/transformer_xl.h"

#include <algorithm>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kTransformerXl = TransformerXl::card.name;

detail::RowBlock transformer_xl_rows(const TransformerXl& t, const DistanceRange& r) {
  return detail::xl_row_blocks(r, t.d_model, t.base, detail::XlLayout::halves);
}

detail::HeadProjection transformer_xl_projection(const TransformerXl& t, const ScoreShape& s) {
  return {s.heads, s.head_dim, t.d_model, false};
}

}  // namespace

DistanceRange TransformerXl::range(const ScoreShape& s) const {
  const DistanceRange& r = s.range();
  return clamp_len > 0 ? detail::clipped(r, std::min(r.min, clamp_len), clamp_len) : r;
}

// Of each head, table [n, head_dim] = R [n, d_model] W_kR^T [d_model, head_dim].
void TransformerXl::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                          LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = range(s);
  const detail::Distances all(kTransformerXl, r, s.heads * s.head_dim);
  const Index n = all.count();
  std::vector<double> table =
      transformer_xl_projection(*this, s).table(transformer_xl_rows(*this, r), n, value["w_kr"]);
  const IndexLine line =
      detail::line_over(kTransformerXl, out, r, [&](Index delta) { return all.row(delta); });
  detail::XlScore{kTransformerXl, s, s.content_scale(), s.heads, n}.add(
      std::move(table), value["u"], value["v_bias"], line, out);
}

void TransformerXl::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData&, const LoweredGradient& g,
                              std::span<const TensorView> dp, std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = range(s);
  const Index n = detail::Distances(kTransformerXl, r, s.heads * s.head_dim).count();
  const detail::HeadProjection to_heads = transformer_xl_projection(*this, s);
  const detail::RowBlock rows = transformer_xl_rows(*this, r);
  const detail::XlScore::Gradient d =
      detail::XlScore{kTransformerXl, s, s.content_scale(), s.heads, n}.pull_back(
          g, to_heads, rows, value["w_kr"], value["v_bias"]);
  detail::LearnedGradients to(value);
  to["w_kr"] = d.w;
  to["u"] = d.u;
  to["v_bias"] = d.v;
  to.accumulate(dp);
}

std::vector<double> TransformerXl::sinusoid(Index delta) const {
  return detail::xl_sinusoid(delta, d_model, base, detail::XlLayout::halves);
}

std::vector<Parameter> TransformerXl::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const Initial normal{InitialKind::normal, 0, init};
  return {{"w_kr", {axes.heads * axes.head_dim, d_model}, normal, {}},
          {"u", {axes.heads, axes.head_dim}, normal, {}},
          {"v_bias", {axes.heads, axes.head_dim}, normal, {}}};
}

void TransformerXl::check_fields(const ScoreShape& s) const {
  check_score_shape(s, "transformer_xl");
  detail::xl_check_sinusoid(kTransformerXl, "d_model", d_model, base);
  if (clamp_len < 0) refuse_field("transformer_xl", "clamp_len", "must not be negative", clamp_len);
  if (!s.distance.empty())
    detail::Distances(kTransformerXl, range(s), 1);  // too many are refused here too
}

}  // namespace posenc::v0
