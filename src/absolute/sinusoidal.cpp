// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/sinusoidal.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Sinusoidal::spectrum() const {
  const Index n = pairs();
  Spectrum s;
  for (Index m = 0; m < n; ++m)
    s.frequency.push_back(scale * min_timescale * power_of(static_cast<double>(m)));
  return s;
}

std::vector<Parameter> Sinusoidal::parameters() const {
  check_fields();
  if (!learned_gain) return {};
  const double start = 1 / std::sqrt(static_cast<double>(width));
  return {{"gain", {1}, {InitialKind::constant, start, 0}, {}}};
}

void Sinusoidal::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("sinusoidal", needed.size(), p.size());
  InputTerm t;
  t.layout = layout;
  t.axis = static_cast<std::int32_t>(axis);
  t.offset = offset;
  t.zero_position = zero_position;
  t.compose = compose;
  t.gain = learned_gain ? gain * parameter_values("sinusoidal", needed[0], p[0])[0] : gain;
  const auto add = [&](Spectrum s, Index from, Index count) {
    t.phase = out.spectrum(std::move(s));
    t.first = from;
    t.width = count;
    out.terms.push_back(t);
  };
  Spectrum s = spectrum();
  if (wraps()) {
    t.layout = SineLayout::sines;
    add(s, first, pairs());
    s.frequency.push_back(s.frequency[0]);
    t.layout = SineLayout::cosines;
    add(std::move(s), first + pairs(), pairs() + 1);
  } else {
    add(std::move(s), first, width);
  }
  out.input_gain *= input_gain;
}

void Sinusoidal::pull_back(std::span<const ConstTensorView> p, std::span<const InputGradient> g,
                           std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("sinusoidal", needed.size(), p.size());
  check_gradients("sinusoidal", needed, dp);
  if (!learned_gain) return;
  double d = 0;
  for (std::size_t n = 0; n < (wraps() ? 2u : 1u); ++n)
    d += gain * gradient_values("sinusoidal", gradient_of("sinusoidal", g, n).gain, {1})[0];
  accumulate("sinusoidal", needed[0], dp[0], std::span(&d, 1));
}

// The power of the base, exponent -2m/width and its variants.
double Sinusoidal::power_of(double m) const {
  const auto n = static_cast<double>(pairs());
  if (spacing == SineSpacing::paper)
    return std::pow(base,
                    -2 * m / static_cast<double>(exponent_width > 0 ? exponent_width : width));
  const double steps = wraps()                           ? static_cast<double>(width) / 2 - 1
                       : spacing == SineSpacing::shifted ? n - shift
                                                         : std::max(n - 1, 1.0);
  return std::pow(base / min_timescale, -m / steps);
}

void Sinusoidal::check_fields() const {
  if (width < 1 || width > 1000000)
    refuse_field("sinusoidal", "width", "must lie between 1 and 1000000", width);
  if (width % 2 != 0 && odd == OddWidth::refuse)
    refuse_field("sinusoidal", "width", "must be even unless odd says what to do", width);
  if (!std::isfinite(base) || base <= 0)
    refuse_field("sinusoidal", "base", "must be finite and positive", base);
  if (!std::isfinite(min_timescale) || min_timescale <= 0)
    refuse_field("sinusoidal", "min_timescale", "must be finite and positive", min_timescale);
  if (exponent_width < 0)
    refuse_field("sinusoidal", "exponent_width", "must not be negative", exponent_width);
  if (!std::isfinite(scale)) refuse_field("sinusoidal", "scale", "must be finite", scale);
  if (spacing == SineSpacing::shifted && !(static_cast<double>(pairs()) - shift > 0))
    refuse("sinusoidal", "there must be more pairs than shift subtracts, pairs", pairs());
  if (wraps() && (spacing != SineSpacing::t2t || layout != SineLayout::halves || width < 3))
    refuse_field("sinusoidal", "odd=marian",
                 "needs spacing=t2t, layout=halves and at least 3 channels", width);
  if (layout == SineLayout::sines || layout == SineLayout::cosines)
    refuse_field("sinusoidal", "layout", "must hold sines and cosines", enum_text(layout));
  if (!std::isfinite(gain)) refuse_field("sinusoidal", "gain", "must be finite", gain);
  if (!std::isfinite(input_gain))
    refuse_field("sinusoidal", "input_gain", "must be finite", input_gain);
  if (axis < 0 || axis > 7) refuse_field("sinusoidal", "axis", "must lie between 0 and 7", axis);
}

}  // namespace posenc::v0
