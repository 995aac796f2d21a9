// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/learnable_fourier.h"

#include <cmath>
#include <span>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

std::vector<Parameter> LearnableFourier::parameters() const {
  check_fields();
  const Index out = width / groups, half = features / 2;
  const auto uniform = [](Index in) {
    const double b = 1 / std::sqrt(static_cast<double>(in));
    return Initial{InitialKind::uniform, -b, b};
  };
  return {{"frequency", {half, axes}, {InitialKind::normal, 0, 1 / gamma}, {}},
          {"weight1", {hidden, features}, uniform(features), {}},
          {"bias1", {hidden}, uniform(features), {}},
          {"weight2", {out, hidden}, uniform(hidden), {}},
          {"bias2", {out}, uniform(hidden), {}}};
}

void LearnableFourier::lower(std::span<const ConstTensorView> p, LoweredInput& out) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("learnable_fourier", needed.size(), p.size());
  std::vector<std::vector<double>> v;
  for (std::size_t i = 0; i < needed.size(); ++i)
    v.push_back(parameter_values("learnable_fourier", needed[i], p[i]));
  for (double& x : v[1]) x *= root();
  InputTerm t;
  t.layers = {out.dense(v[1], v[2], hidden, Activation::gelu),
              out.dense(v[3], v[4], width / groups, Activation::identity)};
  t.layout = SineLayout::halves_cos_first;
  t.source_width = features;
  t.width = width / groups;
  t.compose = compose;
  t.gain = gain;
  for (Index g = 0; g < groups; ++g) {
    t.phase = out.spectrum(spectrum(v[0], g));
    t.first = first + g * t.width;
    out.terms.push_back(t);
  }
  out.input_gain *= input_gain;
}

void LearnableFourier::pull_back(std::span<const ConstTensorView> p,
                                 std::span<const InputGradient> g,
                                 std::span<const TensorView> dp) const {
  const std::vector<Parameter> needed = parameters();
  check_parameter_count("learnable_fourier", needed.size(), p.size());
  const Index half = features / 2;
  std::vector<std::vector<double>> d(needed.size());
  const auto values = [](const ConstTensorView& v, Index rows, Index columns) {
    return gradient_values("learnable_fourier", v, {rows, columns});
  };
  for (Index i = 0; i < groups; ++i) {
    const InputGradient& from = gradient_of("learnable_fourier", g, static_cast<std::size_t>(i));
    const std::vector<double> by = values(from.frequency, axes * groups, half);
    d[0].resize(static_cast<std::size_t>(half * axes));
    for (Index k = 0; k < half; ++k)
      for (Index a = 0; a < axes; ++a)
        d[0][static_cast<std::size_t>(k * axes + a)] +=
            by[static_cast<std::size_t>((i * axes + a) * half + k)];
    if (from.layers.empty()) continue;
    if (from.layers.size() != 2)
      refuse("learnable_fourier", "layers of a gradient in g must be 2 or none",
             static_cast<Index>(from.layers.size()));
    add_to(d[1], values(from.layers[0].weight, hidden, features));
    add_to(d[2], values(from.layers[0].bias, 1, hidden));
    add_to(d[3], values(from.layers[1].weight, width / groups, hidden));
    add_to(d[4], values(from.layers[1].bias, 1, width / groups));
  }
  for (double& x : d[1]) x *= root();
  accumulate("learnable_fourier", needed, dp, d);
}

// W [features / 2, axes] on the axes of group g.
Spectrum LearnableFourier::spectrum(const std::vector<double>& w, Index g) const {
  const Index half = features / 2;
  Spectrum s;
  s.axes = axes * groups;
  s.frequency.assign(static_cast<std::size_t>(s.axes * half), 0.0);
  for (Index k = 0; k < half; ++k)
    for (Index a = 0; a < axes; ++a)
      s.frequency[static_cast<std::size_t>((g * axes + a) * half + k)] =
          w[static_cast<std::size_t>(k * axes + a)];
  return s;
}

void LearnableFourier::check_fields() const {
  constexpr const char* who = "learnable_fourier";
  if (axes < 1 || groups < 1 || axes > 8 || groups > 8 || axes * groups > 8)
    refuse(who, "axes and groups must be positive and axes * groups at most 8", axes);
  if (width < 1 || width > 1000000 || width % groups != 0)
    refuse_field(who, "width", "must be positive and a multiple of groups", width);
  if (features < 2 || features > 1000000 || features % 2 != 0)
    refuse_field(who, "features", "must be positive and even", features);
  if (hidden < 1 || hidden > 1000000) refuse_field(who, "hidden", "must be positive", hidden);
  if (!(gamma > 0)) refuse_field(who, "gamma", "must be positive", gamma);
  for (const double x : {gamma, gain, input_gain})
    if (!std::isfinite(x)) refuse(who, "gamma and gains must be finite", x);
}

double LearnableFourier::root() const {
  return 1 / std::sqrt(static_cast<double>(features));
}

}  // namespace posenc::v0
