// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/forgetting.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/layers/linear.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/term_names.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kForgetting = Forgetting::card.name;
using ForgettingValues = std::vector<double>;

std::vector<Index> forgetting_shape(const ConstTensorView& v) {
  return {v.shape.begin(), v.shape.begin() + v.rank};
}
ForgettingValues forgetting_values(const ConstTensorView& v) {
  return gradient_values(kForgetting, v, forgetting_shape(v));
}
std::size_t forgetting_size(Index n) {
  return static_cast<std::size_t>(n);
}

double forgetting_log_sigmoid(double z) {
  return z > 0 ? -std::log1p(std::exp(-z)) : z - std::log1p(std::exp(z));
}
double forgetting_slope(double z) {  // of log_sigmoid: sigmoid(-z)
  return z > 0 ? std::exp(-z) / (1 + std::exp(-z)) : 1 / (1 + std::exp(z));
}

// log f and its derivative by what it is made of, [batch, keys, columns].
struct ForgettingLogs {
  ForgettingValues log, slope;
};
ForgettingLogs forgetting_logs(const Forgetting& f, const ForgettingValues& z) {
  ForgettingLogs r{z, ForgettingValues(z.size(), f.log_scale)};
  for (std::size_t i = 0; i < z.size(); ++i) {
    if (f.gates != ForgettingGates::log_gate) {
      r.log[i] = forgetting_log_sigmoid(z[i]);
      r.slope[i] *= forgetting_slope(z[i]);
    }
    r.log[i] *= f.log_scale;
  }
  return r;
}

// What the gates of a key are made of: the only input, but for given gates by pair.
const ConstTensorView& gates_of(const Forgetting& f, const detail::CallInputs& given) {
  return given[f.gates == ForgettingGates::hidden  ? "hidden"
               : f.form == ForgettingForm::per_row ? "gate_key"
               : f.gates == ForgettingGates::logit ? "gate_logit"
                                                   : "log_gate"];
}

// The sums of gates over the keys before a query, and over those after it.
constexpr std::array<const char*, 2> kForgettingSets{"past", "future"};
detail::TermNames forgetting_terms(const Forgetting& f) {
  const bool pairs = f.form == ForgettingForm::per_row;
  return {kForgetting,
          {{"gates", pairs},
           {kForgettingSets[0], !pairs},
           {kForgettingSets[1], f.form == ForgettingForm::bidirectional}}};
}

// z, or log f where it is given.
ForgettingValues forgetting_source(const Forgetting& f, const ScoreShape& s,
                                   std::span<const ConstTensorView> p,
                                   const detail::CallInputs& given) {
  const ForgettingValues in = forgetting_values(gates_of(f, given));
  if (f.gates != ForgettingGates::hidden) return in;
  const detail::LearnedValues value(f, s, p);
  return detail::linear(in, value["w_f"], value.if_any("b_f"), f.width);
}

// The keys of the queries' own orders, and keys in their order. With rows of its own for each batch
// entry, gates of one row serve several.
struct ForgettingOrder {
  const CallData& call;
  Index gates;  // rows of what the call brings

  Index rows() const {
    Index n = gates;
    if (call.queries > 0) n = std::max(n, static_cast<Index>(call.own_keys.size()) / call.queries);
    if (call.keys > 0) n = std::max(n, static_cast<Index>(call.keys_by_order.size()) / call.keys);
    return n;
  }
  Index source(Index b) const { return gates == 1 ? 0 : b; }
  Index own(Index b, Index i) const {
    if (call.own_keys.empty()) return call.query_offset + i;
    return call.own_keys[at(call.own_keys, call.queries, b, i)];
  }
  Index key(Index b, Index t) const {
    if (call.keys_by_order.empty()) return t;
    return call.keys_by_order[at(call.keys_by_order, call.keys, b, t)];
  }
  // x [rows, keys, columns] at the queries' own keys, [rows, queries, columns].
  ForgettingValues at_queries(const ForgettingValues& x, Index x_rows, Index columns) const {
    ForgettingValues y;
    for (Index b = 0; b < rows(); ++b)
      for (Index i = 0; i < call.queries; ++i) {
        const auto from = x.begin() + ((x_rows == 1 ? 0 : b) * call.keys + own(b, i)) * columns;
        y.insert(y.end(), from, from + columns);
      }
    return y;
  }

