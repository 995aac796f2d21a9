// SPDX-License-Identifier: Apache-2.0
// Gradients of gates and of their table (gates.h).
//
//   d level_m += s_ij w_m(c_ij),  d c_ij = s_ij (level above - level below)
//   d g_t = sum of d c_ij over the keys j up to t,  d (q.k) += d g_t g_t (1 - g_t) ratio
//
// Gates with products of their own have d (x.y) = d g_t g_t (1 - g_t) apart, which is multiplied with both vectors.
//
// Tiles of keys are passed from the first to the last, but counts begin at the last key. So they are summed once before,
// from the last tile to the one where all rows of a group have reached the last level. From there on, gates of a tile are
// taken from what is left of them. Tiles before it pass nothing on: all their pairs read the last level.
#pragma once
#include <span>

#include "attention/fast/vector_gradients.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

// One head, of one thread.
struct GateGradientsWork {
  std::span<float> levels, d_levels;  // [rows][level_stride]
  std::span<double> count;            // [rows]: of the keys from a tile on
  std::span<double> running;          // [rows]: what keys before a tile pass on
  std::span<Index> edge;              // by group: the first key of the tiles in which it counts
  std::span<Index> keys;              // by group: of the last tile; -1: it does not count there
  std::span<float> start, slope, rise, at;  // of a tile
  std::span<Index> whole;                   // [rows of a tile]
  std::span<float> vectors;                 // [rows of a strip][channels of q]
  std::span<float> table, d_table;          // [levels, and more][q_width]
  std::span<float> d_x;                     // [rows][q_width]: gradients of the vectors of levels
  std::span<float> sums;                    // of d_levels, as tiles lie
  // Of products that gates have.
  std::span<float> q;             // [rows][width]: times the gates' scale and log2(e)
  std::span<float> keys_of_tile;  // packed
  std::span<float> y;             // [tile_keys][width]: keys that gates have
  std::span<float> product;       // of a tile: gradients of the products
  std::span<float> d_q, d_y;      // [rows][width], [keys and more][width]
  std::span<float> level_rows;    // [rows][q_width]: the vectors of levels
};
// Rows of a head and a tile of keys. key_rows and d_k: [][q_width], of the first key.
struct GateProductTile {
  Index first, rows;
  Run keys;
  const float* key_rows;
  float* d_k;
};

// Rows of a group and a tile of keys; `first`: row of the tile.
struct GateTile {
  const RowGroup* group;
  Index number;  // of the group
  Index first;
  Run keys;
  const FastTileKeys* packed;
};

class GateGradients {
 public:
  GateGradients(const FastCall&, const FastTileKernels&, const AttentionGradients&, Index q_width,
                CallArena&);
  GateGradientsWork work(Index rows, CallArena&) const;

  bool none() const noexcept { return call_.gates.none(); }
  // Before the tiles of a head.
  void begin_head(Index b, Index h, const FastRowWork&, GateGradientsWork&) const noexcept;
  // Whether a group counts in tiles before one that begins at `first`.
  bool counts(const RowGroup&, const GateGradientsWork&) const noexcept;
  // From the last tile to the first, while a group counts.
  void add_counts(const GateTile&, const FastTileRows&, GateGradientsWork&) const noexcept;
  // Start values with levels. True: they are those of `w`; else the last level is added to what they are relative to.
  bool open(const GateTile&, const FastTileRows&, StripStarts&, GateGradientsWork&) const noexcept;
  // s: of the rows of a group, tile_stride apart. Gates add to it what comes back to q.k.
  void pull(const GateTile&, float* s, GateGradientsWork&) const noexcept;
  // Keys that gates have: where one lies, and those of a tile. null: no query sees the key.
  bool has_keys() const noexcept { return !none() && call_.gates.has_keys(); }
  const void* key(Index b, Index h, Index j) const noexcept;
  void take_keys(std::span<const void* const> tokens, Index count,
                 GateGradientsWork&) const noexcept;
  // Before `pull` of the groups of a tile, and after it.
  void begin_tile(Index rows, Index keys, GateGradientsWork&) const noexcept;
  void add_products(const GateProductTile&, GateGradientsWork&) const noexcept;
  // After them: q of the rows, times scale and log2(e).
  void end_head(Index b, Index h, const float* q, GateGradientsWork&) noexcept;
  // to[c] += gradient of q of row i, without the factor of the query.
  void add_content(const GateGradientsWork&, Index i, double* to) const noexcept;
  // To the table, which pieces of work share, in one order.
  void finish(const Executor&) noexcept;

 private:
  FastGateTile tile_of(const GateTile&, GateGradientsWork&, Index* own) const noexcept;
  Index levels() const noexcept { return call_.gates.last() + 1; }
  bool has_products() const noexcept { return !none() && call_.gates.has_products(); }
  // Of the products: that of keys of the call is theirs.
  Index width() const noexcept {
    return has_keys() ? whole_vectors(call_.gates.channels(), tiles_.lanes) : q_width_;
  }
  void copy_table(Index b, Index h, GateGradientsWork&) const noexcept;
  void make_products(Index rows, GateGradientsWork&, CallArena&) const;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  Index q_width_;
  TensorView to_{};             // gradient of the table; empty: not wanted
  std::span<float> kept_;       // [B][H][levels][D]
  VectorGradient query_, key_;  // that the term comes with
};

}  // namespace posenc::v0::detail
