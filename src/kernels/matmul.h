// SPDX-License-Identifier: Apache-2.0
// Products of matrices in double, for lowering and its gradients.
#pragma once
#include "posenc/core/dtype.h"

namespace posenc::inline v0::detail {

// Strides in elements: a transposed matrix is one of exchanged strides.
struct ConstMatrix {
  const double* data = nullptr;
  Index rows = 0, columns = 0, row_stride = 0, column_stride = 1;
};
inline ConstMatrix transposed(const ConstMatrix& m) noexcept {
  return {m.data, m.columns, m.rows, m.column_stride, m.row_stride};
}
struct MatrixOut {
  double* data = nullptr;
  Index row_stride = 0, column_stride = 1;
};

// c [a.rows, b.columns] += a b; a.columns == b.rows, c apart from both. Each element adds its
// products one after the other, k ascending, in fused multiply-adds where the instruction set has
// them (products_are_fused): the bits are those of three plain loops of them.
void add_product(const ConstMatrix& a, const ConstMatrix& b, const MatrixOut& c);
// Of the active instruction set.
bool products_are_fused();

}  // namespace posenc::v0::detail
