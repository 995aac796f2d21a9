// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/crossmodal.h"

#include <cmath>
#include <span>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Sinusoidal CrossModal::axis(std::size_t a) const {
  Sinusoidal s;
  s.width = widths[a] == 0 ? width : widths[a];
  s.layout = layout;
  s.spacing = spacing;
  s.base = base;
  s.scale = scale.empty() ? 1 : scale[a];
  s.zero_position = kAbsent;
  s.gain = gain;
  s.axis = static_cast<Index>(a) + 1;
  for (std::size_t k = 0; widths[a] > 0 && k < a; ++k) s.first += widths[k];
  return s;
}

std::vector<Parameter> CrossModal::parameters() const {
  check_fields();
  return {{"modality", {modalities, width}, {InitialKind::normal, 0, init}, {}}};
}

void CrossModal::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("crossmodal", 1, p.size());
  InputTerm t;
  t.table = out.table(parameter_values("crossmodal", needed[0], p[0]), modalities, width);
  t.width = width;
  out.terms.push_back(t);
  for (std::size_t a = 0; a < widths.size(); ++a) axis(a).lower({}, out);
  out.input_gain *= input_gain;
}

void CrossModal::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                           std::span<const TensorView> dp) const {
  check_parameter_count("crossmodal", 1, p.size());
  check_parameter_count("crossmodal", 1, dp.size());
  accumulate(
      "crossmodal", parameters()[0], dp[0],
      gradient_values("crossmodal", gradient_of("crossmodal", g, 0).table, {modalities, width}));
}

void CrossModal::check_fields() const {
  constexpr const char* who = "crossmodal";
  if (width < 1 || width > 1000000) refuse_field(who, "width", "must be positive", width);
  if (modalities < 1 || modalities > 1000000)
    refuse_field(who, "modalities", "must be positive", modalities);
  if (widths.empty() || widths.size() > 7)
    refuse(who, "there must be 1 to 7 axes", static_cast<Index>(widths.size()));
  if (!scale.empty() && scale.size() != widths.size())
    refuse_field(who, "scale", "must have a number for every axis",
                 static_cast<Index>(scale.size()));
  if (!std::isfinite(input_gain)) refuse_field(who, "input_gain", "must be finite", input_gain);
  Index side_by_side = 0;
  for (std::size_t a = 0; a < widths.size(); ++a) {
    if (widths[a] < 0 || widths[a] > width)
      refuse_field(who, "widths", "must lie between 0 and width", widths[a]);
    side_by_side += widths[a];
    axis(a).parameters();  // refuses the rest
  }
  if (side_by_side > width) refuse_field(who, "widths", "must fit into width", side_by_side);
}

}  // namespace posenc::v0
