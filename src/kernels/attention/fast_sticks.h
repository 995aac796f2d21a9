// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for stick-breaking: keys from right to left, each takes its share of what is
// left.
//
//   x_j = start_j + q.k_j,  y_j = log2(1 + 2^x_j)
//   p_j = 2^(x_j + left - sum of y over the keys from j on)
#pragma once
#include "kernels/attention/fast_decode.h"
#include "kernels/attention/fast_strips.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

struct FastStick {
  double* left =
      nullptr;  // [rows]: log2 of what keys behind the block leave; then of what the block leaves too
};

// Rows of a tile, backward. Rows of arrays lie `stride` apart.
struct FastStickTile {
  double* left = nullptr;  // [rows]
  float* start = nullptr;  // start values whose exponents are those of weights
  float* share = nullptr;  // sigmoid(x)
  Index stride = 0;
};

struct FastStickKernels {
  // FastStrip: sums, reference and base are not used; shift is added to start values. By number of rows and by what
  // starts, as FastKernels::strip. False: a score is beyond kLargestScore, and nothing has changed but `weights`.
  bool (*strip[2][2])(const FastBlock&, const FastStrip&, const FastStick&) noexcept;
  // The same without weights and values.
  bool (*leave[2][2])(const FastBlock&, const FastStrip&, const FastStick&) noexcept;
  // Weights of one row of a few queries; sums and reference are not used. False: a score is beyond kLargestScore or no
  // number, and `left` has not changed.
  bool (*decoded)(const FastDecodeRow&, double& left) noexcept;
  // FastTileRows: q, start, shift and keys. left: what a tile leaves.
  void (*add_left[2])(const FastTileKeys&, const FastTileRows&, const FastStickTile&) noexcept;
  // left: of the keys from the first one of the tile on; then of those behind it. Fills in both arrays.
  void (*open[2])(const FastTileKeys&, const FastTileRows&, const FastStickTile&) noexcept;
  // s: p (g.v) of a row; then gradients of its scores. `running`: the sum over the keys before, and what comes back to the
  // rest of the row. Returns it with these keys.
  double (*pull)(float* s, const float* share, Index keys, double running) noexcept;
};
const FastStickKernels& fast_stick_kernels(Isa);

}  // namespace posenc::v0::detail
