// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/relative_projection.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "relative/call_inputs.h"
#include "relative/layers/linear.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kRelativeProjection = RelativeProjection::card.name;

// The hidden states of the call, checked.
detail::CallInputs relative_projection_inputs(const RelativeProjection& x, const ScoreShape& s,
                                              const CallData& call) {
  detail::CallInputs given(x, s, call);
  const ConstTensorView& v = given["hidden"];
  if (v.rank != 3 || v.shape[1] != call.queries || v.shape[2] != x.width)
    refuse_field(kRelativeProjection, "hidden", "must be [batch, queries, width], width", x.width);
  return given;
}
std::vector<double> relative_projection_hidden(const detail::CallInputs& given) {
  return gradient_values(kRelativeProjection, given["hidden"], given.shape("hidden"));
}
// Of every query and head the projected vector.
std::vector<double> relative_projection_vectors(const RelativeProjection& x,
                                                const detail::LearnedValues& value,
                                                const std::vector<double>& hidden) {
  return detail::linear(hidden, value["w_r"], value.if_any("b_r"), x.width);
}

Index order_of_query(const CallData& call, Index row, Index query) {
  if (call.query_orders.empty()) return call.query_offset + query;
  const bool one = static_cast<Index>(call.query_orders.size()) == call.queries;
  return call.query_orders[static_cast<std::size_t>((one ? 0 : row * call.queries) + query)];
}

// Multiplies each query's vectors, [rows, queries, each].
void relative_projection_scale(const RelativeProjection& x, const CallData& call, Index each,
                               std::vector<double>& v) {
  if (x.log_scaling_n_floor == 0) return;
  const Positions& p = call.query_positions;
  const bool by_order = x.log_scaling_by == LogScalingBy::order || p.data == nullptr;
  const auto rows = static_cast<Index>(v.size()) / std::max<Index>(1, call.queries * each);
  for (Index b = 0; b < rows; ++b)
    for (Index t = 0; t < call.queries; ++t) {
      const double at = by_order ? static_cast<double>(order_of_query(call, b, t))
                                 : position_at(p, 0, p.batch == 1 ? 0 : b, t);
      const double tau =
          1 + x.log_scaling_alpha * std::log(std::max((at + 1) / x.log_scaling_n_floor, 1.0));
      for (Index c = 0; c < each; ++c)
        v[static_cast<std::size_t>((b * call.queries + t) * each + c)] *= tau;
    }
}

constexpr double kClipEpsilon = 1e-6;  // Inkling2ScaledL2Clip

double norm_of_scaled(const double* x, const double* scale, std::size_t n) {
  double sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += x[c] * scale[c] * x[c] * scale[c];
  return std::sqrt(sum);
}

// Vectors of n numbers, [rows, heads, n], scale [heads, n].
void clip_scaled(double limit, const std::vector<double>& scale, std::size_t n,
                 std::vector<double>& v) {
  for (std::size_t at = 0; at < v.size(); at += n) {
    const double* s = &scale[at % scale.size()];
    const double factor = std::min(1.0, limit / (norm_of_scaled(&v[at], s, n) + kClipEpsilon));
    for (std::size_t c = 0; c < n; ++c) v[at + c] *= s[c] * factor;
  }
}

// From d of the clipped vectors to d of x in place; the gradient of the scale is added to d_scale.
//   z = f y, y = s x, f = L / (|y| + e):   d_y = f d_z - y f (y . d_z) / (|y| (|y| + e))
void clip_scaled_gradient(double limit, const std::vector<double>& x,
                          const std::vector<double>& scale, std::size_t n, std::vector<double>& d,
                          std::vector<double>& d_scale) {
  for (std::size_t at = 0; at < d.size(); at += n) {
    const std::size_t first = at % scale.size();
    const double norm = norm_of_scaled(&x[at], &scale[first], n), above = norm + kClipEpsilon;
    const double factor = std::min(1.0, limit / above);
    double dot = 0;
    for (std::size_t c = 0; c < n; ++c) dot += x[at + c] * scale[first + c] * d[at + c];
    const double along = factor < 1 && norm > 0 ? factor * dot / (norm * above) : 0;
    for (std::size_t c = 0; c < n; ++c) {
      const double s = scale[first + c], y = x[at + c] * s;
      const double dy = factor * d[at + c] - along * y;
      d_scale[first + c] += dy * x[at + c];
      d[at + c] = dy * s;
    }
  }
}

}  // namespace

