// SPDX-License-Identifier: Apache-2.0
// Blocks of b stay in the cache, packed; a tile of c stays in registers while k runs through a block. Blocks of k go in
// order, so that no element's sum is reordered.
#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#ifndef POSENC_KERNELS_MATMUL_ONCE_
#define POSENC_KERNELS_MATMUL_ONCE_
namespace posenc::inline v0::detail {

// A tile of rows of a, where they lie or packed.
struct TileOfRows {
  const double* data;
  Index row_stride, k_stride;
};

struct TileKernel {
  Index rows, columns;  // of a tile of c
  bool fused;           // multiply-adds
  void (*add)(const TileOfRows& a, const double* b, Index depth, double* c,
              Index c_stride) noexcept;
  void (*add_column)(const ConstMatrix& a, const double* x, Index x_stride,
                     const MatrixOut& c) noexcept;
};

}  // namespace posenc::v0::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE double MulAddOne(double x, double y, double sum) {
#if HWY_NATIVE_FMA
  return __builtin_fma(x, y, sum);
#else
  return x * y + sum;
#endif
}

// Rows and vectors of a tile, measured beside others: bench/NOTES.md. SVE's vectors can be no elements of an array:
// there a tile is one of doubles, of which the compiler makes vectors.
#if HWY_HAVE_SCALABLE
constexpr Index kLanes = 1, kTileRows = 4, kTileVectors = 4;
HWY_INLINE void AddTile(const TileOfRows& a, const double* b, Index depth, double* c,
                        Index c_stride) {
  double sum[kTileRows][kTileVectors];
  for (Index i = 0; i < kTileRows; ++i)
    for (Index j = 0; j < kTileVectors; ++j) sum[i][j] = c[i * c_stride + j];
  for (Index k = 0; k < depth; ++k, b += kTileVectors)
    for (Index i = 0; i < kTileRows; ++i)
      for (Index j = 0; j < kTileVectors; ++j)
        sum[i][j] = MulAddOne(a.data[i * a.row_stride + k * a.k_stride], b[j], sum[i][j]);
  for (Index i = 0; i < kTileRows; ++i)
    for (Index j = 0; j < kTileVectors; ++j) c[i * c_stride + j] = sum[i][j];
}
#else
using D = hn::CappedTag<double, 8>;
constexpr Index kLanes = static_cast<Index>(hn::MaxLanes(D()));
constexpr Index kTileRows = kLanes == 8 ? 8 : kLanes == 4 ? 6 : 4;
constexpr Index kTileVectors = kLanes == 1 ? 4 : 2;

// c [kTileRows, kTileVectors vectors] += a b of a packed tile of b; rows of c are c_stride apart.
HWY_INLINE void AddTile(const TileOfRows& a, const double* b, Index depth, double* c,
                        Index c_stride) {
  const D d;
  hn::Vec<D> sum[kTileRows][kTileVectors], v[kTileVectors];
  for (Index i = 0; i < kTileRows; ++i)
    for (Index j = 0; j < kTileVectors; ++j)
      sum[i][j] = hn::LoadU(d, c + i * c_stride + j * kLanes);
  const double* rows[kTileRows];
  for (Index i = 0; i < kTileRows; ++i) rows[i] = a.data + i * a.row_stride;
  for (Index k = 0, at = 0; k < depth; ++k, at += a.k_stride, b += kTileVectors * kLanes) {
    for (Index j = 0; j < kTileVectors; ++j) v[j] = hn::LoadU(d, b + j * kLanes);
    for (Index i = 0; i < kTileRows; ++i) {
      const auto factor = hn::Set(d, rows[i][at]);
      for (Index j = 0; j < kTileVectors; ++j) sum[i][j] = hn::MulAdd(factor, v[j], sum[i][j]);
    }
  }
  for (Index i = 0; i < kTileRows; ++i)
    for (Index j = 0; j < kTileVectors; ++j)
      hn::StoreU(sum[i][j], d, c + i * c_stride + j * kLanes);
}
#endif

void add_tile(const TileOfRows& a, const double* b, Index depth, double* c,
              Index c_stride) noexcept {
  AddTile(a, b, depth, c, c_stride);
}

// b is one column: kRows sums at once, since one alone waits for each addition.
// (A sum over k that the compiler makes vectors of would be products first, and then sums.)
void add_column(const ConstMatrix& a, const double* x, Index x_stride,
                const MatrixOut& c) noexcept {
  constexpr Index kRows = 8;
  for (Index first = 0; first < a.rows; first += kRows) {
    const Index rows = std::min(kRows, a.rows - first);
    const double* from = a.data + first * a.row_stride;
    double sum[kRows];
    for (Index i = 0; i < rows; ++i) sum[i] = c.data[(first + i) * c.row_stride];
    const auto add_row = [&](Index i, Index k) HWY_ATTR {
      sum[i] = MulAddOne(from[i * a.row_stride + k * a.column_stride], x[k * x_stride], sum[i]);
    };
    if (rows == kRows) {
      for (Index k = 0; k < a.columns; ++k)
        for (Index i = 0; i < kRows; ++i) add_row(i, k);
    } else {
      for (Index k = 0; k < a.columns; ++k)
        for (Index i = 0; i < rows; ++i) add_row(i, k);
    }
    for (Index i = 0; i < rows; ++i) c.data[(first + i) * c.row_stride] = sum[i];
  }
}

