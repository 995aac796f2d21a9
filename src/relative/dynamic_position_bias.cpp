// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/dynamic_position_bias.h"

#include <cmath>
#include <string>
#include <utility>

#include "posenc/core/error.h"
#include "relative/layers/linear.h"
#include "relative/layers/row_norm.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kDynamicBias = "dynamic_position_bias";
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
  std::vector<DynamicBiasValues> p;  // in the order of the parameters
  std::vector<DynamicBiasLayer> layers;
  DynamicBiasValues last, out;  // out [rows, heads]

  std::size_t weight(std::size_t layer) const {  // its place in p
    return layer == 0 ? 0 : norm ? 4 * layer - 1 : 2 * layer;
  }
};

std::size_t dynamic_bias_at(Index i) {
  return static_cast<std::size_t>(i);
}

void dynamic_bias_forward(DynamicBiasMlp& m, DynamicBiasValues x, Index depth) {
  for (std::size_t n = 0; n < dynamic_bias_at(depth); ++n) {
    const std::size_t w = m.weight(n);
    DynamicBiasLayer l;
    DynamicBiasValues y = detail::linear(x, m.p[w], m.p[w + 1], n == 0 ? 1 : m.width);
    l.in = std::move(x);
    if (m.norm) {
      l.norm = {std::move(y), m.width, kDynamicBiasEpsilon};
      y = l.norm.weighted(m.p[w + 2], n == 0 ? DynamicBiasValues{} : m.p[w + 3]);
    }
    l.active = y;
    for (double& e : y) e /= 1 + std::exp(-e);
    x = std::move(y);
    m.layers.push_back(std::move(l));
  }
  const std::size_t w = m.weight(dynamic_bias_at(depth));
  m.out = detail::linear(x, m.p[w], m.p[w + 1], m.width);
  m.last = std::move(x);
}

// d of out -> of every parameter.
std::vector<DynamicBiasValues> dynamic_bias_back(const DynamicBiasMlp& m,
                                                 const DynamicBiasValues& d_out) {
  const auto width = dynamic_bias_at(m.width);
  std::vector<DynamicBiasValues> d(m.p.size());
  const std::size_t end = m.weight(m.layers.size());
  DynamicBiasValues dx;
  const auto pull = [&](const DynamicBiasValues& dy, const DynamicBiasValues& x, std::size_t w,
                        Index in) {
    detail::LinearGradient g = detail::linear_gradient(dy, x, m.p[w], in);
    d[w] = std::move(g.w), d[w + 1] = std::move(g.b), dx = std::move(g.x);
  };
  pull(d_out, m.last, end, m.width);
  for (std::size_t n = m.layers.size(); n-- > 0;) {
    const DynamicBiasLayer& l = m.layers[n];
    const std::size_t w = m.weight(n);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double gate = 1 / (1 + std::exp(-l.active[i]));
      dx[i] *= gate * (1 + l.active[i] * (1 - gate));
    }
    if (m.norm) {
      d[w + 2].assign(width, 0);
      DynamicBiasValues d_bias(width, 0.0);  // the first layer has none
      detail::pull_row_weights(l.norm, m.p[w + 2], dx, d[w + 2], d_bias);
      if (n > 0) d[w + 3] = std::move(d_bias);
      l.norm.pull_back(dx);
    }
    pull(dx, l.in, w, n == 0 ? 1 : m.width);
  }
  return d;
}

DynamicBiasMlp dynamic_bias_run(const DynamicPositionBias& x, const ScoreShape& s,
                                std::span<const ConstTensorView> p) {
  const std::vector<Parameter> needed = x.parameters(s);
  check_parameter_count(kDynamicBias, needed.size(), p.size());
  const DistanceRange& r = s.range(x.axis);
  const detail::Distances all(kDynamicBias, r, x.width);
  DynamicBiasMlp m{all.count(), x.width, s.heads, x.norm, {}, {}, {}, {}};
  for (std::size_t i = 0; i < needed.size(); ++i)
    m.p.push_back(parameter_values(kDynamicBias, needed[i], p[i]));
  DynamicBiasValues distance;
  all.each([&](Index delta) {
    const auto y = static_cast<double>(delta);
    distance.push_back(x.log_distance ? std::copysign(std::log1p(std::abs(y)), y) : y);
  });
  dynamic_bias_forward(m, std::move(distance), x.depth);
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
    const std::string name = "mlp_" + std::to_string(n) + (end ? "_" : "_0_");
    p.push_back({name + "weight", {to, from}, detail::linear_start(from), {}});
    p.push_back({name + "bias", {to}, detail::linear_start(from), {}});
    if (end || !norm) continue;
    const std::string of_norm = "mlp_" + std::to_string(n) + "_1_";
    p.push_back(
        {of_norm + (n == 0 ? "gamma" : "weight"), {width}, {InitialKind::constant, 1, 0}, {}});
    if (n > 0) p.push_back({of_norm + "bias", {width}, {}, {}});
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
  accumulate(kDynamicBias, parameters(s), dp,
             dynamic_bias_back(m, detail::transposed_list(d, s.heads, m.rows)));
}

}  // namespace posenc::v0
