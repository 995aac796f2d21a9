// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/relative_projection.h"

#include <cmath>

#include "posenc/core/error.h"
#include "relative/linear.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kRelativeProjection = "relative_projection";

std::vector<Index> relative_projection_shape(const ConstTensorView& v) {
  return {v.shape.begin(), v.shape.begin() + v.rank};
}
std::vector<double> relative_projection_hidden(const CallData& call) {
  return gradient_values(kRelativeProjection, call.inputs[0],
                         relative_projection_shape(call.inputs[0]));
}

}  // namespace

std::vector<Parameter> RelativeProjection::parameters(const ScoreShape& s) const {
  check_score_shape(s, kRelativeProjection);
  if (basis < 1 || basis > 65536)
    refuse(kRelativeProjection, "basis must lie between 1 and 65536", basis);
  if (max_distance < 1 || max_distance > 10000000)
    refuse(kRelativeProjection, "max_distance must lie between 1 and 10000000", max_distance);
  if (width < 1 || width > 1000000)
    refuse(kRelativeProjection, "width must lie between 1 and 1000000", width);
  const double most = 1 / std::sqrt(static_cast<double>(width));
  const Initial linear{InitialKind::uniform, -most, most};
  return {{"distance_bank", {basis, max_distance}, {InitialKind::normal, 0, init}, {}},
          {"w_r", {s.heads * basis, width}, linear, {}},
          {"b_r", {s.heads * basis}, linear, {}}};
}

std::vector<Input> RelativeProjection::inputs(const ScoreShape&) const {
  return {{.name = "hidden", .shape = {kBatch, kQueries, width}}};
}

void RelativeProjection::check_call(const CallData& call) const {
  if (call.inputs.size() != 1 || call.inputs[0].rank != 3 ||
      call.inputs[0].shape[1] != call.queries || call.inputs[0].shape[2] != width)
    refuse(kRelativeProjection, "hidden must be [batch, queries, width], width", width);
}

void RelativeProjection::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                               LoweredTerms& out) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kRelativeProjection, needed.size(), p.size());
  const std::vector<double> bank = parameter_values(kRelativeProjection, needed[0], p[0]);
  Term t;
  t.table = out.table(detail::transposed_list(bank, basis, max_distance), 1, max_distance, basis);
  t.lines[0] = detail::line_over(
      kRelativeProjection, out, detail::clipped(s.range(), -1, max_distance),
      [&](Index delta) { return delta < 0 || delta >= max_distance ? -1 : delta; });
  out.add(t);
}

void RelativeProjection::bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                              const CallData& call, std::span<Term> terms, TermStore& store) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kRelativeProjection, needed.size(), p.size());
  check_call(call);
  const std::vector<double> hidden = relative_projection_hidden(call);
  const std::vector<double> w = parameter_values(kRelativeProjection, needed[1], p[1]);
  const std::vector<double> b = parameter_values(kRelativeProjection, needed[2], p[2]);
  const Index batch = call.inputs[0].shape[0];
  terms[0].query.given =
      store.vectors(detail::linear(hidden, w, b, width), batch, call.queries, s.heads, basis);
}

void RelativeProjection::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                                   const CallData& call, const LoweredGradient& g,
                                   std::span<const TensorView> dp,
                                   std::span<const TensorView> d_inputs) const {
  const std::vector<Parameter> needed = parameters(s);
  check_parameter_count(kRelativeProjection, needed.size(), p.size());
  check_call(call);
  const std::vector<double> hidden = relative_projection_hidden(call);
  const std::vector<double> w = parameter_values(kRelativeProjection, needed[1], p[1]);
  const Index batch = call.inputs[0].shape[0];
  const TermGradient& t = gradient_of(kRelativeProjection, g.terms, 0);
  const std::vector<double> curves =
      gradient_values(kRelativeProjection, t.table, {1, 1, max_distance, basis});
  const std::vector<double> dx =
      detail::vectors_gradient(kRelativeProjection, t.query, {batch, call.queries, s.heads, basis});
  const detail::LinearGradient of = detail::linear_gradient(dx, hidden, w, width);
  const Parameter input{"hidden", relative_projection_shape(call.inputs[0]), {}, {}};
  check_gradients(kRelativeProjection, needed, dp);
  accumulate(kRelativeProjection, std::span(&input, 1), d_inputs,
             std::vector<std::vector<double>>{of.x});
  accumulate(kRelativeProjection, needed, dp,
             std::vector<std::vector<double>>{detail::transposed_list(curves, max_distance, basis),
                                              of.w, of.b});
}

}  // namespace posenc::v0
