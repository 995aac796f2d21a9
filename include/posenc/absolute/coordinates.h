// SPDX-License-Identifier: Apache-2.0
// The coordinates themselves as channels. Liu et al., CoordConv, arXiv:1807.03247, section 3:
//   y = [x | gain c_0 | gain c_1 .. | gain r]
// in [-1, 1] by linspace_grid. (CoordConv's own code divides each axis by the other's size, wrong
// on grids that are not square; positions made here are not.) The radius r is the option with_r:
//   middle  sqrt(sum of c_a^2): section 3, sqrt((i - h/2)^2 + (j - w/2)^2), in the same units
//   code    sqrt(sum of (c_a - 1/2)^2): the authors' code, whose centre is that of [0, 1] although
//           its coordinates run over [-1, 1]; checkpoints have this one
// d r is 0 at the centre itself.
#pragma once
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

enum class CoordinateRadius : std::uint8_t { none, middle, code };
template <>
struct EnumNames<CoordinateRadius> {
  static constexpr std::array<std::string_view, 3> value{"none", "middle", "code"};
};

struct Coordinates {
  static constexpr Card card{"coordinates", "coordinate channels", "arXiv:1807.03247", "sec. 3"};
  Index axes = 2;
  CoordinateRadius radius = CoordinateRadius::none;
  double gain = 1, input_gain = 1;
  Compose compose = Compose::concat;
  Index first = 0;

  std::vector<Parameter> parameters() const {
    if (axes < 1 || axes > 8) refuse("coordinates", "axes must lie between 1 and 8", axes);
    for (const double x : {gain, input_gain})
      if (!std::isfinite(x)) refuse("coordinates", "gains must be finite", x);
    return {};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
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

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient>,
                 std::span<const TensorView> dp) const {
    check_parameter_count("coordinates", 0, p.size());
    check_parameter_count("coordinates", 0, dp.size());
  }

  // Named settings of programs (namespace coordinates_presets).
  POSENC_API static std::vector<Preset<Coordinates>> presets();

  bool operator==(const Coordinates&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("axes", s.axes, Field{.doc = "axes of the positions", .min = 1, .max = 8});
    v("radius", s.radius, Field{.doc = "one more channel, the distance from the centre"});
    v("gain", s.gain, Field{.doc = "multiplies the coordinates"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the coordinates meet the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }
};
static_assert(AbsoluteScheme<Coordinates>);

namespace coordinates_presets {
// CoordConv, and with_r as in its code. linspace_grid.
inline Coordinates coordconv(bool with_r = false) {
  Coordinates s;
  if (with_r) s.radius = CoordinateRadius::code;
  return s;
}
}  // namespace coordinates_presets

}  // namespace posenc
