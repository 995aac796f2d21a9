// SPDX-License-Identifier: Apache-2.0
// Gradients of stick-breaking (sticks.h). With s_ij = sigmoid(x_ij), dP_ij = d out_i.v_j and c_i what comes back to the rest
// of a row:
//
//   d x_ij = p_ij dP_ij - s_ij (c_i + sum of p_it dP_it over the keys t up to j)
//
// Tiles of keys are passed from the first to the last. What the keys from a tile on leave is summed once before, from the
// last tile to the one where all sticks of a group are broken. Before it weights are 0, and only c passes on.
#pragma once
#include <span>

#include "attention/fast/gate_gradients.h"

namespace posenc::inline v0::detail {

class RowFacts;

// One head, of one thread.
struct StickGradientsWork {
  std::span<double> left;         // [rows]: log2 of what the keys from a tile on leave
  std::span<double> running;      // [rows]: c, and the sum over the keys before a tile
  std::span<Index> edge;          // by group: the first key of the tiles in which weights are not 0
  std::span<Index> keys;          // by group: of the last tile
  std::span<float> start, share;  // of a tile
  std::span<float> own;           // the value of a query's own key
};

class StickGradients {
 public:
  StickGradients(const FastCall&, const FastTileKernels&, Index g_width);
  StickGradientsWork work(Index rows, CallArena&) const;

  bool none() const noexcept { return !breaks_sticks(call_.args); }
  // Before the tiles of a head.
  void begin_head(Index b, Index h, const RowFacts&, StickGradientsWork&) const noexcept;
  // Whether something is left of a row of a group.
  bool counts(const RowGroup&, const StickGradientsWork&) const noexcept;
  // From the last tile to the first, while something is.
  void add_counts(const GateTile&, const FastTileRows&, StickGradientsWork&) const noexcept;
  // After that: what is left goes to the own value. g, dv: [][g_width], gradients of the output and of values.
  void give_rest(const FastRowWork&, const float* g, float* dv, StickGradientsWork&) const noexcept;
  // Whether scores of a group have gradients.
  bool has_gradients(const RowGroup&, Index number, Run keys,
                     const StickGradientsWork&) const noexcept;
  // Start values of weights.
  void open(const GateTile&, const FastTileRows&, StripStarts&, StickGradientsWork&) const noexcept;
  // s: of the rows of a group, tile_stride apart: p dP becomes the gradient of the score.
  void pull(const GateTile&, float* s, StickGradientsWork&) const noexcept;

 private:
  FastStickTile tile_of(const GateTile&, StickGradientsWork&) const noexcept;
  const FastCall& call_;
  const FastTileKernels& tiles_;
  Index g_width_;
};

}  // namespace posenc::v0::detail
