// SPDX-License-Identifier: Apache-2.0
// Gradients of rows of a table that are added to values (value_rows.h).
//
//   o_i = sum_j p_ij (v_j + t(i, j)):  s_ij += p_ij (g_i.t(i, j)),  d t += sum of p_ij g_i
//
// The products of g with the rows are found for a group of rows and the steps that it spans. Where all pairs read one
// row, they are a part of what the gradients of the scores are relative to, and the weights are summed until another row
// comes. Elsewhere the weights are summed by step first; with a step for each distance the product reads them itself.
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "kernels/attention/fast_tiles.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// One term and one head, of one thread.
struct ValueGradientWork {
  std::span<float> d_rows;  // [steps, and some behind][g_width]; empty: not wanted
  // [rows]: of the row that all pairs of a group read, by group: -1, none.
  std::span<float> kept, product;  // sum of weights; g times the row
  std::span<Index> kept_step, product_step;
};
struct ValueGradientsWork {
  std::span<ValueGradientWork> terms;
  std::span<float> products;  // [rows of a strip][width]: of g and rows
  Index width = 0;
  std::span<float> sums;  // of p by step
  std::span<std::int32_t> picks;
  std::span<float> less;  // of the rows of a strip
};

// A group of rows and a tile of keys. g, p and s: of its first row.
struct ValueGroup {
  const RowGroup& group;
  Index number;  // of the groups of the head
  Run keys;
  Index count;  // of the keys: those that are computed, in whole vectors
  const float *g, *p;
  float* s;
};
// Groups [first, end) against a tile of keys.
struct ValueTile {
  const RowGroup *first, *end;
  Index number;  // of the first group
  Run keys;
  const float *g, *p;  // of the first row; p is 0 behind the keys
};

class ValueGradients {
 public:
  // slices: of the keys of a head; parts: FastTermSums::parts.
  ValueGradients(const FastCall&, const FastTileKernels&, const AttentionGradients&, Index slices,
                 Index parts, CallArena&);
  ValueGradientsWork work(Index rows, CallArena&) const;
  // Parts of the pieces whose sums have a reasonable size.
  static Index most_parts(const FastCall&, const AttentionGradients&, Index slices) noexcept;

  bool none() const noexcept { return call_.value_rows.none(); }
  // Before the tiles of a head, and after them. g: of its first row.
  void begin_head(ValueGradientsWork&) const noexcept;
  void end_head(Index b, Index h, Index part, const float* g, std::span<const RowGroup>,
                ValueGradientsWork&) noexcept;
  // What the gradients of the scores of a group are relative to: `less`, and products of rows that all pairs read.
  const float* take_less(const ValueGroup&, const float* less, ValueGradientsWork&) const noexcept;
  // s += p times the other products.
  void add_slopes(const ValueGroup&, ValueGradientsWork&) const noexcept;
  void add_tile(const ValueTile&, ValueGradientsWork&) const noexcept;
  // To the caller's gradients, what pieces share.
  void finish() noexcept;

 private:
  struct Wanted {
    TensorView to{};        // empty: not wanted
    std::span<float> sums;  // [parts][slabs][steps][g_width]; empty: one piece owns each slab
  };
  struct Mixed;  // the rows of a tile whose pairs read several steps
  Index size(const ValueRowTerm& t) const noexcept { return t.steps() * g_width_; }
  void multiply(const ValueRowTerm&, const ValueGroup&, Index panel, float* to,
                Index width) const noexcept;
  const std::int32_t* steps_of_row(const ValueRowTerm&, const FastRow&, Run keys, const float* p,
                                   ValueGradientsWork&) const noexcept;
  void put_kept(ValueGradientWork&, const RowGroup&, Index number, const float* g) const noexcept;
  void keep(ValueGradientWork&, const ValueTile&, const RowGroup&, Index step) const noexcept;
  Mixed find_mixed(const ValueRowTerm&, const ValueTile&, ValueGradientWork&) const noexcept;
  void add_mixed(const ValueRowTerm&, const ValueTile&, const Mixed&, ValueGradientWork&,
                 ValueGradientsWork&) const noexcept;

  const FastCall& call_;
  const FastTileKernels& tiles_;
  Index g_width_, parts_;
  std::span<Wanted> wanted_;
};

}  // namespace posenc::v0::detail