 private:
  static std::size_t at(std::span<const Index> list, Index tokens, Index b, Index t) {
    return forgetting_size((static_cast<Index>(list.size()) == tokens ? 0 : b) * tokens + t);
  }
};

// The gradient of every log gate: c_t goes to all gates up to t.
ForgettingValues forgetting_gate_gradient(const Forgetting& f, const ScoreShape& s,
                                          const CallData& call, const detail::CallInputs& given,
                                          const LoweredGradient& g) {
  const Index heads = s.heads, batch = gates_of(f, given).shape[0], columns = f.gate_columns(s);
  const ForgettingOrder order{call, batch};
  const Index rows = order.rows();
  ForgettingValues d(forgetting_size(batch * call.keys * columns), 0.0);
  const detail::TermNames names = forgetting_terms(f);
  const detail::TermGradients of(names, g);
  for (Index set = 0; set < columns / heads; ++set) {
    const TermGradient& t = of[kForgettingSets[forgetting_size(set)]];
    const ForgettingValues q =
        detail::vectors_gradient(kForgetting, t.query, {rows, call.queries, heads, 1});
    const ForgettingValues k =
        detail::vectors_gradient(kForgetting, t.key, {rows, call.keys, heads, 1});
    ForgettingValues own(k.size(), 0.0);  // of the queries, at their own keys
    for (Index b = 0; b < rows; ++b)
      for (Index i = 0; i < call.queries; ++i)
        for (Index h = 0; h < heads; ++h)
          own[forgetting_size((b * call.keys + order.own(b, i)) * heads + h)] +=
              q[forgetting_size((b * call.queries + i) * heads + h)];
    for (Index b = 0; b < rows; ++b)
      for (Index h = 0; h < heads; ++h) {
        double sum = 0;
        for (Index n = call.keys; n-- > 0;) {
          const Index j = order.key(b, n);
          const std::size_t at = forgetting_size((b * call.keys + j) * heads + h);
          sum += k[at];
          sum += own[at];
          d[forgetting_size((order.source(b) * call.keys + j) * columns + set * heads + h)] += sum;
        }
      }
  }
  return d;
}

// x and y of every pair's gate inside the projected hidden state, [batch, keys, 2, heads, dim].
ForgettingValues forgetting_pair_gradient(const Forgetting& f, const ScoreShape& s,
                                          const CallData& call, const detail::CallInputs& given,
                                          const LoweredGradient& g) {
  const detail::TermNames names = forgetting_terms(f);
  const TermGradient& t = detail::TermGradients(names, g)["gates"];
  const Index batch = gates_of(f, given).shape[0], half = s.heads * f.gate_dim;
  const ForgettingOrder order{call, batch};
  const Index rows = call.own_keys.empty() ? batch : order.rows();
  const ForgettingValues q =
      detail::vectors_gradient(kForgetting, t.query, {rows, call.queries, s.heads, f.gate_dim});
  const ForgettingValues k =
      detail::vectors_gradient(kForgetting, t.key, {batch, call.keys, s.heads, f.gate_dim});
  ForgettingValues d(forgetting_size(batch * call.keys * 2 * half), 0.0);
  for (Index b = 0; b < rows; ++b)
    for (Index i = 0; i < call.queries; ++i)
      for (Index c = 0; c < half; ++c)
        d[forgetting_size((order.source(b) * call.keys + order.own(b, i)) * 2 * half + c)] +=
            q[forgetting_size((b * call.queries + i) * half + c)];
  for (Index b = 0; b < batch; ++b)
    for (Index j = 0; j < call.keys; ++j)
      for (Index c = 0; c < half; ++c)
        d[forgetting_size((b * call.keys + j) * 2 * half + half + c)] =
            k[forgetting_size((b * call.keys + j) * half + c)];
  return d;
}

AxisSize forgetting_columns(const Forgetting& f, const ScoreShape& s) {
  const AxisSize heads = ScoreAxes(s).heads;
  if (f.form == ForgettingForm::per_row) return 2 * heads * f.gate_dim;
  return f.form == ForgettingForm::bidirectional ? 2 * heads : heads;
}

}  // namespace

std::vector<Parameter> Forgetting::parameters(const ScoreShape& s) const {
  check_fields(s);
  if (gates != ForgettingGates::hidden) return {};
  const double most = 1 / std::sqrt(static_cast<double>(width));
  const AxisSize columns = forgetting_columns(*this, s);
  std::vector<Parameter> p{{"w_f", {columns, width}, {InitialKind::uniform, -most, most}, {}}};
  if (form != ForgettingForm::per_row)
    p.push_back({"b_f", {columns}, {InitialKind::constant, bias_init, 0}, {}});
  return p;
}

