// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/tupe.h"

#include <cmath>
#include <utility>

#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/t5.h"
#include "relative/image_terms.h"
#include "relative/layers/linear.h"
#include "relative/layers/row_norm.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kTupe = Tupe::card.name;

detail::TermNames tupe_terms(const Tupe& t) {
  const bool buckets = t.num_buckets > 0;
  return {kTupe,
          {{"positions"},
           {"class", t.reset},
           {"buckets", buckets},
           {"class_bucket", buckets && t.reset}}};
}
using TupeList = std::vector<double>;

std::size_t tupe_at(Index i) {
  return static_cast<std::size_t>(i);
}

// The row of P of every token, [batch, tokens]; one row of the batch where all are alike.
struct TupeRows {
  Index batch = 1, tokens = 0;
  std::vector<Index> row;

  TupeRows(const Positions& at, Index count, Index first, Index rows) : tokens(count) {
    const bool given = at.data != nullptr;
    batch = given ? at.batch : 1;
    for (Index b = 0; b < batch; ++b)
      for (Index t = 0; t < tokens; ++t) {
        const double p = given ? position_at(at, 0, b, t) : static_cast<double>(first + t);
        if (!(p >= 0 && p < static_cast<double>(rows - 1)) || p != std::floor(p))
          refuse_field(kTupe, "positions",
                       "must be whole numbers from 0 and below the field positions", p);
        row.push_back(static_cast<Index>(p) + 1);
      }
  }
  TupeList gathered(const double* from, Index width) const {
    TupeList out;
    out.reserve(row.size() * tupe_at(width));
    for (const Index r : row) out.insert(out.end(), from + r * width, from + (r + 1) * width);
    return out;
  }
  void scatter(const TupeList& d, Index width, TupeList& to) const {
    for (std::size_t i = 0; i < row.size(); ++i)
      for (Index c = 0; c < width; ++c)
        to[tupe_at(row[i] * width + c)] += d[i * tupe_at(width) + tupe_at(c)];
  }
};

}  // namespace

// P, normalised, with weight and bias, and what projects it to x and y of every row, [rows, width].
struct Tupe::Layers {
  Index rows, width;
  double epsilon;
  TupeList pos, weight, bias, w_q, b_q, w_k, b_k;

  Layers(const Tupe& t, const ScoreShape& s, const detail::LearnedValues& p)
      : rows(t.positions + 1), width(s.heads * s.head_dim), epsilon(t.epsilon) {
    pos = p["pos"], weight = p["ln_weight"], bias = p["ln_bias"];
    w_q = p["w_q"], b_q = p["b_q"], w_k = p["w_k"], b_k = p["b_k"];
  }
  detail::RowBlock normed() const { return detail::normed_rows(pos, width, epsilon, weight, bias); }
  // Of the first n rows.
  TupeList x(Index n) const { return detail::linear(normed(), n, w_q, b_q, width); }
  TupeList y(Index n) const { return detail::linear(normed(), n, w_k, b_k, width); }
  // Of the heads, x_r . y_r of rows 0 and 1: [heads, 2].
  TupeList own(const ScoreShape& s) const {
    const TupeList of_q = x(2), of_k = y(2);
    TupeList out(tupe_at(2 * s.heads));
    for (Index h = 0; h < s.heads; ++h)
      for (Index r = 0; r < 2; ++r)
        for (Index c = 0; c < s.head_dim; ++c)
          out[tupe_at(2 * h + r)] += of_q[tupe_at(r * width + h * s.head_dim + c)] *
                                     of_k[tupe_at(r * width + h * s.head_dim + c)];
    return out;
  }
  void pull_own(const ScoreShape& s, const TupeList& d, TupeList& dx, TupeList& dy) const {
    const TupeList of_q = x(2), of_k = y(2);
    for (Index h = 0; h < s.heads; ++h)
      for (Index r = 0; r < 2; ++r)
        for (Index c = 0; c < s.head_dim; ++c) {
          const std::size_t i = tupe_at(r * width + h * s.head_dim + c);
          dx[i] += d[tupe_at(2 * h + r)] * of_k[i];
          dy[i] += d[tupe_at(2 * h + r)] * of_q[i];
        }
  }
  // From the gradients of x and y to those of all parameters but the table of buckets.
  void pull_back(const TupeList& dx, const TupeList& dy, detail::LearnedGradients& to) const {
    detail::LinearGradient q = detail::linear_gradient(dx, normed(), w_q, width);
    detail::LinearGradient k = detail::linear_gradient(dy, normed(), w_k, width, std::move(q.x));
    TupeList d = std::move(k.x), d_weight(tupe_at(width)), d_bias(tupe_at(width));
    const detail::RowNorm norm(pos, width, epsilon);
    detail::pull_row_weights(norm, weight, d, d_weight, d_bias);
    norm.pull_back(d);
    to["pos"] = std::move(d);
    to["ln_weight"] = std::move(d_weight), to["ln_bias"] = std::move(d_bias);
    to["w_q"] = std::move(q.w), to["b_q"] = std::move(q.b);
    to["w_k"] = std::move(k.w), to["b_k"] = std::move(k.b);
  }
};

double Tupe::scale(const ScoreShape& s) const {
  return s.scale ? *s.scale : 1 / std::sqrt(2 * static_cast<double>(s.head_dim));
}

