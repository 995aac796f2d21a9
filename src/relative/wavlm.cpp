// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/wavlm.h"

#include <array>
#include <cmath>

#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"
#include "relative/t5_tables.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kWavLm = WavLm::card.name;
constexpr std::size_t kWavLmGates = 8;  // two groups of four

detail::T5Table wavlm_table(const WavLm& x) {
  return {"table", T5{.num_buckets = x.num_buckets, .max_distance = x.max_distance}};
}

// The gates of one token and head: sigmoid of the sum of each group.
std::array<double, 2> wavlm_gates(const double* x, std::size_t dim, const std::vector<double>& w,
                                  const std::vector<double>& bias) {
  std::array<double, 2> sum{};
  for (std::size_t e = 0; e < kWavLmGates; ++e) {
    double y = bias[e];
    for (std::size_t c = 0; c < dim; ++c) y += w[e * dim + c] * x[c];
    sum[e / 4] += y;
  }
  return {1 / (1 + std::exp(-sum[0])), 1 / (1 + std::exp(-sum[1]))};
}

// All that the gates are made of, dense.
struct WavLmCall {
  std::vector<double> x, constant, weight, bias;
  Parameter hidden;
  WavLmCall(const ScoreShape& s, const detail::LearnedValues& value, const ConstTensorView& input) {
    hidden = {"hidden", {input.shape[0], input.shape[1], s.heads * s.head_dim}, {}, {}};
    x = parameter_values(kWavLm, hidden, input);
    constant = value["gate_const"];
    weight = value["gate_weight"];
    bias = value["gate_bias"];
  }
};

}  // namespace

std::vector<Parameter> WavLm::parameters(const ScoreShape& s) const {
  const ScoreAxes axes(s);
  const detail::T5Table table = wavlm_table(*this);
  std::vector<Parameter> p = detail::t5_tables_parameters(kWavLm, s, std::span(&table, 1));
  p[0].initial = {InitialKind::normal, 0, 1};
  p.push_back({"gate_const", {1, axes.heads, 1, 1}, {InitialKind::constant, 1, 0}, {}});
  p.push_back({"gate_weight",
               {static_cast<Index>(kWavLmGates), axes.head_dim},
               {InitialKind::normal, 0, 0.02},
               {}});
  p.push_back({"gate_bias", {static_cast<Index>(kWavLmGates)}, {}, {}});
  return p;
}

std::vector<Input> WavLm::inputs(const ScoreShape& s) const {
  const ScoreAxes axes(s);
  return {{.name = "hidden", .shape = {kBatch, kQueries, axes.heads * axes.head_dim}}};
}

void WavLm::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                  LoweredTerms& out) const {
  check_parameter_count(kWavLm, parameters(s).size(), p.size());
  const detail::T5Table table = wavlm_table(*this);
  detail::lower_t5_tables(kWavLm, s, std::span(&table, 1), p.first(1), out);
}

void WavLm::bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                 std::span<Term> terms, TermStore& store) const {
  const WavLmCall c(s, {*this, s, p}, detail::CallInputs(*this, s, call)["hidden"]);
  const auto dim = static_cast<std::size_t>(s.head_dim), heads = static_cast<std::size_t>(s.heads);
  std::vector<double> x(c.x.size() / dim);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto [a, b] = wavlm_gates(&c.x[i * dim], dim, c.weight, c.bias);
    x[i] = a * (b * c.constant[i % heads] - 1) + 2;
  }
  std::get<ProductTerm>(terms[0]).query.given =
      store.vectors(std::move(x), c.hidden.shape[0], c.hidden.shape[1], s.heads, 1);
}

void WavLm::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                      const LoweredGradient& g, std::span<const TensorView> dp,
                      std::span<const TensorView> d_inputs) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  to["table"] = detail::transposed_list(
      gradient_values(kWavLm, gradient_of(kWavLm, g.terms, 0).table, {1, s.heads, num_buckets, 1}),
      s.heads, num_buckets);
  const auto dim = static_cast<std::size_t>(s.head_dim), heads = static_cast<std::size_t>(s.heads);
  std::vector<double>&d_constant = to["gate_const"], &d_weight = to["gate_weight"],
  &d_bias = to["gate_bias"];
  d_constant.resize(heads);
  d_weight.resize(kWavLmGates * dim);
  d_bias.resize(kWavLmGates);
  if (call.inputs.empty()) return to.accumulate(dp);
  const detail::CallInputs given(*this, s, call);
  const WavLmCall c(s, value, given["hidden"]);
  const std::vector<double> dg =
      detail::vectors_gradient(kWavLm, gradient_of(kWavLm, g.terms, 0).query,
                               {c.hidden.shape[0], c.hidden.shape[1], s.heads, 1});
  std::vector<double> dx(c.x.size());
  for (std::size_t i = 0; i < dg.size(); ++i) {
    const auto [a, b] = wavlm_gates(&c.x[i * dim], dim, c.weight, c.bias);
    const double k = c.constant[i % heads];
    const std::array<double, 2> dy{dg[i] * (b * k - 1) * a * (1 - a), dg[i] * a * k * b * (1 - b)};
    d_constant[i % heads] += dg[i] * a * b;
    for (std::size_t e = 0; e < kWavLmGates; ++e) {
      d_bias[e] += dy[e / 4];
      for (std::size_t n = 0; n < dim; ++n) {
        d_weight[e * dim + n] += dy[e / 4] * c.x[i * dim + n];
        dx[i * dim + n] += dy[e / 4] * c.weight[e * dim + n];
      }
    }
  }
  if (d_inputs.empty() || d_inputs[0].empty()) return to.accumulate(dp);
  detail::InputGradients to_call(given);
  to_call["hidden"] = std::move(dx);
  to_call.check(d_inputs);
  to.accumulate(dp);
  to_call.accumulate(d_inputs);
}

}  // namespace posenc::v0
