// SPDX-License-Identifier: Apache-2.0
// LayerNorm of rows without its weights, and its way back: relative embeddings of DeBERTa, positions
// of TUPE, hidden units of a network of the distance.
#pragma once
#include <vector>

#include "posenc/core/dtype.h"
#include "relative/layers/linear.h"

namespace posenc::inline v0::detail {

// unit = (x - mean) / deviation, deviation = sqrt(mean of (x - mean)^2 + epsilon), of each row.
struct RowNorm {
  std::vector<double> unit;     // [rows, width]
  std::vector<double> inverse;  // [rows]: 1 / deviation

  RowNorm() = default;
  RowNorm(std::vector<double> x, Index width, double epsilon);
  // unit w + b; b may be empty.
  std::vector<double> weighted(const std::vector<double>& weight,
                               const std::vector<double>& bias) const;
  // d of `unit` becomes that of x.
  void pull_back(std::vector<double>& d) const;
};

// unit w + b of the rows of x, made block by block; all three stay the caller's.
RowBlock normed_rows(const std::vector<double>& x, Index width, double epsilon,
                     const std::vector<double>& weight, const std::vector<double>& bias);

// Of unit w + b: dw and db are added to, d becomes the gradient of `unit`.
void pull_row_weights(const RowNorm&, const std::vector<double>& weight, std::vector<double>& d,
                      std::vector<double>& d_weight, std::vector<double>& d_bias);

}  // namespace posenc::v0::detail