void RelativeProjection::check_fields() const {
  if (basis < 1 || basis > 65536)
    refuse_field(kRelativeProjection, "basis", "must lie between 1 and 65536", basis);
  if (max_distance < 1 || max_distance > 10000000)
    refuse_field(kRelativeProjection, "max_distance", "must lie between 1 and 10000000",
                 max_distance);
  if (width < 1 || width > 1000000)
    refuse_field(kRelativeProjection, "width", "must lie between 1 and 1000000", width);
  for (const double n : {log_scaling_n_floor, log_scaling_alpha})
    if (!std::isfinite(n) || n < 0)
      refuse(kRelativeProjection,
             "log_scaling_n_floor and log_scaling_alpha must be finite and not negative", n);
  if (!std::isfinite(l2_clip) || l2_clip < 0)
    refuse_field(kRelativeProjection, "l2_clip", "must be finite and not negative", l2_clip);
}

std::vector<Parameter> RelativeProjection::parameters(const ScoreShape& s) const {
  check_score_shape(s, kRelativeProjection);
  check_fields();
  const ScoreAxes axes(s);
  const double most = 1 / std::sqrt(static_cast<double>(width));
  const Initial linear{InitialKind::uniform, -most, most};
  std::vector<Parameter> p{
      {"distance_bank", {basis, max_distance}, {InitialKind::normal, 0, init}, {}},
      {"w_r", {axes.heads * basis, width}, linear, {}}};
  if (projection_bias) p.push_back({"b_r", {axes.heads * basis}, linear, {}});
  if (l2_clip > 0) p.push_back({"clip_scale", {axes.heads, basis}, {InitialKind::constant, 1}, {}});
  return p;
}

std::vector<Input> RelativeProjection::inputs(const ScoreShape&) const {
  return {{.name = "hidden", .shape = {kBatch, kQueries, width}}};
}

void RelativeProjection::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                               LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  const std::vector<double> bank = value["distance_bank"];
  ProductTerm t;
  t.table = out.table(detail::transposed_list(bank, basis, max_distance), 1, max_distance, basis);
  t.lines[0] = detail::line_over(
      kRelativeProjection, out, detail::clipped(s.range(), -1, max_distance),
      [&](Index delta) { return delta < 0 || delta >= max_distance ? -1 : delta; });
  out.add(t);
}

void RelativeProjection::bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData& call, std::span<Term> terms, TermStore& store) const {
  const detail::LearnedValues value(*this, s, p);
  const detail::CallInputs given = relative_projection_inputs(*this, s, call);
  std::vector<double> x =
      relative_projection_vectors(*this, value, relative_projection_hidden(given));
  if (l2_clip > 0) clip_scaled(l2_clip, value["clip_scale"], static_cast<std::size_t>(basis), x);
  relative_projection_scale(*this, call, s.heads * basis, x);
  std::get<ProductTerm>(terms[0]).query.given =
      store.vectors(std::move(x), given["hidden"].shape[0], call.queries, s.heads, basis);
}

void RelativeProjection::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                                   const CallData& call, const LoweredGradient& g,
                                   std::span<const TensorView> dp,
                                   std::span<const TensorView> d_inputs) const {
  const detail::LearnedValues value(*this, s, p);
  const detail::CallInputs given = relative_projection_inputs(*this, s, call);
  const std::vector<double> hidden = relative_projection_hidden(given);
  const std::vector<double> x = relative_projection_vectors(*this, value, hidden);
  const std::vector<double> w = value["w_r"], scale = value.if_any("clip_scale");
  const Index batch = given["hidden"].shape[0];
  const TermGradient& t = gradient_of(kRelativeProjection, g.terms, 0);
  const std::vector<double> curves =
      gradient_values(kRelativeProjection, t.table, {1, 1, max_distance, basis});
  std::vector<double> dx =
      detail::vectors_gradient(kRelativeProjection, t.query, {batch, call.queries, s.heads, basis});
  relative_projection_scale(*this, call, s.heads * basis, dx);
  std::vector<double> d_scale(scale.size());
  if (l2_clip > 0)
    clip_scaled_gradient(l2_clip, x, scale, static_cast<std::size_t>(basis), dx, d_scale);
  const detail::LinearGradient of = detail::linear_gradient(dx, hidden, w, width);
  detail::InputGradients to_call(given);
  to_call["hidden"] = of.x;
  detail::LearnedGradients to(value);
  to.check(dp);
  to_call.accumulate(d_inputs);
  to["distance_bank"] = detail::transposed_list(curves, max_distance, basis);
  to["w_r"] = of.w;
  if (projection_bias) to["b_r"] = of.b;
  if (l2_clip > 0) to["clip_scale"] = std::move(d_scale);
  to.accumulate(dp);
}

}  // namespace posenc::v0
