// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/xlnet.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/image_terms.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"
#include "relative/xl_rows.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kXlNet = XlNet::card.name;

detail::TermNames xlnet_terms(const XlNet& x) {
  return {kXlNet,
          {detail::kXlKeys,
           detail::kXlRows,
           detail::kXlNumbers,
           {"segment rows", x.segments > 0},
           {"segment numbers", x.segments > 0}}};
}

detail::RowBlock xlnet_rows(const XlNet& x, const DistanceRange& r) {
  return detail::xl_row_blocks(r, x.d_model, x.base, detail::XlLayout::halves);
}

detail::HeadProjection xlnet_projection(const XlNet& x, const ScoreShape& s) {
  return {s.heads, s.head_dim, x.d_model, true};
}

// Whether each of `tokens` tokens is a class token: [rows, tokens], by the call's array or, without
// one, the first.
std::vector<std::int32_t> xlnet_classes(const ConstTensorView& given, Index tokens) {
  if (given.empty()) {
    std::vector<std::int32_t> first(static_cast<std::size_t>(std::max<Index>(1, tokens)), 0);
    first[0] = 1;
    return first;
  }
  std::vector<std::int32_t> all;
  for (const Index n : detail::whole_numbers(kXlNet, given)) {
    if (n != 0 && n != 1) refuse(kXlNet, "query_class and key_class must be 0 or 1", n);
    all.push_back(static_cast<std::int32_t>(n));
  }
  return all;
}

ConstTensorView xlnet_numbers(TermStore& store, std::vector<std::int32_t> v, Index tokens) {
  const Index rows = tokens == 0 ? 1 : static_cast<Index>(v.size()) / tokens;
  if (v.empty()) v.push_back(0);  // a call without tokens: an array, not an absent one
  store.rows.push_back(std::move(v));
  return tensor(static_cast<const void*>(store.rows.back().data()), DType::i32, {rows, tokens});
}

// Segments with the class token as one more: row, tokens of segments where it is none.
std::vector<std::int32_t> xlnet_segments(const ConstTensorView& given, Index segments,
                                         const std::vector<std::int32_t>& classes, Index tokens) {
  const std::vector<Index> segment = detail::whole_numbers(kXlNet, given);
  const std::size_t most = std::max(segment.size(), classes.size());
  std::vector<std::int32_t> all;
  for (std::size_t i = 0; i < most && tokens > 0; ++i) {
    const Index own = segment[i % segment.size()];
    all.push_back(static_cast<std::int32_t>(classes[i % classes.size()] != 0 ? segments : own));
  }
  return all;
}

void xlnet_check(const XlNet& x, const detail::CallInputs& given) {
  if (x.segments > 0 && given["query_segment"].empty() != given["key_segment"].empty())
    refuse_field(kXlNet, "segments", "must be given for queries and keys, or for neither");
  if (x.class_token && given["query_class"].empty() != given["key_class"].empty())
    refuse_field(kXlNet, "query_class", "and key_class must be given both, or neither");
}

}  // namespace

// The row of seg_embed of two segments; none of a class token, which counts as one segment more.
IndexPair XlNet::segment_pair(LoweredTerms& out) const {
  const Index n = segments + (class_token ? 1 : 0);
  const std::int32_t same = segment_rows == XlNetSegmentRows::same_first ? 0 : 1;
  std::vector<std::int32_t> row;
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) {
      const bool one = i == j || i == shared_segment || j == shared_segment;
      row.push_back(i == segments || j == segments ? -1 : one ? same : 1 - same);
    }
  return out.pair(std::move(row), n, n);
}

DistanceRange XlNet::range(const ScoreShape& s) const {
  return clamp_len > 0 ? detail::clipped(s.range(), -clamp_len, clamp_len) : s.range();
}

std::vector<Parameter> XlNet::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const Initial normal{InitialKind::normal, 0, init};
  std::vector<Parameter> p{{"w_kr", {d_model, axes.heads, axes.head_dim}, normal, {}},
                           {"u", {axes.heads, axes.head_dim}, normal, {}},
                           {"v_bias", {axes.heads, axes.head_dim}, normal, {}}};
  if (segments == 0) return p;
  p.push_back({"s_bias", {axes.heads, axes.head_dim}, normal, {}});
  p.push_back({"seg_embed", {2, axes.heads, axes.head_dim}, normal, {}});
  return p;
}

std::vector<Input> XlNet::inputs(const ScoreShape& s) const {
  check_fields(s);
  std::vector<Input> all;
  const auto add = [&](const char* name, Index tokens) {
    all.push_back({.name = name, .shape = {kBatch, tokens}, .integer = true, .optional = true});
  };
  if (segments > 0) add("query_segment", kQueries), add("key_segment", kKeys);
  if (class_token) add("query_class", kQueries), add("key_class", kKeys);
  return all;
}

