// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/cape2d.h"

#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Cape2d::spectrum() const {
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

std::vector<Parameter> Cape2d::parameters() const {
  if (width < 2 || width > 1000000 || width % 2 != 0)
    refuse_field("cape2d", "width", "must be positive and even", width);
  for (const double x : {gain, input_gain})
    if (!std::isfinite(x)) refuse_field("cape2d", "gains", "must be finite", x);
  return {};
}

void Cape2d::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
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

void Cape2d::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient>,
                       std::span<const TensorView> dp) const {
  check_parameter_count("cape2d", 0, p.size());
  check_parameter_count("cape2d", 0, dp.size());
}

namespace cape2d_presets {

Cape2d code(Index width) {
  Cape2d s;
  s.width = width;
  s.input_gain = std::sqrt(static_cast<double>(width));
  return s;
}

Cape2d package(Index width) {
  Cape2d s = code(width);
  s.radius = CapeRadius::from_one;
  return s;
}

}  // namespace cape2d_presets

}  // namespace posenc::v0
