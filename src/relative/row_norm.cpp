// SPDX-License-Identifier: Apache-2.0
#include "relative/row_norm.h"

#include <cmath>
#include <utility>

namespace posenc::inline v0::detail {

RowNorm::RowNorm(std::vector<double> x, Index width, double epsilon) : unit(std::move(x)) {
  const auto n = static_cast<double>(width);
  const auto step = static_cast<std::size_t>(width);
  for (std::size_t r = 0; r < unit.size(); r += step) {
    double* u = unit.data() + r;
    double mean = 0, square = 0;
    for (std::size_t c = 0; c < step; ++c) mean += u[c];
    mean /= n;
    for (std::size_t c = 0; c < step; ++c) {
      u[c] -= mean;
      square += u[c] * u[c];
    }
    inverse.push_back(1 / std::sqrt(square / n + epsilon));
    for (std::size_t c = 0; c < step; ++c) u[c] *= inverse.back();
  }
}

void RowNorm::pull_back(std::vector<double>& d) const {
  if (inverse.empty()) return;
  const std::size_t width = unit.size() / inverse.size();
  const auto n = static_cast<double>(width);
  for (std::size_t r = 0; r < inverse.size(); ++r) {
    double* dr = d.data() + r * width;
    const double* u = unit.data() + r * width;
    double sum = 0, along = 0;
    for (std::size_t c = 0; c < width; ++c) {
      sum += dr[c];
      along += dr[c] * u[c];
    }
    for (std::size_t c = 0; c < width; ++c)
      dr[c] = (dr[c] - sum / n - u[c] * along / n) * inverse[r];
  }
}

void pull_row_weights(const RowNorm& norm, const std::vector<double>& weight,
                      std::vector<double>& d, std::vector<double>& d_weight,
                      std::vector<double>& d_bias) {
  for (std::size_t i = 0; i < d.size(); ++i) {
    d_weight[i % weight.size()] += d[i] * norm.unit[i];
    d_bias[i % weight.size()] += d[i];
    d[i] *= weight[i % weight.size()];
  }
}

}  // namespace posenc::v0::detail
