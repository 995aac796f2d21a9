// SPDX-License-Identifier: Apache-2.0
// Dense layers behind a row: y = act(W x + b), in double.
#include <cmath>
#include <numbers>

#include "absolute/names.h"
#include "absolute/rows.h"
#include "core/shape.h"
#include "kernels/matmul.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

double number_at(const ConstTensorView& v, Index i, Index j) {
  return static_cast<const double*>(v.data)[i * v.stride[0] + j * v.stride[1]];
}
double& slot(const TensorView& v, Index i, Index j) {
  return static_cast<double*>(v.data)[i * v.stride[0] + j * v.stride[1]];
}

double activated(Activation a, double x) {
  switch (a) {
    case Activation::gelu:
      return x * std::erfc(-x / std::numbers::sqrt2) / 2;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::square:
      return x * x;
    case Activation::root:
      return std::sqrt(x);
    default:
      return x;
  }
}

double slope(Activation a, double x) {
  switch (a) {
    case Activation::gelu:  // Phi(x) + x phi(x)
      return std::erfc(-x / std::numbers::sqrt2) / 2 +
             x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
    case Activation::relu:
      return x > 0 ? 1 : 0;
    case Activation::square:
      return 2 * x;
    case Activation::root:
      return x > 0 ? 0.5 / std::sqrt(x) : 0;
    default:
      return 1;
  }
}

detail::ConstMatrix matrix(const ConstTensorView& v) {
  return {static_cast<const double*>(v.data), v.shape[0], v.shape[1], v.stride[0], v.stride[1]};
}

// W x + b, before the activation.
std::vector<double> product(const DenseLayer& l, const std::vector<double>& x) {
  const detail::ConstMatrix w = matrix(l.weight);
  std::vector<double> z(static_cast<std::size_t>(w.rows), 0.0);
  detail::add_product(w, {x.data(), w.columns, 1, 1, 0}, {z.data(), 1, 0});
  for (Index i = 0; i < w.rows && !l.bias.empty(); ++i)
    z[static_cast<std::size_t>(i)] += number_at(l.bias, 0, i);
  return z;
}

void check_like(const ConstTensorView& v, const ConstTensorView& of) {
  if (v.empty()) return;
  if (v.dtype != DType::f64 || v.rank != 2 || of.empty() || v.shape[0] != of.shape[0] ||
      v.shape[1] != of.shape[1])
    detail::refuse_shape(kApplyInput, "gradients of layers must be f64 and of their shapes", v);
}

}  // namespace

void check_layers(const std::vector<DenseLayer>& layers, Index width, Index out) {
  for (const DenseLayer& l : layers) {
    if (l.weight.empty() || l.weight.rank != 2 || l.weight.dtype != DType::f64 ||
        l.weight.shape[1] != width)
      refuse(kApplyInput, "weight of a layer must be [out, in] of f64, in", width);
    width = l.weight.shape[0];
    if (!l.bias.empty() && (l.bias.rank != 2 || l.bias.dtype != DType::f64 ||
                            l.bias.shape[0] != 1 || l.bias.shape[1] != width))
      refuse(kApplyInput, "bias of a layer must be [1, out] of f64, out", width);
  }
  if (width != out) refuse(kApplyInput, "the last layer must have the width of the term", width);
}

void check_layer_gradients(const std::vector<DenseLayer>& layers,
                           const std::vector<DenseGradient>& g) {
  if (g.empty()) return;
  if (g.size() != layers.size())
    refuse(kApplyInput, "there must be a gradient for each layer, or none",
           static_cast<Index>(g.size()));
  for (std::size_t n = 0; n < g.size(); ++n) {
    check_like(g[n].weight, layers[n].weight);
    check_like(g[n].bias, layers[n].bias);
  }
}

void apply_layers(const std::vector<DenseLayer>& layers, std::vector<double>& y) {
  for (const DenseLayer& l : layers) {
    y = product(l, y);
    for (double& v : y) v = activated(l.activation, v);
  }
}

void pull_layers(const std::vector<DenseLayer>& layers, const std::vector<double>& x,
                 std::vector<double>& d, const std::vector<DenseGradient>& g) {
  std::vector<std::vector<double>> in{x}, before;
  for (const DenseLayer& l : layers) {
    before.push_back(product(l, in.back()));
    in.push_back(before.back());
    for (double& v : in.back()) v = activated(l.activation, v);
  }
  for (std::size_t n = layers.size(); n-- > 0;) {
    const DenseLayer& l = layers[n];
    const detail::ConstMatrix w = matrix(l.weight);
    for (Index i = 0; i < w.rows; ++i) {
      const auto at = static_cast<std::size_t>(i);
      d[at] *= slope(l.activation, before[n][at]);
      if (!g.empty() && !g[n].bias.empty()) slot(g[n].bias, 0, i) += d[at];
    }
    if (!g.empty() && !g[n].weight.empty()) {
      const TensorView& to = g[n].weight;
      detail::add_product({d.data(), w.rows, 1, 1, 0}, {in[n].data(), 1, w.columns, 0, 1},
                          {static_cast<double*>(to.data), to.stride[0], to.stride[1]});
    }
    std::vector<double> back(in[n].size(), 0.0);
    detail::add_product(transposed(w), {d.data(), w.rows, 1, 1, 0}, {back.data(), 1, 0});
    d = std::move(back);
  }
}

}  // namespace posenc::v0
