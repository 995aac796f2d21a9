// SPDX-License-Identifier: Apache-2.0
// The coordinates themselves as channels. Liu et al., CoordConv, arXiv:1807.03247, section 3:
//   y = [x | gain c_0 | gain c_1 .. | gain r]
// in [-1, 1] by linspace_grid. (CoordConv's own code divides each axis by the other's size,
// which is wrong on grids that are not square.) The radius r is the option with_r:
//   middle  sqrt(sum of c_a^2): section 3, sqrt((i - h/2)^2 + (j - w/2)^2), in the same units
//   code    sqrt(sum of (c_a - 1/2)^2): the authors' code, whose centre is that of [0, 1] although
//           its coordinates run over [-1, 1]; checkpoints have this one
// d r is 0 at the centre itself.
// Implementation: src/absolute/coordinates.cpp.
#pragma once
#include <string_view>
#include <vector>

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

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

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient>,
                            std::span<const TensorView> dp) const;

  // Named settings of programs (namespace coordinates_presets).
  POSENC_API static std::vector<Preset<Coordinates>> presets();

  bool operator==(const Coordinates&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("axes", s.axes, Field{.doc = "axes of the positions", .min = 1, .max = 8});
    v("radius", s.radius, Field{.doc = "one more channel, the distance from the centre"});
    v("gain", s.gain, Field{.doc = "multiplies the coordinates"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the coordinates are combined with the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }
};

namespace coordinates_presets {
// CoordConv, and with_r as in its code. linspace_grid.
POSENC_API Coordinates coordconv(bool with_r = false);
}  // namespace coordinates_presets

}  // namespace posenc::v0
