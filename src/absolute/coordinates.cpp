// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/coordinates.h"

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> Coordinates::parameters() const {
  if (axes < 1 || axes > 8) refuse_field("coordinates", "axes", "must lie between 1 and 8", axes);
  for (const double x : {gain, input_gain})
    if (!std::isfinite(x)) refuse_field("coordinates", "gains", "must be finite", x);
  return {};
}

void Coordinates::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  parameters();
  check_parameter_count("coordinates", 0, p.size());
  std::vector<double> map(static_cast<std::size_t>((axes + 1) * axes), 0.0);
  for (Index a = 0; a < axes; ++a) map[static_cast<std::size_t>(a * axes + a)] = 1;
  InputTerm t;
  t.affine = out.table(std::move(map), axes + 1, axes);
  t.width = axes;
  t.compose = compose;
  t.gain = gain;
  t.first = first;
  out.terms.push_back(t);
  if (radius != CoordinateRadius::none) {
    const double centre = radius == CoordinateRadius::code ? 0.5 : 0.0;
    const auto n = static_cast<std::size_t>(axes);
    std::vector<double> same(n * n, 0.0);
    for (std::size_t a = 0; a < n; ++a) same[a * n + a] = 1;
    t.layers = {
        out.dense(std::move(same), std::vector<double>(n, -centre), axes, Activation::square),
        out.dense(std::vector<double>(n, 1.0), {}, 1, Activation::root)};
    t.source_width = axes;
    t.width = 1;
    t.first = first + axes;
    out.terms.push_back(std::move(t));
  }
  out.input_gain *= input_gain;
}

void Coordinates::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient>,
                            std::span<const TensorView> dp) const {
  check_parameter_count("coordinates", 0, p.size());
  check_parameter_count("coordinates", 0, dp.size());
}

namespace coordinates_presets {

Coordinates coordconv(bool with_r) {
  Coordinates s;
  if (with_r) s.radius = CoordinateRadius::code;
  return s;
}

}  // namespace coordinates_presets

}  // namespace posenc::v0
