// SPDX-License-Identifier: Apache-2.0
// Learnable Fourier features. Li et al., NeurIPS 2021, arXiv:2106.02795, eq. 2 and 4, algorithm 1:
//   r = [cos(W c) | sin(W c)] / sqrt(features),   row = W2 gelu(W1 r + b1) + b2
// c are the coordinates of one group of axes; groups share all parameters and stand side by side in
// the row, width / groups channels each.
#pragma once
#include <cmath>

#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc {

struct LearnableFourier {
  static constexpr Card card{"learnable_fourier", "learnable Fourier features", "arXiv:2106.02795",
                             "eq. 2, 4"};
  Index width = 0, axes = 2, groups = 1;  // positions have axes * groups axes, group by group
  Index features = 0, hidden = 0;
  double gamma = 1;  // W starts normal with deviation 1 / gamma
  double gain = 1, input_gain = 1;
  Compose compose = Compose::add;
  Index first = 0;

  std::vector<Parameter> parameters() const {
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

  void lower(std::span<const TensorView> p, LoweredInput& out) const {
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

  void pull_back(std::span<const TensorView> p, std::span<const InputGradient> g,
                 std::span<const TensorView> dp) const {
    const std::vector<Parameter> needed = parameters();
    check_parameter_count("learnable_fourier", needed.size(), p.size());
    const Index half = features / 2;
    std::vector<std::vector<double>> d(needed.size());
    const auto values = [](const TensorView& v, Index rows, Index columns) {
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

  bool operator==(const LearnableFourier&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("width", s.width,
      Field{.doc = "channels of the encoding", .min = 1, .max = 1e6, .required = true});
    v("axes", s.axes, Field{.doc = "coordinates of a group", .min = 1, .max = 8});
    v("groups", s.groups, Field{.doc = "groups of coordinates", .min = 1, .max = 8});
    v("features", s.features,
      Field{.doc = "Fourier features", .min = 2, .max = 1e6, .required = true});
    v("hidden", s.hidden, Field{.doc = "hidden units", .min = 1, .max = 1e6, .required = true});
    v("gamma", s.gamma,
      Field{.doc = "1 / deviation of the frequencies at the start", .min = 1e-300});
    v("gain", s.gain, Field{.doc = "multiplies the encoding"});
    v("input_gain", s.input_gain, Field{.doc = "multiplies the embedding"});
    v("compose", s.compose, Field{.doc = "how the encoding meets the embedding"});
    v("first", s.first, Field{.doc = "first channel of the embedding", .min = 0});
  }

 private:
  double root() const { return 1 / std::sqrt(static_cast<double>(features)); }
  // W [features / 2, axes] on the axes of group g.
  Spectrum spectrum(const std::vector<double>& w, Index g) const {
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
  void check_fields() const {
    constexpr const char* who = "learnable_fourier";
    if (axes < 1 || groups < 1 || axes > 8 || groups > 8 || axes * groups > 8)
      refuse(who, "axes and groups must be positive and axes * groups at most 8", axes);
    if (width < 1 || width > 1000000 || width % groups != 0)
      refuse(who, "width must be positive and a multiple of groups", width);
    if (features < 2 || features > 1000000 || features % 2 != 0)
      refuse(who, "features must be positive and even", features);
    if (hidden < 1 || hidden > 1000000) refuse(who, "hidden must be positive", hidden);
    if (!(gamma > 0)) refuse(who, "gamma must be positive", gamma);
    for (const double x : {gamma, gain, input_gain})
      if (!std::isfinite(x)) refuse(who, "gamma and gains must be finite", x);
  }
};
static_assert(AbsoluteScheme<LearnableFourier>);

}  // namespace posenc