std::vector<Parameter> Tupe::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const AxisSize width = axes.heads * axes.head_dim;
  const Initial normal{InitialKind::normal, 0, 0.02};
  std::vector<Parameter> p{{"pos", {positions + 1, width}, normal, {}},
                           {"ln_weight", {width}, {InitialKind::constant, 1, 0}, {}},
                           {"ln_bias", {width}, {}, {}},
                           {"w_q", {width, width}, normal, {}},
                           {"b_q", {width}, {}, {}},
                           {"w_k", {width, width}, normal, {}},
                           {"b_k", {width}, {}, {}}};
  if (num_buckets > 0) p.push_back({"table", {num_buckets + 1, axes.heads}, normal, {}});
  return p;
}

std::vector<Input> Tupe::inputs(const ScoreShape&) const {
  return reset ? detail::class_inputs() : std::vector<Input>{};
}

void Tupe::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const Layers layers(*this, s, value);
  const detail::TermNames names = tupe_terms(*this);
  detail::NamedTerms terms(names, out);
  ProductTerm t;
  t.scale = scale(s);
  // Of all rows; bind takes those of the positions.
  t.query.given = out.vectors(layers.x(layers.rows), 1, layers.rows, s.heads, s.head_dim);
  t.key.given = out.vectors(layers.y(layers.rows), 1, layers.rows, s.heads, s.head_dim);
  if (reset) t.pair = detail::patches_alone(out);
  terms.add("positions", t);
  out.requests.scale = scale(s);
  if (reset) {
    ProductTerm edge = detail::number_term(out.table(layers.own(s), s.heads, 2, 1), {}, scale(s));
    edge.pair = out.pair({-1, 1, 0, 0}, 2, 2);
    terms.add("class", edge);
  }
  if (num_buckets == 0) return;
  const T5 buckets{.num_buckets = num_buckets, .max_distance = max_distance};
  const std::vector<Index> thresholds = t5_thresholds(buckets.side(), max_distance);
  const ConstTensorView table =
      out.table(detail::transposed_list(value["table"], num_buckets + 1, s.heads), s.heads,
                num_buckets + 1, 1);
  ProductTerm inner = detail::number_term(
      table,
      detail::line_over(kTupe, out, detail::clipped(s.range(), -max_distance, max_distance),
                        [&](Index d) { return buckets.bucket(d, thresholds); }),
      1);
  if (reset) inner.pair = detail::patches_alone(out);
  terms.add("buckets", inner);
  if (!reset) return;
  ProductTerm edge = detail::number_term(table, {}, 1);
  const auto half = static_cast<std::int32_t>(num_buckets / 2);
  edge.pair = out.pair({-1, static_cast<std::int32_t>(num_buckets), half, half}, 2, 2);
  terms.add("class_bucket", edge);
}

void Tupe::bind(const ScoreShape& s, std::span<const ConstTensorView>, const CallData& call,
                std::span<Term> terms, TermStore& store) const {
  const Index rows = positions + 1, width = s.heads * s.head_dim;
  // `given` is of all rows, as lowered.
  const auto take = [&](const TupeRows& r, ConstHeads& given) {
    given = store.vectors(r.gathered(static_cast<const double*>(given.data), width), r.batch,
                          r.tokens, s.heads, s.head_dim);
  };
  auto& t = std::get<ProductTerm>(tupe_terms(*this).of(terms, "positions"));
  take({call.query_positions, call.queries, call.query_offset, rows}, t.query.given);
  take({call.key_positions, call.keys, 0, rows}, t.key.given);
  if (reset) detail::bind_classes(kTupe, call, terms);
}

void Tupe::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const Layers layers(*this, s, value);
  TupeList dx(layers.pos.size()), dy(layers.pos.size());
  const detail::TermNames names = tupe_terms(*this);
  const detail::TermGradients of(names, g);
  const auto take = [&](const TupeRows& r, const Heads& from, TupeList& to) {
    r.scatter(detail::vectors_gradient(kTupe, from, {r.batch, r.tokens, s.heads, s.head_dim}),
              layers.width, to);
  };
  take({call.query_positions, call.queries, call.query_offset, layers.rows}, of["positions"].query,
       dx);
  take({call.key_positions, call.keys, 0, layers.rows}, of["positions"].key, dy);
  if (reset) layers.pull_own(s, of.table("class", {1, s.heads, 2, 1}), dx, dy);
  detail::LearnedGradients to(value);
  layers.pull_back(dx, dy, to);
  if (num_buckets > 0) {
    const std::vector<Index> shape{1, s.heads, num_buckets + 1, 1};
    TupeList table = of.table("buckets", shape);
    if (reset) add_to(table, of.table("class_bucket", shape));
    to["table"] = detail::transposed_list(table, s.heads, num_buckets + 1);
  }
  to.accumulate(dp);
}

void Tupe::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kTupe);
  if (positions < 1 || positions > 16777216)
    refuse_field(kTupe, "positions", "must lie between 1 and 2^24", positions);
  if (num_buckets != 0 && (num_buckets < 4 || num_buckets > 65536 || num_buckets % 2 != 0))
    refuse_field(kTupe, "num_buckets", "must be 0 or even, 4 to 65536", num_buckets);
  if (max_distance < 2 || max_distance > 1000000000)
    refuse_field(kTupe, "max_distance", "must lie between 2 and 1e9", max_distance);
  if (!(std::isfinite(epsilon) && epsilon >= 0))
    refuse_field(kTupe, "epsilon", "must be finite and not negative", epsilon);
}

}  // namespace posenc::v0
