// SPDX-License-Identifier: Apache-2.0
#include "relative/layers/row_norm.h"

#include <cmath>
#include <utility>

namespace posenc::inline v0::detail {
namespace {

// Sum of f(0) .. f(n - 1) in eight parts: one sum would wait for each addition.
template <class F>
double sum_in_parts(std::size_t n, const F& f) {
  constexpr std::size_t kParts = 8;
  double part[kParts] = {};
  std::size_t c = 0;
  for (; c + kParts <= n; c += kParts)
    for (std::size_t k = 0; k < kParts; ++k) part[k] += f(c + k);
  for (; c < n; ++c) part[0] += f(c);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

}  // namespace

RowNorm::RowNorm(std::vector<double> x, Index width, double epsilon) : unit(std::move(x)) {
  const auto n = static_cast<double>(width);
  const auto step = static_cast<std::size_t>(width);
  for (std::size_t r = 0; r < unit.size(); r += step) {
    double* u = unit.data() + r;
    const double mean = sum_in_parts(step, [&](std::size_t c) { return u[c]; }) / n;
    for (std::size_t c = 0; c < step; ++c) u[c] -= mean;
    const double square = sum_in_parts(step, [&](std::size_t c) { return u[c] * u[c]; });
    inverse.push_back(1 / std::sqrt(square / n + epsilon));
    for (std::size_t c = 0; c < step; ++c) u[c] *= inverse.back();
  }
}

std::vector<double> RowNorm::weighted(const std::vector<double>& weight,
                                      const std::vector<double>& bias) const {
  std::vector<double> y(unit.size());
  const std::size_t width = weight.size();
  for (std::size_t r = 0; r < unit.size(); r += width)
    for (std::size_t c = 0; c < width; ++c)
      y[r + c] = unit[r + c] * weight[c] + (bias.empty() ? 0 : bias[c]);
  return y;
}

void RowNorm::pull_back(std::vector<double>& d) const {
  if (inverse.empty()) return;
  const std::size_t width = unit.size() / inverse.size();
  const auto n = static_cast<double>(width);
  for (std::size_t r = 0; r < inverse.size(); ++r) {
    double* dr = d.data() + r * width;
    const double* u = unit.data() + r * width;
    const double sum = sum_in_parts(width, [&](std::size_t c) { return dr[c]; });
    const double along = sum_in_parts(width, [&](std::size_t c) { return dr[c] * u[c]; });
    for (std::size_t c = 0; c < width; ++c)
      dr[c] = (dr[c] - sum / n - u[c] * along / n) * inverse[r];
  }
}

RowBlock normed_rows(const std::vector<double>& x, Index width, double epsilon,
                     const std::vector<double>& weight, const std::vector<double>& bias) {
  return [&x, width, epsilon, &weight, &bias, block = std::vector<double>()](Index first,
                                                                             Index count) mutable {
    const auto from = x.begin() + first * width;
    block = RowNorm({from, from + count * width}, width, epsilon).weighted(weight, bias);
    return static_cast<const double*>(block.data());
  };
}

void pull_row_weights(const RowNorm& norm, const std::vector<double>& weight,
                      std::vector<double>& d, std::vector<double>& d_weight,
                      std::vector<double>& d_bias) {
  const std::size_t width = weight.size();
  for (std::size_t r = 0; r < d.size(); r += width)
    for (std::size_t c = 0; c < width; ++c) {
      d_weight[c] += d[r + c] * norm.unit[r + c];
      d_bias[c] += d[r + c];
      d[r + c] *= weight[c];
    }
}

}  // namespace posenc::v0::detail
