// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/continuous_axial.h"

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> ContinuousAxial::parameters() const {
  check_fields();
  std::vector<Parameter> all;
  for (Index a = 0; a < axes; ++a)
    for (Index l = 0; l <= depth; ++l) {
      const std::string at = "_" + std::to_string(a) + "_" + std::to_string(l);
      const Index in = l == 0 ? 1 : hidden, out = l == depth ? width : hidden;
      const double b = 1 / std::sqrt(static_cast<double>(in));
      all.push_back({"weight" + at, {out, in}, {InitialKind::uniform, -b, b}, {}});
      all.push_back({"bias" + at, {out}, {InitialKind::uniform, -b, b}, {}});
    }
  return all;
}

void ContinuousAxial::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("continuous_axial", needed.size(), p.size());
  const auto value = [&](std::size_t i) {
    return parameter_values("continuous_axial", needed[i], p[i]);
  };
  std::size_t next = 0;
  for (Index a = 0; a < axes; ++a) {
    std::vector<double> pick(static_cast<std::size_t>(axes + 1), 0.0);
    pick[static_cast<std::size_t>(a)] = 1;
    InputTerm t;
    t.affine = out.table(std::move(pick), axes + 1, 1);
    t.source_width = 1;
    for (Index l = 0; l <= depth; ++l, next += 2)
      t.layers.push_back(out.dense(value(next), value(next + 1), l == depth ? width : hidden,
                                   l == depth ? Activation::identity : activation));
    t.width = width;
    t.compose = compose;
    t.gain = gain;
    t.first = first;
    out.terms.push_back(std::move(t));
  }
  out.input_gain *= input_gain;
}

void ContinuousAxial::pull_back(std::span<const ConstTensorView> p,
                                std::span<const InputGradient> g,
                                std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("continuous_axial", needed.size(), p.size());
  std::vector<std::vector<double>> d(needed.size());
  const auto per_axis = static_cast<std::size_t>(2 * (depth + 1));
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const std::vector<DenseGradient>& layers =
        gradient_of("continuous_axial", g, i / per_axis).layers;
    if (layers.empty()) continue;
    if (static_cast<Index>(layers.size()) != depth + 1)
      refuse("continuous_axial",
             "layers of a gradient in g must be " + std::to_string(depth + 1) + " or none",
             static_cast<Index>(layers.size()));
    const DenseGradient& l = layers[i % per_axis / 2];
    const bool weight = i % 2 == 0;
    d[i] = gradient_values("continuous_axial", weight ? l.weight : l.bias,
                           weight ? needed[i].shape : ArrayShape{1, needed[i].shape[0]});
  }
  accumulate("continuous_axial", needed, dp, d);
}

void ContinuousAxial::check_fields() const {
  constexpr const char* who = "continuous_axial";
  if (activation > Activation::relu)
    refuse_field(who, "activation", "must be identity, gelu, silu or relu");
  if (width < 1 || width > 1000000) refuse_field(who, "width", "must be positive", width);
  if (axes < 1 || axes > 8) refuse_field(who, "axes", "must lie between 1 and 8", axes);
  if (hidden < 1 || hidden > 1000000) refuse_field(who, "hidden", "must be positive", hidden);
  if (depth < 1 || depth > 64) refuse_field(who, "depth", "must lie between 1 and 64", depth);
  if (compose != Compose::add && axes > 1)
    refuse(who, "networks that are summed can only be added", enum_text(compose));
  for (const double x : {gain, input_gain})
    if (!std::isfinite(x)) refuse_field(who, "gains", "must be finite", x);
}

}  // namespace posenc::v0
