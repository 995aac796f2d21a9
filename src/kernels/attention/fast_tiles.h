// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine backward: tiles of query rows x keys, in float.
//
//   x_ij = start_ij + q_i.k_j          in the registers of the product
//   p_ij = 2^x_ij                      stored once
//   s_ij = p_ij (g_i.v_j - d_i)        the same: gradients of the scores
//   dv_j += sum_i p_ij g_i,  dk_j += sum_i s_ij q_i,  dq_i += sum_j s_ij k_j
//
// q comes multiplied by scale * log2(e), the start value holds minus the reference of the row, which is a whole
// number; what is left of its sum of weights is a factor of g and d. Nothing is transposed: the last three products
// read p and s along the other axis. docs/attention_engine.md, "The fast engine".
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Keys of a tile, as FastBlock has them.
struct FastTileKeys {
  const float* k = nullptr;  // [panels of keys][channels][panel]
  const float* v = nullptr;  // [panels of keys][value channels][panel]
  Index channels = 0, value_channels = 0;
  Index q_width = 0, g_width = 0;  // from row to row of q and g
};

// `rows` or `few_rows` rows of a tile.
struct FastTileRows {
  const float* q = nullptr;             // [rows][q_width]
  const float* g = nullptr;             // [rows][g_width]
  const float* const* start = nullptr;  // [rows]: start value of each key, -inf hides it; null: 0
  const float* shift = nullptr;         // [rows]: added to the start values
  const float* less = nullptr;          // [rows]: d
  float* p = nullptr;                   // [rows][tile_stride]
  float* s = nullptr;                   // the same
  Index keys = 0;  // of the tile, that are read; the rest of their vector is written too
};

struct FastTileKernels {
  Index lanes, rows, few_rows;
  // Rows of p and s lie tile_stride apart: tile_keys, and zeros of a vector, or of a strip of rows, that `diagonals` and
  // products along them read.
  Index tile_rows, tile_keys, tile_stride;
  // By number of rows (0: rows, 1: few_rows) and by what starts (0: null, 1: given).
  void (*slopes[2][2])(const FastTileKeys&, const FastTileRows&) noexcept;
  // to[j] += sum_i a[i][j] b[i], j of keys, i of rows. to and b: [][width], whole vectors. Writes up to
  // rows - 1 rows of `to` behind the last.
  void (*add_outer)(float* to, const float* a, const float* b, Index rows, Index keys,
                    Index width) noexcept;
  // to[i] += sum_j a[i][j] b[j]. The same.
  void (*add_rows)(float* to, const float* a, const float* b, Index rows, Index keys,
                   Index width) noexcept;
  // Both along the diagonals, t = j - i, of which a tile has rows - 1 + keys; t of a negative one counts from behind.
  // Zeros stand before and behind each row of a.
  // to[i] += sum_t a[i][i + t] b[t]. Reads up to rows - 1 rows of b before the first.
  void (*add_rows_along)(float* to, const float* a, const float* b, Index rows, Index keys,
                         Index width) noexcept;
  // to[t] += sum_i a[i][i + t] b[i]. Writes up to rows - 1 rows of `to` behind the last.
  void (*add_outer_along)(float* to, const float* a, const float* b, Index rows, Index keys,
                          Index width) noexcept;
  // to[n] = sum over i of a[i][n - (rows - 1) + i], n of rows - 1 + keys and up to a vector more. A vector of zeros
  // stands before and behind each row.
  void (*diagonals)(float* to, const float* a, Index rows, Index keys) noexcept;
  // s[j] += p[j] x[j], and x[index[j]]; whole vectors.
  void (*add_scaled)(float* s, const float* p, const float* x, Index keys) noexcept;
  void (*add_scaled_indexed)(float* s, const float* p, const float* x, const std::int32_t* index,
                             Index keys) noexcept;
  float (*dot)(const float* a, const float* b, Index n) noexcept;  // n: whole vectors
};
const FastTileKernels& fast_tile_kernels(Isa);

}  // namespace posenc::v0::detail