std::vector<Input> Forgetting::inputs(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  if (gates == ForgettingGates::hidden)
    return {{.name = "hidden", .shape = {kBatch, kKeys, width}}};
  if (form == ForgettingForm::per_row)
    return {{.name = "gate_query", .shape = {kBatch, kQueries, axes.heads, gate_dim}},
            {.name = "gate_key", .shape = {kBatch, kKeys, axes.heads, gate_dim}}};
  return {{.name = gates == ForgettingGates::logit ? "gate_logit" : "log_gate",
           .shape = {kBatch, kKeys, forgetting_columns(*this, s)}}};
}

void Forgetting::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                       LoweredTerms& out) const {
  check_parameter_count(kForgetting, parameters(s).size(), p.size());
  const detail::TermNames names = forgetting_terms(*this);
  detail::NamedTerms terms(names, out);
  if (form == ForgettingForm::per_row) {
    GatesTerm t;
    t.gate = Gate::log_sigmoid;
    t.gate_scale = 1 / std::sqrt(static_cast<double>(gate_dim));
    t.gate_own = false;
    t.scale = log_scale;
    return terms.add("gates", t);
  }
  DecayTerm t;
  if (form == ForgettingForm::bidirectional) t.side = Side::past;
  terms.add(kForgettingSets[0], t);
  if (form != ForgettingForm::bidirectional) return;
  t.side = Side::future;
  t.scale = -1;
  terms.add(kForgettingSets[1], t);
}

void Forgetting::bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                      std::span<Term> terms, TermStore& store) const {
  check_parameter_count(kForgetting, parameters(s).size(), p.size());
  check_call(s, call);
  const detail::CallInputs given(*this, s, call);
  const detail::TermNames names = forgetting_terms(*this);
  const Index heads_n = s.heads, columns = gate_columns(s);
  if (form == ForgettingForm::per_row && gates != ForgettingGates::hidden) {
    auto& t = std::get<GatesTerm>(names.of(terms, "gates"));
    t.query.given = heads(given["gate_query"], HeadsLayout::bthd);
    t.key.given = heads(given["gate_key"], HeadsLayout::bthd);
    return;
  }
  const Index batch = gates_of(*this, given).shape[0];
  ForgettingValues z = forgetting_source(*this, s, p, given);
  const ForgettingOrder order{call, batch};
  // Of all keys, and at the queries' own keys.
  const auto give = [&](auto& t, const ConstHeads& of_keys, const ConstHeads& of_own, Index query,
                        Index key) {
    t.key.given = slice_heads(of_keys, key, heads_n);
    t.query.given = slice_heads(of_own, query, heads_n);
    if (!call.own_keys.empty()) return;
    t.query.given.tokens = call.queries;
    t.query.given.data =
        static_cast<const double*>(t.query.given.data) + call.query_offset * of_own.token_stride;
  };
  const auto at_own = [&](const ForgettingValues& x, Index rows, const ConstHeads& of_keys) {
    return call.own_keys.empty()
               ? of_keys
               : store.vectors(order.at_queries(x, rows, of_keys.heads * of_keys.dim), order.rows(),
                               call.queries, of_keys.heads, of_keys.dim);
  };
  if (form == ForgettingForm::per_row) {
    const ConstHeads both = store.vectors(z, batch, call.keys, 2 * heads_n, gate_dim);
    return give(std::get<GatesTerm>(names.of(terms, "gates")), both, at_own(z, batch, both), 0,
                heads_n);
  }
  const ForgettingValues logs = forgetting_logs(*this, z).log;
  const Index rows = order.rows();
  ForgettingValues c(forgetting_size(rows * call.keys * columns));
  for (Index b = 0; b < rows; ++b)
    for (Index t = 0; t < call.keys; ++t)
      for (Index h = 0; h < columns; ++h) {
        const auto at = [&](Index row, Index n) {
          return forgetting_size((row * call.keys + order.key(b, n)) * columns + h);
        };
        c[at(b, t)] = (t == 0 ? 0 : c[at(b, t - 1)]) + logs[at(order.source(b), t)];
      }
  const ConstHeads all = store.vectors(c, rows, call.keys, columns, 1);
  const ConstHeads own = at_own(c, rows, all);
  for (std::size_t set = 0; set < terms.size(); ++set)
    give(std::get<DecayTerm>(names.of(terms, kForgettingSets[set])), all, own,
         static_cast<Index>(set) * heads_n, static_cast<Index>(set) * heads_n);
}