constexpr TileKernel kTileKernel{kTileRows, kTileVectors* kLanes, HWY_NATIVE_FMA != 0, add_tile,
                                 add_column};
}  // namespace

const TileKernel* table_of_tiles() {
  return &kTileKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
namespace {

HWY_EXPORT(table_of_tiles);
const TileKernel& tile_kernel() {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_tiles), active_isa());
}

constexpr Index kBlockDepth = 512, kBlockColumns = 192;
constexpr Index kMostTile = 128;  // elements of the largest tile

// n lines of `depth` numbers as tiles of `width` lines, k by k; zeros behind the last line.
void pack(const double* from, Index line_stride, Index k_stride, Index n, Index depth, Index width,
          double* to) noexcept {
  for (Index first = 0; first < n; first += width, to += width * depth) {
    const Index lines = std::min(width, n - first);
    const double* tile = from + first * line_stride;
    if (lines < width) std::fill(to, to + width * depth, 0.0);
    if (line_stride == 1) {
      for (Index k = 0; k < depth; ++k) {
        const double* line = tile + k * k_stride;
        Index i = 0;
        for (; i + 4 <= lines; i += 4) std::memcpy(to + k * width + i, line + i, 4 * sizeof *to);
        for (; i < lines; ++i) to[k * width + i] = line[i];
      }
    } else {
      for (Index i = 0; i < lines; ++i)
        for (Index k = 0; k < depth; ++k) to[k * width + i] = tile[i * line_stride + k * k_stride];
    }
  }
}

// The tile of c at `c`, of which [rows, columns] are wanted.
void add_tile(const TileKernel& kernel, const TileOfRows& a, const double* b, Index depth,
              const MatrixOut& c, Index rows, Index columns) noexcept {
  if (c.column_stride == 1 && rows == kernel.rows && columns == kernel.columns)
    return kernel.add(a, b, depth, c.data, c.row_stride);
  double tile[kMostTile] = {};
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      tile[i * kernel.columns + j] = c.data[i * c.row_stride + j * c.column_stride];
  kernel.add(a, b, depth, tile, kernel.columns);
  for (Index i = 0; i < rows; ++i)
    for (Index j = 0; j < columns; ++j)
      c.data[i * c.row_stride + j * c.column_stride] = tile[i * kernel.columns + j];
}

}  // namespace

bool products_are_fused() {
  return tile_kernel().fused;
}

void add_product(const ConstMatrix& a, const ConstMatrix& b, const MatrixOut& c) {
  if (a.rows == 0 || a.columns == 0 || b.columns == 0) return;  // nothing is added
  const TileKernel& kernel = tile_kernel();
  if (b.columns == 1) return kernel.add_column(a, b.data, b.row_stride, c);
  // Packing b pays by the rows of a that meet it; rows of c are written as they are.
  constexpr Index kFewRows = 16;
  const bool by_columns = c.row_stride == 1 && c.column_stride != 1;
  if (a.rows < b.columns && (a.rows < kFewRows || by_columns))
    return add_product(transposed(b), transposed(a), {c.data, c.column_stride, c.row_stride});
  const Index most = std::min(kBlockDepth, a.columns);
  const auto padded = [](Index n, Index tile) { return (n + tile - 1) / tile * tile; };
  std::vector<double> a_tile(static_cast<std::size_t>(kernel.rows * most));
  std::vector<double> b_block(
      static_cast<std::size_t>(padded(std::min(kBlockColumns, b.columns), kernel.columns) * most));
  for (Index j = 0; j < b.columns; j += kBlockColumns) {
    const Index columns = std::min(kBlockColumns, b.columns - j);
    for (Index k = 0; k < a.columns; k += kBlockDepth) {
      const Index depth = std::min(kBlockDepth, a.columns - k);
      pack(b.data + k * b.row_stride + j * b.column_stride, b.column_stride, b.row_stride, columns,
           depth, kernel.columns, b_block.data());
      for (Index i = 0; i < a.rows; i += kernel.rows) {
        const Index rows = std::min(kernel.rows, a.rows - i);
        TileOfRows tile{a.data + i * a.row_stride + k * a.column_stride, a.row_stride,
                        a.column_stride};
        if (rows < kernel.rows || a.column_stride != 1) {
          pack(tile.data, a.row_stride, a.column_stride, rows, depth, kernel.rows, a_tile.data());
          tile = {a_tile.data(), 1, kernel.rows};
        }
        for (Index t = 0; t < columns; t += kernel.columns)
          add_tile(kernel, tile, b_block.data() + t * depth, depth,
                   {c.data + i * c.row_stride + (j + t) * c.column_stride, c.row_stride,
                    c.column_stride},
                   rows, std::min(kernel.columns, columns - t));
      }
    }
  }
}

}  // namespace posenc::v0::detail
#endif
