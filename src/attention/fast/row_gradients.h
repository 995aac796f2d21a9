// SPDX-License-Identifier: Apache-2.0
// Gradients of terms that read rows of a table (row_terms.h), from the gradients s of the scores of a tile.
//
//   query: d x_i += sum_j s_ij t(i, j),  d t += sum of s_ij x_i
//   key:   d y_j += sum_i s_ij t(i, j),  d t += sum of s_ij y_j
//
// s is summed by step first, for each query or key; then both are products. With a step for each distance these read s
// itself, one number further along from row to row.
#pragma once
#include <span>

#include "attention/fast/vector_gradients.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

// One term and one head, of one thread.
struct RowGradientWork {
  std::span<float> rows;     // [steps, and some before and behind][width]: of the table
  std::span<float> d_rows;   // the same: their gradients; empty: not wanted
  std::span<float> d_x;      // [rows of queries][width], or of keys that the term comes with
  std::span<float> y;        // [tile_keys][width]: such keys of a tile
  Index y_first = -1;        // the first key of that tile
  std::span<float> classes;  // [rows of queries][RowClasses::width]: sums of s
};
struct RowGradientsWork {
  std::span<RowGradientWork> terms;
  std::span<float> sums;  // of s by step
  std::span<std::int32_t> picks;
  std::span<FastRun> runs;
};

// Rows of one head and a tile of keys.
struct RowTile {
  Index first;  // row of the head
  const FastRow* row;
  const float* s;  // [rows][tile_stride]; 0 where a pair is hidden, before a row and behind it
  Index rows;
  Run keys;
  const float* key_rows;  // [keys][q_width]
  float* d_k;             // of the first key, times log2(e)
};

class RowGradients {
 public:
  RowGradients(const FastCall&, const FastTileKernels&, const AttentionGradients&, Index q_width,
               CallArena&);
  RowGradientsWork work(Index rows, CallArena&) const;

  bool none() const noexcept { return call_.rows.none(); }
  bool adds_to_q() const noexcept;
  // Before the tiles of a head, and after them.
  void begin_head(Index b, Index h, RowGradientsWork&) const noexcept;
  // Sums by class become gradients, before add_content.
  void close_tiles(const FastRowWork&, RowGradientsWork&) const noexcept;
  void end_head(Index b, Index h, const RowGradientsWork&) noexcept;
  void add(const RowTile&, const FastRowWork&, RowGradientsWork&) const noexcept;
  // to[c] += gradient of q of row i, without the factor of the query.
  void add_content(const RowGradientsWork&, Index i, double* to) const noexcept;
  // To the tables that pieces of work share, in one order.
  void finish(const Executor&) noexcept;

 private:
  struct Wanted {
    TensorView to{};         // empty: not wanted
    std::span<float> kept;   // [B][H][steps][channels]; empty: one piece of work owns each slab
    VectorGradient vectors;  // that the term comes with
  };
  Index width(const RowTerm&) const noexcept;
  float* at_step(const RowTerm&, std::span<float>, Index step) const noexcept;
  void add_query(const RowTerm&, const RowTile&, const RowTermWork&, RowGradientWork&,
                 RowGradientsWork&) const noexcept;
  void add_classes(const RowTerm&, const RowTile&, RowGradientWork&,
                   RowGradientsWork&) const noexcept;
  // Of some rows, which `sums` of w has by step from `first` to `last`.
  struct SummedRows {
    Index row, rows, first, last;
  };
  void clear_sums(const SummedRows&, RowGradientsWork&) const noexcept;
  float& sum_at(const SummedRows&, Index row, Index step, RowGradientsWork&) const noexcept;
  void multiply_sums(const RowTerm&, const SummedRows&, const RowTermWork&, RowGradientWork&,
                     RowGradientsWork&) const noexcept;
  void add_each(const RowTerm&, const RowTile&, const float* x, RowGradientWork&) const noexcept;
  void add_keys(const RowTerm&, const RowTile&, const PackedKeys&, RowGradientWork&,
                RowGradientsWork&) const noexcept;
  void take_own_keys(const RowTerm&, const RowTile&, const PackedKeys&,
                     RowGradientWork&) const noexcept;
  const std::int32_t* steps_of_row(const RowTerm&, const RowTile&, Index row,
                                   RowGradientsWork&) const noexcept;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  Index q_width_;
  std::span<Wanted> wanted_;
};

}  // namespace posenc::v0::detail