void Forgetting::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                           const CallData& call, const LoweredGradient& g,
                           std::span<const TensorView> dp,
                           std::span<const TensorView> d_inputs) const {
  const detail::LearnedValues value(*this, s, p);
  check_call(s, call);
  detail::LearnedGradients to(value);
  to.check(dp);
  const detail::CallInputs given(*this, s, call);
  detail::InputGradients to_call(given);
  if (form == ForgettingForm::per_row && gates != ForgettingGates::hidden) {
    const detail::TermNames names = forgetting_terms(*this);
    const TermGradient& t = detail::TermGradients(names, g)["gates"];
    to_call["gate_query"] =
        detail::vectors_gradient(kForgetting, t.query, given.shape("gate_query"));
    to_call["gate_key"] = detail::vectors_gradient(kForgetting, t.key, given.shape("gate_key"));
    return to_call.accumulate(d_inputs);
  }
  ForgettingValues d = form == ForgettingForm::per_row
                           ? forgetting_pair_gradient(*this, s, call, given, g)
                           : forgetting_gate_gradient(*this, s, call, given, g);
  if (form != ForgettingForm::per_row) {
    const ForgettingValues slope =
        forgetting_logs(*this, forgetting_source(*this, s, p, given)).slope;
    for (std::size_t i = 0; i < d.size(); ++i) d[i] *= slope[i];
  }
  if (gates != ForgettingGates::hidden) {
    to_call[gates == ForgettingGates::logit ? "gate_logit" : "log_gate"] = std::move(d);
    return to_call.accumulate(d_inputs);
  }
  const ForgettingValues hidden = forgetting_values(given["hidden"]);
  const ForgettingValues w = value["w_f"];
  detail::LinearGradient of = detail::linear_gradient(d, hidden, w, width);
  to["w_f"] = std::move(of.w);
  if (value.has("b_f")) to["b_f"] = std::move(of.b);
  to_call["hidden"] = std::move(of.x);
  to_call.accumulate(d_inputs);
  to.accumulate(dp);
}

void Forgetting::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kForgetting);
  if (gates == ForgettingGates::hidden && (width < 1 || width > 1000000))
    refuse_field(kForgetting, "width", "must lie between 1 and 1000000 with gates=hidden", width);
  if (form == ForgettingForm::per_row && (gate_dim < 1 || gate_dim > 65536))
    refuse_field(kForgetting, "gate_dim", "must lie between 1 and 65536 with form=per_row",
                 gate_dim);
  if (!std::isfinite(log_scale))
    refuse_field(kForgetting, "log_scale", "must be finite", log_scale);
  if (!std::isfinite(bias_init))
    refuse_field(kForgetting, "bias_init", "must be finite", bias_init);
}

void Forgetting::check_call(const ScoreShape& s, const CallData& call) const {
  const std::vector<Input> needed = inputs(s);
  const detail::CallInputs given(*this, s, call);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const ConstTensorView& v = given[needed[i].name];
    if (v.rank != static_cast<std::int32_t>(needed[i].shape.size()))
      refuse_field(kForgetting, needed[i].name, "must have the rank of inputs()", Index{v.rank});
    for (std::size_t a = 1; a < needed[i].shape.size(); ++a) {
      const Index want = needed[i].shape[a];
      if (v.shape[a] != (want == kKeys ? call.keys : want == kQueries ? call.queries : want))
        refuse_field(kForgetting, needed[i].name, "must have the shape of inputs()", v.shape[a]);
    }
  }
  const bool by_order = form != ForgettingForm::per_row || gates == ForgettingGates::hidden;
  if (!by_order) return;
  if (!call.own_keys.empty()) {
    if (std::find(call.own_keys.begin(), call.own_keys.end(), -1) != call.own_keys.end())
      refuse_field(kForgetting, "queries",
                   "must be among the keys of their batch entry or sequence");
    return;
  }
  if (call.query_offset < 0 || call.query_offset > call.keys - call.queries)
    refuse_field(kForgetting, "queries", "must be among the keys, query_offset 0 to keys - queries",
                 call.query_offset);
}

}  // namespace posenc::v0
