// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/fourier_features.h"

#include <cmath>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> FourierFeatures::parameters() const {
  check_fields();
  if (!is_random()) return {};
  return {{"weight", {axes, bands}, {InitialKind::normal, 0, init}, {}}};
}

void FourierFeatures::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("fourier_features", needed.size(), p.size());
  InputTerm t;
  t.compose = compose;
  t.gain = gain;
  t.first = first_channel;
  if (coordinates) {
    std::vector<double> map(static_cast<std::size_t>((axes + 1) * axes), 0.0);
    for (Index a = 0; a < axes; ++a) map[static_cast<std::size_t>(a * axes + a)] = 1;
    t.affine = out.table(std::move(map), axes + 1, axes);
    t.width = axes;
    out.terms.push_back(t);
    t.affine = {};
    t.first += axes;
  }
  t.layout = layout;
  std::vector<double> weight;
  if (is_random()) weight = parameter_values("fourier_features", needed[0], p[0]);
  const Index blocks = order == FourierOrder::band_blocks ? bands : 1;
  for (Index i = 0; i < blocks; ++i) {
    Spectrum s = spectrum(weight, i);
    t.width = sine_channels(layout, s.pairs());
    t.phase = out.spectrum(std::move(s));
    out.terms.push_back(t);
    t.first += t.width;
  }
  out.input_gain *= input_gain;
}

void FourierFeatures::pull_back(std::span<const ConstTensorView> p,
                                std::span<const InputGradient> g,
                                std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("fourier_features", needed.size(), p.size());
  check_gradients("fourier_features", needed, dp);
  if (!is_random()) return;
  std::vector<double> d = gradient_values(
      "fourier_features", gradient_of("fourier_features", g, coordinates ? 1 : 0).frequency,
      {axes, bands});
  for (double& x : d) x *= factor;
  accumulate("fourier_features", needed[0], dp[0], d);
}

double FourierFeatures::frequency(Index a, Index k) const {
  const auto of = [a](const std::vector<double>& v) {
    return v.empty() ? 1.0 : v[v.size() == 1 ? 0 : static_cast<std::size_t>(a)];
  };
  const auto n = static_cast<double>(bands), i = static_cast<double>(k);
  const double fraction = bands > 1 ? i / (n - 1) : 0;
  if (law == FourierBands::linear) return of(first) + fraction * (of(last) - of(first));
  if (law == FourierBands::log) return of(first) * std::pow(of(last) / of(first), fraction);
  return std::pow(base, -i / n);
}

// Of all pairs, or of the pairs of band `block`.
Spectrum FourierFeatures::spectrum(const std::vector<double>& weight, Index block) const {
  const bool one_band = order == FourierOrder::band_blocks;
  const Index n = is_random() ? bands : one_band ? axes : axes * bands;
  Spectrum s;
  s.axes = axes;
  s.frequency.assign(static_cast<std::size_t>(axes * n), 0.0);
  for (Index a = 0; a < axes; ++a)
    for (Index k = 0; k < bands; ++k) {
      if (is_random()) {
        s.frequency[static_cast<std::size_t>(a * n + k)] =
            factor * weight[static_cast<std::size_t>(a * bands + k)];
        continue;
      }
      if (one_band && k != block) continue;
      const Index pair = one_band                         ? a
                         : order == FourierOrder::by_axis ? a * bands + k
                                                          : k * axes + a;
      s.frequency[static_cast<std::size_t>(a * n + pair)] = factor * frequency(a, k);
    }
  return s;
}

void FourierFeatures::check_list(const char* name, const std::vector<double>& v,
                                 const char* rule) const {
  if (v.size() > 1 && static_cast<Index>(v.size()) != axes)
    refuse_field("fourier_features", name, rule, static_cast<Index>(v.size()));
  for (const double x : v)
    if (!std::isfinite(x) || (law == FourierBands::log && x <= 0))
      refuse_field("fourier_features", "frequencies", "must be finite, and positive with law=log",
                   x);
}

void FourierFeatures::check_fields() const {
  constexpr const char* who = "fourier_features";
  if (axes < 1 || axes > 8) refuse_field(who, "axes", "must lie between 1 and 8", axes);
  if (bands < 1 || bands > 1000000)
    refuse_field(who, "bands", "must lie between 1 and 1000000", bands);
  check_list("first", first, "must have one number, or one an axis, count");
  check_list("last", last, "must have one number, or one an axis, count");
  const bool ranged = law == FourierBands::linear || law == FourierBands::log;
  if (ranged && last.empty())
    refuse_field(who, "last", "must be given with law=linear and law=log");
  if (!ranged && (!first.empty() || !last.empty()))
    refuse(who, "first and last are of law=linear and law=log");
  if (is_random() && order != FourierOrder::by_axis)
    refuse(who, "random bands mix the axes: order must be by_axis", enum_text(order));
  for (const double x : {base, factor, gain, input_gain})
    if (!std::isfinite(x)) refuse(who, "base, factor and gains must be finite", x);
  if (base <= 0) refuse_field(who, "base", "must be positive", base);
}

namespace fourier_presets {

FourierFeatures perceiver(Index num_bands, std::vector<double> max_resolution, bool concat_pos,
                          bool sine_only) {
  FourierFeatures f;
  f.axes = static_cast<Index>(max_resolution.size());
  f.bands = num_bands;
  f.first = {1};
  f.last = std::move(max_resolution);
  for (double& x : f.last) x /= 2;
  f.factor = std::numbers::pi;
  f.layout = sine_only ? SineLayout::sines : SineLayout::halves;
  f.coordinates = concat_pos;
  return f;
}

FourierFeatures nerf(Index axes, Index bands) {
  FourierFeatures f;
  f.axes = axes;
  f.bands = bands;
  f.law = FourierBands::log;
  f.last = {std::exp2(static_cast<double>(bands - 1))};
  f.factor = std::numbers::pi;
  f.layout = SineLayout::interleaved;
  return f;
}

FourierFeatures nerf_code(Index axes, Index bands) {
  FourierFeatures f = nerf(axes, bands);
  f.factor = 1;
  f.layout = SineLayout::halves;
  f.order = FourierOrder::band_blocks;
  f.coordinates = true;
  return f;
}

FourierFeatures sam(Index num_pos_feats, double scale) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = num_pos_feats;
  f.law = FourierBands::random;
  f.factor = 2 * std::numbers::pi;
  f.init = scale;
  return f;
}

FourierFeatures timm_pixels(Index num_bands, double max_res, bool linear_bands) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = num_bands;
  f.law = linear_bands ? FourierBands::linear : FourierBands::log;
  f.last = {max_res / 2};
  f.factor = std::numbers::pi;
  return f;
}

FourierFeatures timm_index(Index num_bands, double temperature) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = num_bands;
  f.law = FourierBands::powers;
  f.base = temperature;
  return f;
}

}  // namespace fourier_presets

}  // namespace posenc::v0
