// SPDX-License-Identifier: Apache-2.0
// Gradients of numbers that multiply q.k (content_weights.h), from the gradients s of the scores of a tile:
//
//   d w(d) += sum of s_ij q_i.k_j over the pairs of distance d,  d (q.k)_ij = s_ij w_ij
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "kernels/attention/fast_tiles.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// Rows of one head and a tile of keys.
struct WeightTile {
  const FastRow* row;
  float *s, *content;  // [rows][tile_stride]; content: of FastWeightKernels::slopes
  Index rows;
  Run keys;
  float* diagonals;  // memory of FastTileKernels::diagonals
};

class WeightGradients {
 public:
  // slices: of the keys of a head.
  WeightGradients(const FastCall&, const FastTileKernels&, const AttentionGradients&, Index slices,
                  CallArena&);

  // s becomes the gradient of q.k.
  void pull(const WeightTile&, Index slice) const noexcept;
  // To the caller's gradients.
  void finish() noexcept;

 private:
  void add(const WeightTile&, Index slice) const noexcept;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  const AttentionGradients& gradients_;
  Index slices_;
  std::span<double> lines_;  // [B][H][slices][entries]; empty: not wanted
};

}  // namespace posenc::v0::detail
