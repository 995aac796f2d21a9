// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/segatron_xl.h"

#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kSegatron = SegatronXl::card.name;
// The terms of an axis: token, sentence, paragraph.
struct SegatronNames {
  std::string_view rows, numbers;
};
constexpr std::array<SegatronNames, 3> kSegatronNames{{{"token rows", "token numbers"},
                                                       {"sentence rows", "sentence numbers"},
                                                       {"paragraph rows", "paragraph numbers"}}};
constexpr detail::TermNames kSegatronTerms{kSegatron,
                                           {{"keys"},
                                            {kSegatronNames[0].rows},
                                            {kSegatronNames[0].numbers},
                                            {kSegatronNames[1].rows},
                                            {kSegatronNames[1].numbers},
                                            {kSegatronNames[2].rows},
                                            {kSegatronNames[2].numbers}}};

// One axis: its channels of R and W, its rows by distance.
struct SegatronAxis {
  Index first = 0, width = 0;
  DistanceRange range{};
  Index n = 0;
};
std::vector<SegatronAxis> segatron_axes(const SegatronXl& x, const ScoreShape& s) {
  std::vector<SegatronAxis> axes;
  Index first = 0, axis = 0;
  for (const Index width : x.axis_widths()) {
    const DistanceRange& r = s.range(axis++);
    axes.push_back({first, width, r, detail::Distances(kSegatron, r, 1).count()});
    first += width;
  }
  return axes;
}

detail::RowBlock segatron_rows(const SegatronXl& x, const SegatronAxis& a) {
  return detail::xl_row_blocks(a.range, a.width, x.base, detail::XlLayout::halves);
}

detail::HeadProjection segatron_projection(const SegatronAxis& a, const ScoreShape& s) {
  return {s.heads, s.head_dim, a.width, false};
}

// The columns of W [heads head_dim, d_model] that the axis has.
std::vector<double> segatron_weights(const SegatronXl& x, const SegatronAxis& a,
                                     const std::vector<double>& w) {
  std::vector<double> columns;
  for (auto row = w.begin(); row != w.end(); row += x.d_model)
    columns.insert(columns.end(), row + a.first, row + a.first + a.width);
  return columns;
}

std::vector<double> segatron_table(const SegatronXl& x, const SegatronAxis& a, const ScoreShape& s,
                                   const std::vector<double>& w) {
  return segatron_projection(a, s).table(segatron_rows(x, a), a.n, segatron_weights(x, a, w));
}

}  // namespace

std::vector<Index> SegatronXl::axis_widths() const {
  if (!widths.empty()) return widths;
  const Index third = d_model / 3 + d_model / 3 % 2;
  return {third, third, d_model - 2 * third};
}

std::vector<Parameter> SegatronXl::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const Initial normal{InitialKind::normal, 0, init};
  return {{"w_kr", {axes.heads * axes.head_dim, d_model}, normal, {}},
          {"u", {axes.heads, axes.head_dim}, normal, {}},
          {"v_bias", {axes.heads, axes.head_dim}, normal, {}}};
}

// u.k, then for each axis q.t and v.t.
void SegatronXl::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                       LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> w = value["w_kr"], v = value["v_bias"];
  ProductTerm keys;
  keys.scale = s.content_scale();
  keys.query.given = out.vectors(value["u"], 1, 1, s.heads, s.head_dim);
  keys.key = kContent;
  detail::NamedTerms terms(kSegatronTerms, out);
  terms.add("keys", keys);
  std::int32_t axis = 0;
  for (const SegatronAxis& a : segatron_axes(*this, s)) {
    const SegatronNames& names = kSegatronNames[static_cast<std::size_t>(axis)];
    const detail::Distances all(kSegatron, a.range, 1);
    const IndexLine line = detail::line_over(
        kSegatron, out, a.range, [&](Index delta) { return all.row(delta); }, axis++);
    std::vector<double> table = segatron_table(*this, a, s, w);
    std::vector<double> numbers = detail::table_dots(table, s.heads, v, s.heads, a.n, s.head_dim);
    terms.add(names.rows, detail::query_term(out.table(std::move(table), s.heads, a.n, s.head_dim),
                                             line, s.content_scale()));
    terms.add(names.numbers, detail::number_term(out.table(std::move(numbers), s.heads, a.n, 1),
                                                 line, s.content_scale()));
  }
}

void SegatronXl::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                           const LoweredGradient& g, std::span<const TensorView> dp,
                           std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> w = value["w_kr"];
  const std::vector<double> v = value["v_bias"];
  std::vector<double> dw(w.size(), 0.0), dv(v.size(), 0.0);
  const detail::TermGradients of(kSegatronTerms, g);
  std::size_t axis = 0;
  for (const SegatronAxis& a : segatron_axes(*this, s)) {
    const SegatronNames& names = kSegatronNames[axis++];
    const detail::GradientNumbers d(kSegatron, of[names.rows].table, {1, s.heads, a.n, s.head_dim});
    const detail::GradientNumbers e(kSegatron, of[names.numbers].table, {1, s.heads, a.n, 1});
    const detail::HeadProjection to_heads = segatron_projection(a, s);
    const detail::RowBlock rows = segatron_rows(*this, a);
    std::vector<double> columns = to_heads.weight_gradient(rows, a.n, d.data());
    add_to(dv, to_heads.dots_gradient(rows, a.n, segatron_weights(*this, a, w), v, e.data(),
                                      columns, nullptr));
    for (Index r = 0; r < s.heads * s.head_dim; ++r)
      for (Index c = 0; c < a.width; ++c)
        dw[static_cast<std::size_t>(r * d_model + a.first + c)] +=
            columns[static_cast<std::size_t>(r * a.width + c)];
  }
  std::vector<double> du =
      detail::vectors_gradient(kSegatron, of["keys"].query, {1, 1, s.heads, s.head_dim});
  detail::LearnedGradients to(value);
  to["w_kr"] = std::move(dw);
  to["u"] = std::move(du);
  to["v_bias"] = std::move(dv);
  to.accumulate(dp);
}

void SegatronXl::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kSegatron);
  if (d_model < 6) refuse_field(kSegatron, "d_model", "must be at least 6", d_model);
  Index sum = 0;
  for (const Index width : axis_widths()) {
    detail::xl_check_sinusoid(kSegatron, "the width of an axis", width, base);
    sum = width > d_model - sum ? d_model + 1 : sum + width;
  }
  if (sum != d_model)
    refuse(kSegatron, "the widths must add up to d_model, which is " + std::to_string(d_model),
           sum);
  if (!std::isfinite(init) || init < 0)
    refuse_field(kSegatron, "init", "must be finite and not negative", init);
}

}  // namespace posenc::v0
