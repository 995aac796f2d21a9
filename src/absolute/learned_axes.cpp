// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/learned_axes.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> LearnedAxes::parameters() const {
  check_fields();
  std::vector<Parameter> list;
  for (std::size_t a = 0; a < shape.size(); ++a)
    list.push_back({"axis" + std::to_string(a),
                    {shape[a], channels(a)},
                    initial_of(initializer, init, shape[a], channels(a)),
                    {}});
  return list;
}

void LearnedAxes::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("learned_axes", needed.size(), p.size());
  Index at = first;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const std::size_t a = axis_at(k);
    InputTerm t;
    t.table = out.table(parameter_values("learned_axes", needed[a], p[a]), shape[a], channels(a));
    t.axis = flat ? 0 : static_cast<std::int32_t>(a);
    if (flat) {
      for (std::size_t later = a + 1; later < shape.size(); ++later) t.divide *= shape[later];
      t.wrap = a == 0 ? 0 : shape[a];
    }
    t.beyond = beyond;
    t.first = at;
    t.width = channels(a);
    t.compose = compose;
    t.gain = gain;
    if (!widths.empty() && compose != Compose::concat) at += t.width;
    out.terms.push_back(t);
  }
  out.input_gain *= input_gain;
}

void LearnedAxes::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                            std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("learned_axes", needed.size(), p.size());
  std::vector<std::vector<double>> d(needed.size());
  for (std::size_t k = 0; k < shape.size(); ++k) {
    const std::size_t a = axis_at(k);
    add_to(d[a], gradient_values("learned_axes", gradient_of("learned_axes", g, k).table,
                                 {shape[a], channels(a)}));
  }
  accumulate("learned_axes", needed, dp, d);
}

std::size_t LearnedAxes::axis_at(std::size_t k) const {
  return order.empty() ? k : static_cast<std::size_t>(order[k]);
}

void LearnedAxes::check_fields() const {
  if (width < 1) refuse_field("learned_axes", "width", "must be positive", width);
  if (shape.empty() || shape.size() > 8)
    refuse("learned_axes", "there must be 1 to 8 axes", static_cast<Index>(shape.size()));
  for (const Index n : shape)
    if (n < 1 || n > Index{1} << 30)
      refuse("learned_axes", "each table must have 1 to 2^30 rows", n);
  if (!widths.empty()) {
    Index sum = 0;
    for (const Index w : widths)
      sum = w < 1 || w > width ? width + 1 : std::min(sum + w, width + 1);
    if (widths.size() != shape.size() || sum != width)
      refuse_field("learned_axes", "widths", "must be positive, one an axis, and sum to width",
                   sum);
  } else if (compose != Compose::add && shape.size() > 1) {
    refuse("learned_axes", "tables that are summed can only be added", enum_text(compose));
  }
  std::vector<bool> seen(shape.size(), false);
  if (!order.empty() && order.size() != shape.size())
    refuse_field("learned_axes", "order", "must name every axis once",
                 static_cast<Index>(order.size()));
  for (const Index a : order) {
    if (a < 0 || a >= static_cast<Index>(shape.size()) || seen[static_cast<std::size_t>(a)])
      refuse_field("learned_axes", "order", "must name every axis once", a);
    seen[static_cast<std::size_t>(a)] = true;
  }
  if (beyond == Beyond::extend || (flat && beyond != Beyond::error))
    refuse_field("learned_axes", "beyond", "must be error, or clamp or zero where not flat",
                 enum_text(beyond));
  if (!std::isfinite(gain)) refuse_field("learned_axes", "gain", "must be finite", gain);
  if (!std::isfinite(input_gain))
    refuse_field("learned_axes", "input_gain", "must be finite", input_gain);
}

}  // namespace posenc::v0
