// SPDX-License-Identifier: Apache-2.0
// Blocks of b stay in the cache, packed; a tile of c stays in registers while k runs through a
// block. Blocks of k go in order, so that no element's sum is reordered.
#include "kernels/matmul.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {
namespace {

constexpr Index kBlockDepth = 512, kBlockColumns = 192;
#if defined(__aarch64__)
constexpr bool kPlainFused = true;  // without a choice of instruction sets
#else
constexpr bool kPlainFused = false;
#endif
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

// A tile of rows of a, where they lie or packed.
struct TileOfRows {
  const double* data;
  Index row_stride, k_stride;
};

// c [Rows, Vectors of L] += a b of a packed tile of b, for vectors L; rows of c are c_stride apart.
template <class L, Index Rows, Index Vectors>
[[gnu::always_inline]] inline void add_tile_of(const TileOfRows& a, const double* b, Index depth,
                                               double* c, Index c_stride) noexcept {
  constexpr Index kLanes = static_cast<Index>(sizeof(L) / sizeof(double));
  L sum[Rows][Vectors];
  for (Index i = 0; i < Rows; ++i)
    for (Index j = 0; j < Vectors; ++j)
      std::memcpy(&sum[i][j], c + i * c_stride + j * kLanes, sizeof(L));
  const double* rows[Rows];
  for (Index i = 0; i < Rows; ++i) rows[i] = a.data + i * a.row_stride;
  for (Index k = 0, at = 0; k < depth; ++k, at += a.k_stride, b += Vectors * kLanes) {
    L v[Vectors];
    for (Index j = 0; j < Vectors; ++j) std::memcpy(&v[j], b + j * kLanes, sizeof(L));
    for (Index i = 0; i < Rows; ++i)
      for (Index j = 0; j < Vectors; ++j) sum[i][j] += rows[i][at] * v[j];
  }
  for (Index i = 0; i < Rows; ++i)
    for (Index j = 0; j < Vectors; ++j)
      std::memcpy(c + i * c_stride + j * kLanes, &sum[i][j], sizeof(L));
}

// b is one column: kRows sums at once, since one alone waits for each addition.
// (A sum over k that the compiler makes vectors of would be products first, and then sums.)
template <bool kFused>
[[gnu::always_inline]] inline void add_column_of(const ConstMatrix& a, const double* x,
                                                 Index x_stride, const MatrixOut& c) noexcept {
  constexpr Index kRows = 8;
  for (Index first = 0; first < a.rows; first += kRows) {
    const Index rows = std::min(kRows, a.rows - first);
    const double* from = a.data + first * a.row_stride;
    double sum[kRows];
    for (Index i = 0; i < rows; ++i) sum[i] = c.data[(first + i) * c.row_stride];
    const auto add_row = [&](Index i, Index k) {
      const double y = from[i * a.row_stride + k * a.column_stride], by = x[k * x_stride];
      sum[i] = kFused ? __builtin_fma(y, by, sum[i]) : sum[i] + y * by;
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

struct TileKernel {
  Index rows, columns;
  void (*add)(const TileOfRows& a, const double* b, Index depth, double* c,
              Index c_stride) noexcept;
  void (*add_column)(const ConstMatrix& a, const double* x, Index x_stride,
                     const MatrixOut& c) noexcept;
};

// Measured beside other tiles: bench/NOTES.md.
using TwoDoubles [[gnu::vector_size(16)]] = double;
void add_two_wide(const TileOfRows& a, const double* b, Index depth, double* c,
                  Index c_stride) noexcept {
  add_tile_of<TwoDoubles, 4, 2>(a, b, depth, c, c_stride);
}
void add_column(const ConstMatrix& a, const double* x, Index x_stride,
                const MatrixOut& c) noexcept {
  add_column_of<kPlainFused>(a, x, x_stride, c);
}
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void add_column_fused(const ConstMatrix& a, const double* x,
                                                  Index x_stride, const MatrixOut& c) noexcept {
  add_column_of<true>(a, x, x_stride, c);
}
using FourDoubles [[gnu::vector_size(32)]] = double;
using EightDoubles [[gnu::vector_size(64)]] = double;
[[gnu::target("avx2,fma")]] void add_four_wide(const TileOfRows& a, const double* b, Index depth,
                                               double* c, Index c_stride) noexcept {
  add_tile_of<FourDoubles, 6, 2>(a, b, depth, c, c_stride);
}
[[gnu::target("avx512f,avx512dq,fma")]] void add_eight_wide(const TileOfRows& a, const double* b,
                                                            Index depth, double* c,
                                                            Index c_stride) noexcept {
  add_tile_of<EightDoubles, 8, 2>(a, b, depth, c, c_stride);
}
#endif

TileKernel tile_kernel() {
#if defined(__x86_64__)
  if (active_isa() == Isa::avx512) return {8, 16, add_eight_wide, add_column_fused};
  if (active_isa() == Isa::avx2) return {6, 8, add_four_wide, add_column_fused};
#endif
  return {4, 4, add_two_wide, add_column};
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
#if defined(__x86_64__)
  if (active_isa() == Isa::avx512 || active_isa() == Isa::avx2) return true;
#endif
  return kPlainFused;
}

void add_product(const ConstMatrix& a, const ConstMatrix& b, const MatrixOut& c) {
  if (a.rows == 0 || a.columns == 0 || b.columns == 0) return;  // nothing is added
  const TileKernel kernel = tile_kernel();
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
