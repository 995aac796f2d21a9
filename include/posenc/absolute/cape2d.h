// SPDX-License-Identifier: Apache-2.0
// CAPE in two dimensions. Likhomanenko et al., NeurIPS 2021, arXiv:2106.03143, section 3.2:
//   row = [cos a_0 .. | sin a_0 ..],  a_n = pi rho_n (x cos n + y sin n),  n = 0 .. width / 2 - 1
// n is an angle in radians; coordinates in [-1, 1] (cape_grid_positions). In one dimension CAPE is
// sinusoidal_presets::cape at cape_positions.
// Implementation: src/absolute/cape2d.cpp.
#pragma once
#include <string_view>
#include <vector>

#include "posenc/absolute/input_term.h"

namespace posenc::inline v0 {

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

  POSENC_API Spectrum spectrum() const;

  POSENC_API std::vector<Parameter> parameters() const;

  POSENC_API void lower(std::span<const ConstTensorView> p, LoweredInput& out) const;

  POSENC_API void pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient>,
                            std::span<const TensorView> dp) const;

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
    v("compose", s.compose, Field{.doc = "how the encoding is combined with the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }
};

namespace cape2d_presets {
// The first public code, sqrt(width) times the embedding. cape_grid_positions.
POSENC_API Cape2d code(Index width);
// The package since.
POSENC_API Cape2d package(Index width);
}  // namespace cape2d_presets

}  // namespace posenc::v0
