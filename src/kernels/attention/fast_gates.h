// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine where a row counts the gates between a key and itself (CoPE): keys from right to
// left, and the count c_j of a key selects, between two neighbours, one of the row's levels.
//
//   g_j = sigmoid(z_j) or log2 sigmoid(z_j),  c_j = sum of g over the keys from j on
//   x_j = start_j + q.k_j + level(min(c_j, last))       then as fast_strips.h
//
// Without levels x_j = start_j + q.k_j + rise c_j, and c_j is that of the keys of the block alone: what the keys behind add
// is a part of what the strip is relative to.
#pragma once
#include "kernels/attention/fast_strips.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

// Gates of the rows of a strip. A key whose start value is -inf has none.
struct FastGates {
  // z_j times log2(e) = ratio q.k of the strip, or the product of these, if there are any.
  float ratio = 1;
  const float* q = nullptr;  // [rows][channels]
  const float* k = nullptr;  // as FastBlock::k
  Index channels = 0;
  float* products = nullptr;  // memory: [rows][block_keys]
  // [rows][level_stride]: levels 0 .. last, and the last one again, 2 lanes + 1 times. Null: there are none.
  const float* levels = nullptr;
  float rise = 0;          // without levels
  bool logarithm = false;  // of the sigmoid
  Index level_stride = 0, last = 0;
  const Index* own =
      nullptr;  // [rows]: a key of the block whose gate does not count; null: all count
  const double* count = nullptr;  // [rows]: of the keys behind the block
  double* next = nullptr;         // [rows]: with those of the block
};

// Gates of the rows of a tile, backward. Rows of arrays lie `stride` apart.
struct FastGateTile {
  FastGates gates;           // products are those of the tile, or q times k
  Index q_width = 0;         // from row to row of that q
  float* product = nullptr;  // gradients of these products; null: they are those of the tile
  double* count = nullptr;   // [rows]
  Index* whole = nullptr;    // [rows]: the whole number below the count of the keys behind the tile
  float* start = nullptr;    // start values of the tile with levels
  float* slope = nullptr;    // of a gate by z
  float* rise = nullptr;     // from the level below a count to the one above, 0 at a whole count
  float* at = nullptr;       // the count, beyond `whole`
  Index stride = 0;
};

struct FastGateKernels {
  // FastKernels::strip and rescale, by number of rows; with or without start values. Without, keys are whole vectors.
  bool (*strip[2])(const FastBlock&, const FastStrip&, const FastGates&) noexcept;
  bool (*rescale[2])(const FastBlock&, const FastStrip&, const FastGates&) noexcept;
  // Of one row of a few queries: adds levels to the products x of its keys, in whole vectors. start null: none is hidden.
  // False: a product is not finite, and nothing has changed.
  bool (*decoded)(float* x, Index keys, const float* start, const FastGates&) noexcept;
  // By number of rows. count: that of a tile is added. FastTileRows: q, start and keys.
  void (*add_counts[2])(const FastTileKeys&, const FastTileRows&, const FastGateTile&) noexcept;
  // count: of the keys from the first one of the tile on; then of those behind it. Fills in all arrays.
  void (*open[2])(const FastTileKeys&, const FastTileRows&, const FastGateTile&) noexcept;
  // s: gradients of the scores of a row; what comes back to z of its gates is added, so that they are gradients of q.k. Gates
  // with products of their own have theirs apart.
  // d_levels: those of levels from the one at `whole` on, if there are any. `running`: what keys before have passed on, in 1 / log2(e).
  double (*pull)(float* s, const FastGateTile&, Index row, Index keys, double running,
                 float* d_levels) noexcept;
};
const FastGateKernels& fast_gate_kernels(Isa);

}  // namespace posenc::v0::detail
