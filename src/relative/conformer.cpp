// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/conformer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kConformer = Conformer::card.name;

detail::HeadProjection conformer_projection(const Conformer& c, const ScoreShape& s) {
  return {s.heads, s.head_dim, c.d_model, false};
}

// By falling distance, as the programs keep R.
std::vector<Index> conformer_distances(const Conformer& c, const DistanceRange& r) {
  std::vector<Index> distances = detail::Distances(kConformer, r, 1).list();
  std::reverse(distances.begin(), distances.end());
  for (Index& delta : distances)
    if (c.even && delta < 0) delta = -delta;
  return distances;
}

detail::XlLayout conformer_layout(const Conformer& c) {
  return c.halves ? detail::XlLayout::halves : detail::XlLayout::interleaved;
}

// R: the learned one, or sinusoids.
detail::RowBlock conformer_rows(const Conformer& c, const DistanceRange& r,
                                const std::vector<double>& learned) {
  if (c.rows > 0) return detail::rows_of(learned, c.d_model);
  return detail::xl_row_blocks_at(conformer_distances(c, r), c.d_model, c.base, conformer_layout(c),
                                  c.t2t);
}

}  // namespace

std::vector<double> Conformer::sinusoid(Index delta) const {
  return made({delta, delta});
}

std::vector<double> Conformer::made(const DistanceRange& r) const {
  return detail::xl_sinusoids_at(conformer_distances(*this, r), d_model, base,
                                 conformer_layout(*this), t2t);
}

DistanceRange Conformer::range(const ScoreShape& s) const {
  if (rows == 0) return s.range();
  const DistanceRange r{-(rows - 1) / 2, (rows - 1) / 2};
  if (s.range().max > r.max)
    refuse_field(kConformer, "rows",
                 "must hold every distance of the positions, from -" + std::to_string(r.max) +
                     " to " + std::to_string(r.max) + " with rows=" + std::to_string(rows),
                 s.range().max);
  if (s.range().min < r.min)
    refuse_field(kConformer, "rows",
                 "must hold every distance of the positions, from -" + std::to_string(r.max) +
                     " to " + std::to_string(r.max) + " with rows=" + std::to_string(rows),
                 s.range().min);
  return r;
}

std::vector<Parameter> Conformer::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const double limit = 1 / std::sqrt(static_cast<double>(d_model));
  const Initial bias = detail::xl_glorot(s.heads, s.head_dim);
  std::vector<Parameter> p;
  if (rows > 0) p.push_back({"R", {rows, d_model}, {}, made({-(rows - 1) / 2, (rows - 1) / 2})});
  p.push_back(
      {"w_kr", {axes.heads * axes.head_dim, d_model}, {InitialKind::uniform, -limit, limit}, {}});
  if (!biases) return p;
  p.push_back({"u", {axes.heads, axes.head_dim}, bias, {}});
  p.push_back({"v_bias", {axes.heads, axes.head_dim}, bias, {}});
  return p;
}

void Conformer::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                      LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = range(s);
  const detail::Distances all(kConformer, r, s.heads * s.head_dim);
  const Index n = all.count();
  const IndexLine line =
      detail::line_over(kConformer, out, r, [&](Index delta) { return n - 1 - all.row(delta); });
  const std::vector<double> learned = value.if_any("R");
  std::vector<double> table =
      conformer_projection(*this, s).table(conformer_rows(*this, r, learned), n, value["w_kr"]);
  if (biases)
    detail::XlScore{kConformer, s, s.content_scale(), s.heads, n}.add(std::move(table), value["u"],
                                                                      value["v_bias"], line, out);
  else
    out.add(detail::query_term(out.table(std::move(table), s.heads, n, s.head_dim), line,
                               s.content_scale()));
}

void Conformer::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                          const LoweredGradient& g, std::span<const TensorView> dp,
                          std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = range(s);
  const Index n = detail::Distances(kConformer, r, s.heads * s.head_dim).count();
  const std::vector<double> learned = value.if_any("R");
  const detail::RowBlock all = conformer_rows(*this, r, learned);
  const detail::HeadProjection to_heads = conformer_projection(*this, s);
  detail::XlScore::Gradient d;
  if (biases) {
    d = detail::XlScore{kConformer, s, s.content_scale(), s.heads, n}.pull_back(
        g, to_heads, all, value["w_kr"], value["v_bias"], rows > 0);
  } else {
    const detail::GradientNumbers table(kConformer, gradient_of(kConformer, g.terms, 0).table,
                                        {1, s.heads, n, s.head_dim});
    d.w = to_heads.weight_gradient(all, n, table.data());
    d.rows.assign(learned.size(), 0.0);
    if (rows > 0) to_heads.add_row_gradient(value["w_kr"], n, table.data(), d.rows);
  }
  detail::LearnedGradients to(value);
  if (rows > 0) to["R"] = std::move(d.rows);
  to["w_kr"] = std::move(d.w);
  if (biases) to["u"] = std::move(d.u), to["v_bias"] = std::move(d.v);
  to.accumulate(dp);
}

void Conformer::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kConformer);
  detail::xl_check_sinusoid(kConformer, "d_model", d_model, base);
  if (rows < 0 || rows > 16777215 || (rows > 0 && rows % 2 == 0))
    refuse_field(kConformer, "rows", "must be 0 or an odd number below 2^24", rows);
}

std::vector<Preset<Conformer>> Conformer::presets() {
  return {{"gemma3n_audio",
           [](std::span<const Index> n) {
             return Conformer{.d_model = n[0], .biases = false, .halves = true, .t2t = true};
           },
           {{"d_model", 1536}}}};
}

}  // namespace posenc::v0
