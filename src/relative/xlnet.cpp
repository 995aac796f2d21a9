// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/xlnet.h"

#include <cmath>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/lowering.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kXlNet = "xlnet";

detail::RowBlock xlnet_rows(const XlNet& x, const DistanceRange& r) {
  return detail::xl_row_blocks(r, x.d_model, x.base, detail::XlLayout::halves);
}

detail::HeadProjection xlnet_projection(const XlNet& x, const ScoreShape& s) {
  return {s.heads, s.head_dim, x.d_model, true};
}

// Row 0 for two of the same segment, row 1 for others.
IndexPair xlnet_pair(Index segments, LoweredTerms& out) {
  std::vector<std::int32_t> differs;
  for (Index i = 0; i < segments; ++i)
    for (Index j = 0; j < segments; ++j) differs.push_back(i != j ? 1 : 0);
  return out.pair(std::move(differs), segments, segments);
}

}  // namespace

DistanceRange XlNet::range(const ScoreShape& s) const {
  return clamp_len > 0 ? detail::clipped(s.range(), -clamp_len, clamp_len) : s.range();
}

std::vector<Parameter> XlNet::parameters(const ScoreShape& s) const {
  check_fields(s);
  const Initial normal{InitialKind::normal, 0, init};
  std::vector<Parameter> p{{"w_kr", {d_model, s.heads, s.head_dim}, normal, {}},
                           {"u", {s.heads, s.head_dim}, normal, {}},
                           {"v_bias", {s.heads, s.head_dim}, normal, {}}};
  if (segments == 0) return p;
  p.push_back({"s_bias", {s.heads, s.head_dim}, normal, {}});
  p.push_back({"seg_embed", {2, s.heads, s.head_dim}, normal, {}});
  return p;
}

std::vector<Input> XlNet::inputs(const ScoreShape& s) const {
  check_fields(s);
  if (segments == 0) return {};
  return {{.name = "query_segment", .shape = {kBatch, kQueries}, .integer = true, .optional = true},
          {.name = "key_segment", .shape = {kBatch, kKeys}, .integer = true, .optional = true}};
}

void XlNet::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                  LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kXlNet, needed.size(), p.size());
  const DistanceRange r = range(s);
  const detail::Distances all(kXlNet, r, s.heads * s.head_dim);
  const Index n = all.count();
  const auto value = [&](std::size_t i) { return parameter_values(kXlNet, needed[i], p[i]); };
  const double scale = s.content_scale();
  const IndexLine line =
      detail::line_over(kXlNet, out, r, [&](Index delta) { return all.row(delta); });
  detail::XlScore{kXlNet, s, scale, s.heads, n}.add(
      xlnet_projection(*this, s).table(xlnet_rows(*this, r), n, value(0)), value(1), value(2), line,
      out);
  if (segments == 0) return;
  std::vector<double> e = detail::by_head(value(4), 2, s.heads, s.head_dim);
  std::vector<double> numbers = detail::table_dots(e, s.heads, value(3), s.heads, 2, s.head_dim);
  Term queries = detail::query_term(out.table(std::move(e), s.heads, 2, s.head_dim), {}, scale);
  Term biases = detail::number_term(out.table(std::move(numbers), s.heads, 2, 1), {}, scale);
  queries.pair = biases.pair = xlnet_pair(segments, out);
  out.add(queries);
  out.add(biases);
}

void XlNet::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                 std::span<Term> terms, TermStore& store) const {
  if (segments == 0) return;
  const bool none = call.inputs[0].empty();
  if (none != call.inputs[1].empty())
    refuse(kXlNet, "segments must be given for queries and keys, or for neither");
  for (Term& t : terms) {
    if (t.pair.row == nullptr) continue;
    if (none) {  // a call without segments: a pair without a row voids the term
      t.pair = store.pair({-1}, 1, 1);
      t.pair.query_class = detail::one_class(store, call.queries, 0);
      t.pair.key_class = detail::one_class(store, call.keys, 0);
      continue;
    }
    t.pair.query_class = call.inputs[0];
    t.pair.key_class = call.inputs[1];
  }
}

void XlNet::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                      const LoweredGradient& g, std::span<const TensorView> dp,
                      std::span<const TensorView>) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kXlNet, needed.size(), p.size());
  const DistanceRange r = range(s);
  const Index n = detail::Distances(kXlNet, r, s.heads * s.head_dim).count();
  const auto value = [&](std::size_t i) { return parameter_values(kXlNet, needed[i], p[i]); };
  const detail::HeadProjection to_heads = xlnet_projection(*this, s);
  const detail::RowBlock rows = xlnet_rows(*this, r);
  detail::XlScore::Gradient d = detail::XlScore{kXlNet, s, s.content_scale(), s.heads, n}.pull_back(
      g, to_heads, rows, value(0), value(2));
  std::vector<std::vector<double>> all{std::move(d.w), std::move(d.u), std::move(d.v)};
  if (segments > 0) {
    std::vector<double> de =
        gradient_values(kXlNet, gradient_of(kXlNet, g.terms, 3).table, {1, s.heads, 2, s.head_dim});
    const std::vector<double> dn =
        gradient_values(kXlNet, gradient_of(kXlNet, g.terms, 4).table, {1, s.heads, 2, 1});
    std::vector<double> db(static_cast<std::size_t>(s.heads * s.head_dim), 0.0);
    detail::pull_table_dots(dn, detail::by_head(value(4), 2, s.heads, s.head_dim), value(3),
                            s.heads, 2, s.head_dim, de, db);
    all.push_back(std::move(db));
    all.push_back(detail::from_heads(de, 2, s.heads, s.head_dim));
  }
  accumulate(kXlNet, needed, dp, all);
}

void XlNet::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kXlNet);
  detail::xl_check_sinusoid(kXlNet, "d_model", d_model, base);
  if (clamp_len < 0) refuse(kXlNet, "clamp_len must not be negative", clamp_len);
  if (segments < 0 || segments > 4096)
    refuse(kXlNet, "segments must lie between 0 and 4096", segments);
  if (!std::isfinite(init) || init < 0)
    refuse(kXlNet, "init must be finite and not negative", init);
}

}  // namespace posenc::v0
