// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/dynamic_position_bias.h"

#include <cmath>
#include <string>
#include <utility>

#include "posenc/core/error.h"
#include "relative/layers/linear.h"
#include "relative/layers/row_norm.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kDynamicBias = DynamicPositionBias::card.name;
constexpr double kDynamicBiasEpsilon = 1e-5;  // of LayerNorm
using DynamicBiasValues = std::vector<double>;

struct DynamicBiasLayer {
  DynamicBiasValues in, active;  // rows: what came in, before SiLU
  detail::RowNorm norm;
};

// The perceptron over all distances, with what its gradient needs.
struct DynamicBiasMlp {
  Index rows, width, heads;
  bool norm;
  Index depth;
  detail::LearnedValues value;
  std::vector<DynamicBiasLayer> layers;
  DynamicBiasValues last, out;  // out [rows, heads]
};

// Names of the parameters of layer n; the last one has no normalisation.
std::string dynamic_bias_linear(Index n, Index depth, const char* which) {
  return "mlp_" + std::to_string(n) + (n == depth ? "_" : "_0_") + which;
}
std::string dynamic_bias_gain(Index n) {
  return "mlp_" + std::to_string(n) + (n == 0 ? "_1_gamma" : "_1_weight");
}
std::string dynamic_bias_shift(Index n) {  // the first layer has none
  return "mlp_" + std::to_string(n) + "_1_bias";
}

std::size_t dynamic_bias_at(Index i) {
  return static_cast<std::size_t>(i);
}

DynamicBiasValues dynamic_bias_product(const DynamicBiasMlp& m, const DynamicBiasValues& x,
                                       Index n) {
  return detail::linear(x, m.value[dynamic_bias_linear(n, m.depth, "weight")],
                        m.value[dynamic_bias_linear(n, m.depth, "bias")], n == 0 ? 1 : m.width);
}

void dynamic_bias_forward(DynamicBiasMlp& m, DynamicBiasValues x) {
  for (Index n = 0; n < m.depth; ++n) {
    DynamicBiasLayer l;
    DynamicBiasValues y = dynamic_bias_product(m, x, n);
    l.in = std::move(x);
    if (m.norm) {
      l.norm = {std::move(y), m.width, kDynamicBiasEpsilon};
      y = l.norm.weighted(m.value[dynamic_bias_gain(n)], m.value.if_any(dynamic_bias_shift(n)));
    }
    l.active = y;
    for (double& e : y) e /= 1 + std::exp(-e);
    x = std::move(y);
    m.layers.push_back(std::move(l));
  }
  m.out = dynamic_bias_product(m, x, m.depth);
  m.last = std::move(x);
}

// d of out -> of every parameter.
detail::LearnedGradients dynamic_bias_back(const DynamicBiasMlp& m,
                                           const DynamicBiasValues& d_out) {
  const auto width = dynamic_bias_at(m.width);
  detail::LearnedGradients d(m.value);
  DynamicBiasValues dx;
  const auto pull = [&](const DynamicBiasValues& dy, const DynamicBiasValues& x, Index n) {
    const std::string weight = dynamic_bias_linear(n, m.depth, "weight");
    detail::LinearGradient g =
        detail::linear_gradient(dy, x, m.value[weight], n == 0 ? 1 : m.width);
    d[weight] = std::move(g.w), dx = std::move(g.x);
    d[dynamic_bias_linear(n, m.depth, "bias")] = std::move(g.b);
  };
  pull(d_out, m.last, m.depth);
  for (Index n = m.depth; n-- > 0;) {
    const DynamicBiasLayer& l = m.layers[dynamic_bias_at(n)];
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double gate = 1 / (1 + std::exp(-l.active[i]));
      dx[i] *= gate * (1 + l.active[i] * (1 - gate));
    }
    if (m.norm) {
      DynamicBiasValues d_gain(width, 0.0), d_shift(width, 0.0);
      detail::pull_row_weights(l.norm, m.value[dynamic_bias_gain(n)], dx, d_gain, d_shift);
      d[dynamic_bias_gain(n)] = std::move(d_gain);
      if (n > 0) d[dynamic_bias_shift(n)] = std::move(d_shift);
      l.norm.pull_back(dx);
    }
    pull(dx, l.in, n);
  }
  return d;
}

DynamicBiasMlp dynamic_bias_run(const DynamicPositionBias& x, const ScoreShape& s,
                                std::span<const ConstTensorView> p) {
  detail::LearnedValues value(x, s, p);
  const DistanceRange& r = s.range(x.axis);
  const detail::Distances all(kDynamicBias, r, x.width);
  DynamicBiasMlp m{all.count(), x.width, s.heads, x.norm, x.depth, std::move(value), {}, {}, {}};
  DynamicBiasValues distance;
  all.each([&](Index delta) {
    const auto y = static_cast<double>(delta);
    distance.push_back(x.log_distance ? std::copysign(std::log1p(std::abs(y)), y) : y);
  });
  dynamic_bias_forward(m, std::move(distance));
  return m;
}

}  // namespace

std::vector<Parameter> DynamicPositionBias::parameters(const ScoreShape& s) const {
  check_score_shape(s, kDynamicBias);
  if (width < 1 || width > 65536)
    refuse_field(kDynamicBias, "width", "must lie between 1 and 65536", width);
  if (depth < 1 || depth > 64)
    refuse_field(kDynamicBias, "depth", "must lie between 1 and 64", depth);
  if (axis < 0 || axis > 7) refuse_field(kDynamicBias, "axis", "must lie between 0 and 7", axis);
  const ScoreAxes axes(s);
  std::vector<Parameter> p;
  for (Index n = 0; n <= depth; ++n) {
    const bool end = n == depth;
    const Index from = n == 0 ? 1 : width;
    const AxisSize to = end ? axes.heads : AxisSize(width);
    const Initial start = detail::linear_start(from);
    p.push_back({dynamic_bias_linear(n, depth, "weight"), {to, from}, start, {}});
    p.push_back({dynamic_bias_linear(n, depth, "bias"), {to}, start, {}});
    if (end || !norm) continue;
    p.push_back({dynamic_bias_gain(n), {width}, {InitialKind::constant, 1, 0}, {}});
    if (n > 0) p.push_back({dynamic_bias_shift(n), {width}, {}, {}});
  }
  return p;
}

void DynamicPositionBias::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                                LoweredTerms& out) const {
  const DynamicBiasMlp m = dynamic_bias_run(*this, s, p);
  const DistanceRange& r = s.range(axis);
  const detail::Distances all(kDynamicBias, r, width);
  out.add(detail::number_term(
      out.table(detail::transposed_list(m.out, m.rows, s.heads), s.heads, m.rows, 1),
      detail::line_over(
          kDynamicBias, out, r, [&](Index delta) { return all.row(delta); },
          static_cast<std::int32_t>(axis)),
      1));
}

void DynamicPositionBias::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                                    const CallData&, const LoweredGradient& g,
                                    std::span<const TensorView> dp,
                                    std::span<const TensorView>) const {
  const DynamicBiasMlp m = dynamic_bias_run(*this, s, p);
  const DynamicBiasValues d = gradient_values(
      kDynamicBias, gradient_of(kDynamicBias, g.terms, 0).table, {1, s.heads, m.rows, 1});
  dynamic_bias_back(m, detail::transposed_list(d, s.heads, m.rows)).accumulate(dp);
}

}  // namespace posenc::v0
