// SPDX-License-Identifier: Apache-2.0
// Blocks of b stay in the cache, packed; a tile of c stays in registers while k runs through a
// block. Blocks of k go in order, so that no element's sum is reordered.
#include "core/matmul.h"

#include <algorithm>
#include <vector>

namespace posenc::inline v0::detail {
namespace {

constexpr Index kTileRows = 4, kTileColumns = 4;  // what 16 registers of two doubles hold
constexpr Index kBlockDepth = 256, kBlockColumns = 128;

// n lines of `depth` numbers as tiles of `width` lines, k by k; zeros behind the last line.
void pack(const double* from, Index line_stride, Index k_stride, Index n, Index depth, Index width,
          double* to) noexcept {
  for (Index first = 0; first < n; first += width)
    for (Index k = 0; k < depth; ++k)
      for (Index i = 0; i < width; ++i)
        *to++ = first + i < n ? from[(first + i) * line_stride + k * k_stride] : 0;
}

// The tile of c at `c`, of which [rows, columns] are wanted.
void add_tile(const double* a, const double* b, Index depth, const MatrixOut& c, Index rows,
              Index columns) noexcept {
  double sum[kTileRows][kTileColumns] = {};
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) sum[i][j] = c.data[i * c.row_stride + j * c.column_stride];
  for (Index k = 0; k < depth; ++k, a += kTileRows, b += kTileColumns)
    for (Index i = 0; i < kTileRows; ++i)
      for (Index j = 0; j < kTileColumns; ++j) sum[i][j] += a[i] * b[j];
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j) c.data[i * c.row_stride + j * c.column_stride] = sum[i][j];
}

// b is one column: kRows sums at once, since one alone waits for each addition.
void add_vector(const ConstMatrix& a, const double* x, Index x_stride,
                const MatrixOut& c) noexcept {
  constexpr Index kRows = 8;
  for (Index first = 0; first < a.rows; first += kRows) {
    const Index rows = std::min(kRows, a.rows - first);
    const double* from = a.data + first * a.row_stride;
    double sum[kRows];
    for (Index i = 0; i < rows; ++i) sum[i] = c.data[(first + i) * c.row_stride];
    if (rows == kRows) {
      for (Index k = 0; k < a.columns; ++k)
        for (Index i = 0; i < kRows; ++i)
          sum[i] += from[i * a.row_stride + k * a.column_stride] * x[k * x_stride];
    } else {
      for (Index k = 0; k < a.columns; ++k)
        for (Index i = 0; i < rows; ++i)
          sum[i] += from[i * a.row_stride + k * a.column_stride] * x[k * x_stride];
    }
    for (Index i = 0; i < rows; ++i) c.data[(first + i) * c.row_stride] = sum[i];
  }
}

}  // namespace

void add_product(const ConstMatrix& a, const ConstMatrix& b, const MatrixOut& c) {
  if (b.columns == 1) return add_vector(a, b.data, b.row_stride, c);
  const Index most = std::min(kBlockDepth, a.columns);
  const auto padded = [](Index n, Index tile) { return (n + tile - 1) / tile * tile; };
  std::vector<double> a_tile(static_cast<std::size_t>(kTileRows * most));
  std::vector<double> b_block(
      static_cast<std::size_t>(padded(std::min(kBlockColumns, b.columns), kTileColumns) * most));
  for (Index j = 0; j < b.columns; j += kBlockColumns) {
    const Index columns = std::min(kBlockColumns, b.columns - j);
    for (Index k = 0; k < a.columns; k += kBlockDepth) {
      const Index depth = std::min(kBlockDepth, a.columns - k);
      pack(b.data + k * b.row_stride + j * b.column_stride, b.column_stride, b.row_stride, columns,
           depth, kTileColumns, b_block.data());
      for (Index i = 0; i < a.rows; i += kTileRows) {
        const Index rows = std::min(kTileRows, a.rows - i);
        pack(a.data + i * a.row_stride + k * a.column_stride, a.row_stride, a.column_stride, rows,
             depth, kTileRows, a_tile.data());
        for (Index t = 0; t < columns; t += kTileColumns)
          add_tile(a_tile.data(), b_block.data() + t * depth, depth,
                   {c.data + i * c.row_stride + (j + t) * c.column_stride, c.row_stride,
                    c.column_stride},
                   rows, std::min(kTileColumns, columns - t));
      }
    }
  }
}

}  // namespace posenc::v0::detail
