// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/cope.h"

#include <cmath>
#include <string>
#include <utility>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kCope = Cope::card.name;

detail::CallInputs cope_inputs(const Cope& c, const ScoreShape& s, const CallData& call) {
  const detail::CallInputs given(c, s, call);
  if (c.gates == CopeGates::mixed && given["k"].shape[2] != s.heads)
    refuse(kCope, "mixed gates need as many heads of k as of q, " + std::to_string(s.heads),
           given["k"].shape[2]);
  return given;
}

// Products mixed over heads are products of longer vectors: of query and head the q of all heads,
// each times a number of W, and of the key the k of all heads.
struct CopeMixed {
  Index batch, queries, keys, heads, dim;
  std::vector<double> w, q, k;  // W; [batch, tokens, heads, dim]

  CopeMixed(const ScoreShape& s, const CallData& call, const detail::CallInputs& given,
            std::vector<double> matrix)
      : batch(call.batch),
        queries(call.queries),
        keys(call.keys),
        heads(s.heads),
        dim(s.head_dim),
        w(std::move(matrix)),
        q(detail::call_values(kCope, given["q"])),
        k(detail::call_values(kCope, given["k"])) {}

  // x [batch, queries, heads, heads dim]: fn(place in x, place in W, place in q).
  template <class F>
  void each(const F& fn) const {
    std::size_t x = 0;
    for (Index token = 0; token < batch * queries; ++token)
      for (Index h = 0; h < heads; ++h)
        for (Index other = 0; other < heads; ++other)
          for (Index c = 0; c < dim; ++c, ++x)
            fn(x, static_cast<std::size_t>(h * heads + other),
               static_cast<std::size_t>((token * heads + other) * dim + c));
  }
};

// The input that the gates read instead of k.
const char* cope_key(const Cope& c) {
  return c.gates == CopeGates::values ? "v" : "gate_key";
}

}  // namespace

std::vector<Parameter> Cope::parameters(const ScoreShape& s) const {
  check_score_shape(s, kCope);
  const ScoreAxes axes(s);
  if (positions < 1 || positions > 1000000)
    refuse_field(kCope, "positions", "must lie between 1 and 1000000", positions);
  if (!std::isfinite(spread) || spread < 0)
    refuse_field(kCope, "spread", "must be finite and not negative", spread);
  ArrayShape shape{1, axes.head_dim, positions};
  if (table == CopeTable::rows) shape = {positions, axes.head_dim};
  std::vector<Parameter> p{{"pos_emb", shape, {}, {}}};
  if (gates == CopeGates::mixed)
    p.push_back({"talking_heads", {axes.heads, axes.heads}, detail::linear_start(s.heads), {}});
  return p;
}

std::vector<Input> Cope::inputs(const ScoreShape& s) const {
  const ScoreAxes axes(s);
  const ArrayShape of_keys{kBatch, kKeys, axes.heads, axes.head_dim};
  switch (gates) {
    case CopeGates::separate:
      return {{.name = "gate_key", .shape = of_keys}};
    case CopeGates::values:
      return {{.name = "v", .shape = of_keys}};
    case CopeGates::mixed:
      return {{.name = "q", .shape = {kBatch, kQueries, axes.heads, axes.head_dim}},
              {.name = "k", .shape = of_keys}};
    case CopeGates::keys:
      break;
  }
  return {};
}

void Cope::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  std::vector<double> e = value["pos_emb"];
  if (table == CopeTable::columns) e = detail::transposed_list(e, s.head_dim, positions);
  GatesTerm t;
  t.gate_scale = s.content_scale();
  t.scale = scaling == CopeScaling::both ? s.content_scale() : 1;
  t.spread = spread;
  if (gates != CopeGates::mixed) t.query = kContent;
  if (gates == CopeGates::keys) t.key = kContent;
  t.table = out.table(std::move(e), 1, positions, s.head_dim);
  out.add(t);
}

void Cope::bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                std::span<Term> terms, TermStore& store) const {
  const detail::CallInputs given = cope_inputs(*this, s, call);
  auto& t = std::get<GatesTerm>(terms[0]);
  if (gates == CopeGates::separate || gates == CopeGates::values)
    t.key.given = heads(given[cope_key(*this)], HeadsLayout::bthd);
  if (gates != CopeGates::mixed) return;
  const CopeMixed m(s, call, given, detail::LearnedValues(*this, s, p)["talking_heads"]);
  std::vector<double> x(m.q.size() * static_cast<std::size_t>(m.heads));
  m.each([&](std::size_t at, std::size_t w, std::size_t q) { x[at] = m.w[w] * m.q[q]; });
  const Index channels = m.heads * m.dim;
  t.query.given = store.vectors(std::move(x), m.batch, m.queries, m.heads, channels);
  t.key.given = store.vectors(m.k, m.batch, m.keys, 1, channels);
}

void Cope::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView> d_inputs) const {
  const detail::LearnedValues value(*this, s, p);
  const detail::CallInputs given = cope_inputs(*this, s, call);
  const TermGradient& t = gradient_of(kCope, g.terms, 0);
  detail::LearnedGradients to(value);
  std::vector<double>& d_table = to["pos_emb"];
  d_table = gradient_values(kCope, t.table, {1, 1, positions, s.head_dim});
  if (table == CopeTable::columns)
    d_table = detail::transposed_list(d_table, positions, s.head_dim);
  detail::InputGradients to_call(given);
  if (gates == CopeGates::mixed) {
    const CopeMixed m(s, call, given, value["talking_heads"]);
    const Index channels = m.heads * m.dim;
    const std::vector<double> dx =
        detail::vectors_gradient(kCope, t.query, {m.batch, m.queries, m.heads, channels});
    std::vector<double>& dw = to["talking_heads"];
    dw.resize(m.w.size());
    std::vector<double>& dq = to_call["q"];
    dq.resize(m.q.size());
    m.each([&](std::size_t at, std::size_t w, std::size_t q) {
      dw[w] += dx[at] * m.q[q];
      dq[q] += dx[at] * m.w[w];
    });
    to_call["k"] = detail::vectors_gradient(kCope, t.key, {m.batch, m.keys, 1, channels});
  } else if (gates != CopeGates::keys) {
    to_call[cope_key(*this)] = detail::vectors_gradient(kCope, t.key, given.shape(cope_key(*this)));
  }
  to.check(dp);
  to_call.accumulate(d_inputs);
  to.accumulate(dp);
}

}  // namespace posenc::v0