void XlNet::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                  LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = range(s);
  const detail::Distances all(kXlNet, r, s.heads * s.head_dim);
  const Index n = all.count();
  const double scale = s.content_scale();
  const IndexLine line =
      detail::line_over(kXlNet, out, r, [&](Index delta) { return all.row(delta); });
  const detail::TermNames names = xlnet_terms(*this);
  detail::NamedTerms terms(names, out);
  detail::XlScore{kXlNet, s, scale, s.heads, n}.add(
      xlnet_projection(*this, s).table(xlnet_rows(*this, r), n, value["w_kr"]), value["u"],
      value["v_bias"], line, out, class_token ? detail::patches_alone(out) : IndexPair{});
  if (segments == 0) return;
  std::vector<double> e = detail::by_head(value["seg_embed"], 2, s.heads, s.head_dim);
  std::vector<double> numbers =
      detail::table_dots(e, s.heads, value["s_bias"], s.heads, 2, s.head_dim);
  ProductTerm queries =
      detail::query_term(out.table(std::move(e), s.heads, 2, s.head_dim), {}, scale);
  ProductTerm biases = detail::number_term(out.table(std::move(numbers), s.heads, 2, 1), {}, scale);
  queries.pair = biases.pair = segment_pair(out);
  terms.add("segment rows", queries);
  terms.add("segment numbers", biases);
}

void XlNet::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                 std::span<Term> terms, TermStore& store) const {
  const detail::CallInputs given(*this, s, call);
  xlnet_check(*this, given);
  const detail::TermNames names = xlnet_terms(*this);
  const auto bind = [&](const char* one, const char* other, const ConstTensorView& of_queries,
                        const ConstTensorView& of_keys) {
    for (const char* name : {one, other})
      detail::bind_pairs(std::span(&names.of(terms, name), 1), of_queries, of_keys);
  };
  std::vector<std::int32_t> query, key;
  if (class_token) {
    query = xlnet_classes(given["query_class"], call.queries);
    key = xlnet_classes(given["key_class"], call.keys);
    const ConstTensorView of_queries = xlnet_numbers(store, query, call.queries);
    bind("rows", "numbers", of_queries, xlnet_numbers(store, key, call.keys));
  }
  if (segments == 0) return;
  ConstTensorView of_queries = given["query_segment"], of_keys = given["key_segment"];
  if (of_queries.empty()) {  // a call without segments: a pair without a row disables the term
    for (const char* name : {"segment rows", "segment numbers"})
      picked_rows(names.of(terms, name))->pair = store.pair({-1}, 1, 1);
    of_queries = detail::one_class(store, call.queries, 0);
    of_keys = detail::one_class(store, call.keys, 0);
  } else if (class_token) {
    of_queries = xlnet_numbers(store, xlnet_segments(of_queries, segments, query, call.queries),
                               call.queries);
    of_keys = xlnet_numbers(store, xlnet_segments(of_keys, segments, key, call.keys), call.keys);
  }
  bind("segment rows", "segment numbers", of_queries, of_keys);
}

void XlNet::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                      const LoweredGradient& g, std::span<const TensorView> dp,
                      std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const DistanceRange r = range(s);
  const Index n = detail::Distances(kXlNet, r, s.heads * s.head_dim).count();
  const detail::HeadProjection to_heads = xlnet_projection(*this, s);
  const detail::RowBlock rows = xlnet_rows(*this, r);
  detail::XlScore::Gradient d = detail::XlScore{kXlNet, s, s.content_scale(), s.heads, n}.pull_back(
      g, to_heads, rows, value["w_kr"], value["v_bias"]);
  detail::LearnedGradients to(value);
  to["w_kr"] = std::move(d.w), to["u"] = std::move(d.u), to["v_bias"] = std::move(d.v);
  if (segments > 0) {
    const detail::TermNames names = xlnet_terms(*this);
    const detail::TermGradients of(names, g);
    std::vector<double> de = of.table("segment rows", {1, s.heads, 2, s.head_dim});
    const std::vector<double> dn = of.table("segment numbers", {1, s.heads, 2, 1});
    std::vector<double>& db = to["s_bias"];
    db.resize(static_cast<std::size_t>(s.heads * s.head_dim));
    detail::pull_table_dots(dn, detail::by_head(value["seg_embed"], 2, s.heads, s.head_dim),
                            value["s_bias"], s.heads, 2, s.head_dim, de, db);
    to["seg_embed"] = detail::from_heads(de, 2, s.heads, s.head_dim);
  }
  to.accumulate(dp);
}

void XlNet::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kXlNet);
  detail::xl_check_sinusoid(kXlNet, "d_model", d_model, base);
  if (clamp_len < 0) refuse_field(kXlNet, "clamp_len", "must not be negative", clamp_len);
  if (segments < 0 || segments > 4096)
    refuse_field(kXlNet, "segments", "must lie between 0 and 4096", segments);
  if (shared_segment < -1 || shared_segment >= std::max<Index>(segments, 1))
    refuse_field(kXlNet, "shared_segment", "must be -1 or lie below segments", shared_segment);
  if (!std::isfinite(init) || init < 0)
    refuse_field(kXlNet, "init", "must be finite and not negative", init);
}

}  // namespace posenc::v0
