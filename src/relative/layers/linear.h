// SPDX-License-Identifier: Apache-2.0
// Linear layers that schemes bring: y = x W^T + b, whole or for each head, and their gradients.
#pragma once
#include <functional>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

// Rows [first, first + count) of a matrix; they may lie in one buffer, good until the next call.
using RowBlock = std::function<const double*(Index first, Index count)>;
RowBlock rows_of(const std::vector<double>& r, Index width);

// x [rows, in], W [out, in], b [out] or empty: [rows, out].
std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& w,
                           const std::vector<double>& b, Index in);
std::vector<double> linear(const RowBlock& x, Index rows, const std::vector<double>& w,
                           const std::vector<double>& b, Index in);
// From d [rows, out] of y.
struct LinearGradient {
  std::vector<double> w, b, x;
};
LinearGradient linear_gradient(const std::vector<double>& d, const std::vector<double>& x,
                               const std::vector<double>& w, Index in);
// dx: what the gradient of x is added to, zeros where it is empty.
LinearGradient linear_gradient(const std::vector<double>& d, const RowBlock& x,
                               const std::vector<double>& w, Index in, std::vector<double> dx = {});

// W [heads head_dim, width] as a linear layer keeps it, or, in_out, [width, heads, head_dim].
struct HeadProjection {
  Index heads = 0, head_dim = 0, width = 0;
  bool in_out = false;

  // Of R [n, width]: R W + b, [heads, n, head_dim]; b [heads, head_dim] or empty.
  std::vector<double> table(const RowBlock& r, Index n, const std::vector<double>& w,
                            const std::vector<double>& b = {}) const;
  // The gradients of W, of b and of R from that of the table.
  std::vector<double> weight_gradient(const RowBlock& r, Index n, const double* d_table) const;
  std::vector<double> bias_gradient(Index n, const double* d_table) const;
  void add_row_gradient(const std::vector<double>& w, Index n, const double* d_table,
                        std::vector<double>& d) const;
  // From e [heads, n], the gradient of the numbers v . (R W): that of v [heads, head_dim]; dw and,
  // unless it is null, dr are added to. The table itself is not needed.
  std::vector<double> dots_gradient(const RowBlock& r, Index n, const std::vector<double>& w,
                                    const std::vector<double>& v, const double* e,
                                    std::vector<double>& dw, std::vector<double>* dr) const;
};

}  // namespace posenc::v0::detail
