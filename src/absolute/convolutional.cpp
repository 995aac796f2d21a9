// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/convolutional.h"

#include <vector>
#include "core/shape.h"
#include "posenc/core/error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absolute/rows.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kConvolutional = "convolutional";

double normal_distribution(double z) {
  return std::erfc(-z / std::numbers::sqrt2) / 2;
}
double gelu_slope(double z) {
  return normal_distribution(z) +
         z * std::exp(-z * z / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

struct ConvolutionCall {
  std::vector<Parameter> parameters;
  std::vector<double> g, v, weight, norm, bias;  // weight [out, in of a group, kernel]
  ConstTokenView x, y;
  Index per_group = 0;

  double& at(std::vector<double>& w, const Convolutional& s, Index out, Index in, Index k) const {
    return w[static_cast<std::size_t>((out * per_group + in) * s.kernel + k)];
  }
};

ConvolutionCall check_call(const Convolutional& s, std::span<const ConstTensorView> p,
                           const ConstTensorView& x, const ConstTensorView& y) {
  ConvolutionCall c;
  c.parameters = s.parameters();
  check_parameter_count(kConvolutional, c.parameters.size(), p.size());
  std::vector<std::vector<double>> values;
  for (std::size_t i = 0; i < p.size(); ++i)
    values.push_back(parameter_values(kConvolutional, c.parameters[i], p[i]));
  c.per_group = s.width / s.groups;
  c.bias = values.back();
  c.weight = values[s.weight_norm ? 1 : 0];
  if (s.weight_norm) {
    c.g = values[0];
    c.v = values[1];
    c.norm.assign(static_cast<std::size_t>(s.kernel), 0.0);
    for (std::size_t i = 0; i < c.v.size(); ++i)
      c.norm[i % static_cast<std::size_t>(s.kernel)] += c.v[i] * c.v[i];
    for (double& n : c.norm) {
      n = std::sqrt(n);
      if (!(n > 0))
        refuse(kConvolutional, "weights of a place of the kernel must not all be 0, norm", n);
    }
    for (std::size_t i = 0; i < c.v.size(); ++i) {
      const std::size_t k = i % static_cast<std::size_t>(s.kernel);
      c.weight[i] = c.g[k] * c.v[i] / c.norm[k];
    }
  }
  c.x = tokens_of(x, "x");
  c.y = tokens_of(y, "y");
  for (const ConstTokenView* t : {&c.x, &c.y})
    if (t->width != s.width || t->batch != c.x.batch || t->tokens != c.x.tokens)
      refuse(kConvolutional, "x and y must have the same tokens and the width, width", t->width);
  return c;
}

// Before the activation: bias plus the window of token t.
double sum_at(const Convolutional& s, ConvolutionCall& c, Index b, Index t, Index out) {
  double z = c.bias[static_cast<std::size_t>(out)];
  const Index first = out / c.per_group * c.per_group;
  for (Index k = 0; k < s.kernel; ++k) {
    const Index from = t + k - s.kernel / 2;
    if (from < 0 || from >= c.x.tokens) continue;
    for (Index i = 0; i < c.per_group; ++i)
      z += c.at(c.weight, s, out, i, k) * c.x.get(b, from, first + i);
  }
  return z;
}

// d weight -> d g, d v: with n = |v|, d g = sum d w v / n, d v = g / n (d w - v sum(d w v) / n^2).
void pull_norm(const Convolutional& s, const ConvolutionCall& c,
               const std::vector<double>& d_weight, std::vector<double>& d_g,
               std::vector<double>& d_v) {
  const auto kernel = static_cast<std::size_t>(s.kernel);
  if (kernel == 0) return;
  std::vector<double> along(kernel, 0.0);
  for (std::size_t i = 0; i < d_weight.size(); ++i) along[i % kernel] += d_weight[i] * c.v[i];
  for (std::size_t k = 0; k < kernel; ++k) d_g[k] = along[k] / c.norm[k];
  for (std::size_t i = 0; i < d_weight.size(); ++i) {
    const std::size_t k = i % kernel;
    d_v[i] = c.g[k] / c.norm[k] * (d_weight[i] - c.v[i] * along[k] / (c.norm[k] * c.norm[k]));
  }
}

}  // namespace

void convolutional_positions(const Convolutional& s, std::span<const ConstTensorView> p,
                             const ConstTensorView& x, const TensorView& y) {
  ConvolutionCall c = check_call(s, p, x, y);
  // A token reads those around it: not in place either.
  detail::check_outputs(kConvolutional, {{"y", detail::memory_of(y)}}, {},
                        {{"x", detail::memory_of(x)}});
  const TokenView to = tokens_of(y, "y");
  for (Index b = 0; b < c.x.batch; ++b)
    for (Index t = 0; t < c.x.tokens; ++t)
      for (Index out = 0; out < s.width; ++out) {
        const double z = sum_at(s, c, b, t, out);
        to.put(b, t, out, z * normal_distribution(z) + (s.add ? c.x.get(b, t, out) : 0));
      }
}

void convolutional_gradient(const Convolutional& s, std::span<const ConstTensorView> p,
                            const ConstTensorView& x, const ConstTensorView& d_y,
                            const TensorView& d_x, std::span<const TensorView> d_parameters) {
  ConvolutionCall c = check_call(s, p, x, d_y);
  check_gradients(kConvolutional, c.parameters, d_parameters);
  const TokenView to = d_x.empty() ? TokenView{} : tokens_of(d_x, "d_x");
  if (!d_x.empty()) {
    if (to.batch != c.x.batch || to.tokens != c.x.tokens || to.width != s.width)
      detail::refuse_shape(
          kConvolutional, "d_x",
          "must have the shape of x, " + detail::sizes_text({c.x.batch, c.x.tokens, s.width}), d_x);
    detail::check_no_self_overlap(kConvolutional, {"d_x", detail::memory_of(d_x)});
  }
  std::vector<double> d_weight(c.weight.size(), 0), d_bias(c.bias.size(), 0);
  std::vector<double> back(static_cast<std::size_t>(c.x.batch * c.x.tokens * s.width), 0);
  const auto slot = [&](Index b, Index t, Index i) -> double& {
    return back[static_cast<std::size_t>((b * c.x.tokens + t) * s.width + i)];
  };
  for (Index b = 0; b < c.x.batch; ++b)
    for (Index t = 0; t < c.x.tokens; ++t)
      for (Index out = 0; out < s.width; ++out) {
        const double up = c.y.get(b, t, out);
        const double d = up * gelu_slope(sum_at(s, c, b, t, out));
        if (s.add) slot(b, t, out) += up;
        d_bias[static_cast<std::size_t>(out)] += d;
        const Index first = out / c.per_group * c.per_group;
        for (Index k = 0; k < s.kernel; ++k) {
          const Index from = t + k - s.kernel / 2;
          if (from < 0 || from >= c.x.tokens) continue;
          for (Index i = 0; i < c.per_group; ++i) {
            c.at(d_weight, s, out, i, k) += d * c.x.get(b, from, first + i);
            slot(b, from, first + i) += d * c.at(c.weight, s, out, i, k);
          }
        }
      }
  for (Index b = 0; !d_x.empty() && b < to.batch; ++b)
    for (Index t = 0; t < to.tokens; ++t)
      for (Index i = 0; i < s.width; ++i) to.put(b, t, i, slot(b, t, i));
  accumulate(kConvolutional, c.parameters.back(), d_parameters.back(), d_bias);
  if (!s.weight_norm) {
    accumulate(kConvolutional, c.parameters[0], d_parameters[0], d_weight);
    return;
  }
  std::vector<double> d_g(c.g.size()), d_v(c.v.size());
  pull_norm(s, c, d_weight, d_g, d_v);
  accumulate(kConvolutional, c.parameters[0], d_parameters[0], d_g);
  accumulate(kConvolutional, c.parameters[1], d_parameters[1], d_v);
}

std::vector<Parameter> Convolutional::parameters() const {
  if (width < 1 || width > 1000000)
    refuse_field("convolutional", "width", "must be positive", width);
  if (groups < 1 || width % groups != 0)
    refuse_field("convolutional", "groups", "must be positive and divide width", groups);
  if (kernel < 1 || kernel > 1000000)
    refuse_field("convolutional", "kernel", "must be positive", kernel);
  const double deviation =
      std::sqrt(4 / (static_cast<double>(kernel) * static_cast<double>(width)));
  const std::vector<Index> shape{width, width / groups, kernel};
  const auto taps = static_cast<double>(shape[0] * shape[1]);  // of one place of the kernel
  const Initial normal{InitialKind::normal, 0, deviation};
  std::vector<Parameter> all;
  if (weight_norm) {  // g starts as the norms of v: about deviation sqrt(count)
    all.push_back(
        {"weight_g", {kernel}, {InitialKind::constant, deviation * std::sqrt(taps), 0}, {}});
    all.push_back({"weight_v", shape, normal, {}});
  } else {
    all.push_back({"weight", shape, normal, {}});
  }
  all.push_back({"bias", {width}, {}, {}});
  return all;
}

namespace convolutional_presets {

Convolutional wav2vec2(Index width, Index kernel, Index groups) {
  return {.width = width, .kernel = kernel, .groups = groups};
}

}  // namespace convolutional_presets

}  // namespace posenc::v0
