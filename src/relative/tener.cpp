// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/tener.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/matmul.h"
#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kTener = Tener::card.name;
// Behind them is the term of k with the fixed table, which has nothing to learn.
constexpr detail::TermNames kTenerTerms{kTener,
                                        {detail::kXlKeys, detail::kXlRows, detail::kXlNumbers}};

}  // namespace

// Both signs of every distance: the terms of q and of k go opposite ways.
std::vector<double> Tener::table(const ScoreShape& s) const {
  return detail::xl_sinusoids(detail::mirrored(s.range()), s.head_dim, base,
                              detail::XlLayout::halves, spacing == TenerSpacing::t2t);
}

std::vector<Parameter> Tener::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const double deviation = std::sqrt(2 / static_cast<double>(s.heads + s.head_dim));
  const Initial normal{InitialKind::normal, 0, deviation};
  return {{"u", {axes.heads, axes.head_dim}, normal, {}},
          {"v_bias", {axes.heads, axes.head_dim}, normal, {}}};
}

void Tener::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                  LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange range = detail::mirrored(s.range());
  const detail::Distances all(kTener, range, s.head_dim);
  const double scale = scaled ? s.content_scale() : 1;
  const Index way = sign == TenerSign::query_minus_key ? 1 : -1;
  const IndexLine line =
      detail::line_over(kTener, out, range, [&](Index delta) { return all.row(way * delta); });
  const ConstTensorView rows = detail::XlScore{kTener, s, scale, 1, all.count()}.add(
      table(s), value["u"], value["v_bias"], line, out);
  if (key_term)
    out.add(detail::key_term(
        rows, detail::line_over(kTener, out, range, [&](Index delta) { return all.row(delta); }),
        scale));
  if (!scaled) out.requests.scale = 1;
}

void Tener::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                      const LoweredGradient& g, std::span<const TensorView> dp,
                      std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  // The table is fixed: numbers v.t alone reach v.
  const Index n = detail::Distances(kTener, detail::mirrored(s.range()), s.head_dim).count();
  const std::vector<double> rows = table(s);
  const detail::TermGradients of(kTenerTerms, g);
  const std::vector<double> e = of.table("numbers", {1, s.heads, n, 1});
  std::vector<double> du =
      detail::vectors_gradient(kTener, of["keys"].query, {1, 1, s.heads, s.head_dim});
  std::vector<double> dv(du.size());
  detail::add_product({e.data(), s.heads, n, n, 1}, {rows.data(), n, s.head_dim, s.head_dim, 1},
                      {dv.data(), s.head_dim, 1});
  detail::LearnedGradients to(value);
  to["u"] = std::move(du);
  to["v_bias"] = std::move(dv);
  to.accumulate(dp);
}

void Tener::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kTener);
  detail::xl_check_sinusoid(kTener, "head_dim", s.head_dim, base);
}

std::vector<Preset<Tener>> Tener::presets() {
  using Sizes = std::span<const Index>;
  return {{"paper",
           [](Sizes) {
             return Tener{.sign = TenerSign::query_minus_key,
                          .spacing = TenerSpacing::paper,
                          .key_term = false};
           },
           {}},
          {"code", [](Sizes) { return Tener{}; }, {}}};
}

}  // namespace posenc::v0
