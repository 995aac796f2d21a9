// SPDX-License-Identifier: Apache-2.0
// CAPE in two dimensions. Likhomanenko et al., NeurIPS 2021, arXiv:2106.03143, section 3.2:
//   row = [cos a_0 .. | sin a_0 ..],  a_n = pi rho_n (x cos n + y sin n),  n = 0 .. width / 2 - 1
// n is an angle in radians; coordinates in [-1, 1] (cape_grid_positions). In one dimension CAPE is
// sinusoidal_presets::cape at cape_positions.
#pragma once
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

// rho_n = 10^e: e evenly from 0 to 1 (the paper and the first public code), or from 2 / width to 1
// (the code since).
enum class CapeRadius : std::uint8_t { from_zero, from_one };
template <>
struct EnumNames<CapeRadius> {
  static constexpr std::array<std::string_view, 2> value{"from_zero", "from_one"};
};

struct Cape2d {
  static constexpr Card card{"cape2d", "continuous augmented positions (CAPE) in 2-D",
                             "arXiv:2106.03143", "sec. 3.2"};
  Index width = 0;
  CapeRadius radius = CapeRadius::from_zero;
  double gain = 1, input_gain = 1;  // input_gain sqrt(width) as the authors use it
  Compose compose = Compose::add;
  Index first = 0;

  Spectrum spectrum() const {
    const Index n = width / 2;
    Spectrum s;
    s.axes = 2;
    s.frequency.resize(static_cast<std::size_t>(2 * n));
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<double>(i), count = static_cast<double>(n);
      const double e = radius == CapeRadius::from_one ? (at + 1) / count
                       : n > 1                        ? at / (count - 1)
                                                      : 0;
      const double r = std::numbers::pi * std::pow(10.0, e);
      s.frequency[static_cast<std::size_t>(i)] = r * std::cos(at);
      s.frequency[static_cast<std::size_t>(n + i)] = r * std::sin(at);
    }
    return s;
  }

  std::vector<Parameter> parameters() const {
    if (width < 2 || width > 1000000 || width % 2 != 0)
      refuse("cape2d", "width must be positive and even", width);
    for (const double x : {gain, input_gain})
      if (!std::isfinite(x)) refuse("cape2d", "gains must be finite", x);
    return {};
  }

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
    parameters();
    check_parameter_count("cape2d", 0, p.size());
    InputTerm t;
    t.phase = out.spectrum(spectrum());
    t.layout = SineLayout::halves_cos_first;
    t.width = width;
    t.first = first;
    t.compose = compose;
    t.gain = gain;
    out.terms.push_back(t);
    out.input_gain *= input_gain;
  }

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient>,
                 std::span<const TensorView> dp) const {
    check_parameter_count("cape2d", 0, p.size());
    check_parameter_count("cape2d", 0, dp.size());
  }

  // Named settings of programs (namespace cape2d_presets).
  POSENC_API static std::vector<Preset<Cape2d>> presets();

  bool operator==(const Cape2d&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 2, .max = 1e6, .required = true});
    v("radius", s.radius, Field{.doc = "lengths of the wave vectors"});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }
};
static_assert(AbsoluteScheme<Cape2d>);

namespace cape2d_presets {
// The first public code, sqrt(width) times the embedding. cape_grid_positions.
inline Cape2d code(Index width) {
  Cape2d s;
  s.width = width;
  s.input_gain = std::sqrt(static_cast<double>(width));
  return s;
}
// The package since.
inline Cape2d package(Index width) {
  Cape2d s = code(width);
  s.radius = CapeRadius::from_one;
  return s;
}
}  // namespace cape2d_presets

}  // namespace posenc
