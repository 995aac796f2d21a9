// SPDX-License-Identifier: Apache-2.0
// A call backward: how it is cut, what is summed, and the memory of one thread.
#pragma once
#include "attention/fast/curve_gradients.h"
#include "attention/fast/gate_gradients.h"
#include "attention/fast/product_gradients.h"
#include "attention/fast/region_gradients.h"
#include "attention/fast/row_facts.h"
#include "attention/fast/row_gradients.h"
#include "attention/fast/stick_gradients.h"
#include "attention/fast/term_sums.h"
#include "attention/fast/value_gradients.h"
#include "attention/fast/weight_gradients.h"
#include "attention/fast/word_slopes.h"

namespace posenc::inline v0::detail {

// The work is cut into pieces: the heads of a group, or a part of them, against a slice of the keys, of which a piece
// owns the gradients. The cut is by the shape alone, so that the bits do not depend on the threads.
struct BackwardCut {
  explicit BackwardCut(const FastCall&, const FastTileKernels&);
  Index slices, slice_keys;  // of the keys; slices add to the same gradients of q
  Index pieces;              // B * G * head_parts * slices
};

// value_vectors is 0: the forward pass finds sums of weights only.
struct BackwardCall : FastCall {
  BackwardCall(const ReadyCall&, const LoweredCall&, const ConstHeads& d_out,
               const AttentionGradients&, CallArena&, const Executor&);

  const FastTileKernels& tiles;
  const WordSlopeKernels* slopes;  // null: q, k, v, weights and gradients are multiplied in float
  const AttentionGradients& gradients;
  const Index q_width, g_width;  // channels of q.k and V in whole vectors
  const BackwardCut cut;
  RowFacts facts;
  // Gradients of q as prepared by slices, [slices][B][H][Tq + rows][q_width]. Empty: there is one slice.
  std::span<float> q_sums;
  // Gradients of k and v by pieces, [pieces][slice keys and more][q_width + g_width]. Empty: all heads of a group are one
  // piece.
  std::span<float> key_sums;
  // Gradients of q, k and v are not initialised, and each number has one piece of work that writes it.
  bool writes = false;
  // Gradients of q and k as prepared, [B][T][heads][D]. Empty: they are the call's own.
  std::span<float> prepared_q, prepared_k;
  // [B][H][Tq]: q times its gradient, both without the factors of head and query. Empty: not wanted.
  std::span<double> along;
  std::span<double> along_terms;  // the same of products of terms, of which the head has no factor
  ProductGradients products;
  RowGradients row_gradients;
  GateGradients gate_gradients;
  StickGradients stick_gradients;
  FastTermSums terms;
  ValueGradients value_gradients;
  CurveGradients curve_gradients;
  WeightGradients weight_gradients;
  RegionGradients region_gradients;

  bool adds_to_q() const noexcept {
    return products.adds_to_q() || row_gradients.adds_to_q() || !gates.none();
  }
  // Whether something but products with whole rows may read tiles: along diagonals, or by pairs.
  bool reads_behind() const noexcept {
    return !args.terms.empty() || !terms.none() || passes_back();
  }
  // Gradients of k of a piece, those of v follow.
  float* key_sum(Index piece) const noexcept {
    return key_sums.data() + piece * padded_keys() * (q_width + g_width);
  }
  Index padded_keys() const noexcept { return cut.slice_keys + tiles.rows; }
  Index padded_rows() const noexcept { return Tq + tiles.rows; }
  Index row_at(Index b, Index h, Index i) const noexcept { return (b * H + h) * Tq + i; }
  float* q_sum(Index slice, Index b, Index h) const noexcept {
    return q_sums.data() + ((slice * B + b) * H + h) * padded_rows() * q_width;
  }
};

// One tile: groups of rows [first, end) of the work, of which the first and the last see some of the keys.
struct BackwardTile {
  const RowGroup *first, *end;
  Run keys;
  float *p, *s;  // of the first row

  Index first_row() const noexcept { return first->first; }
  Index rows() const noexcept { return end[-1].first + end[-1].count - first->first; }
  Index count() const noexcept { return keys.end - keys.begin; }
};

// Memory of one thread.
struct BackwardWork : FastRowWork {
  BackwardWork(const BackwardCall&, CallArena&);

  // Rows of one head, and more for the last group.
  std::span<float> q, g;  // [rows][width]: times scale and log2(e); times what the reference leaves
  std::span<float> less;  // [rows]
  std::span<float> factors;     // [rows]: of q, then of g
  std::span<double> reference;  // [rows]
  std::span<float> dq;          // [rows][q_width]; empty where the call has q_sums
  std::span<float> dk,
      dv;  // [keys of a slice and more][width]; of the piece where the call has key_sums
  std::span<float> keys, values;  // of a tile, packed
  std::span<float> key_rows;      // [tile_keys][q_width]
  std::span<float> p, s;          // a tile; a vector of zeros stands before its rows
  std::span<float> cap_slopes;    // of capped scores, as s lies
  std::span<float> products;      // q.k where numbers multiply it, as s lies
  std::span<float> diagonals;
  std::span<const void*> tokens;
  std::span<float> vector;    // of q
  std::span<double> content;  // gradient of q by products of terms
  RowGradientsWork row_gradients;
  ValueGradientsWork value_gradients;
  CurveGradientsWork curve_gradients;
  GateGradientsWork gate_gradients;
  StickGradientsWork stick_gradients;
  RegionGradientsWork regions;
  WordSlopeWork words;
};

// Where what tiles hold behind their keys ends: sums of diagonals read a vector more, which is 0 behind a whole tile.
Index end_of_rows(const BackwardCall&, Run keys) noexcept;

// Adds to gradients of q, k or v, or writes them.
void put_floats(const BackwardCall&, const Heads&, Index b, Run tokens, Index h, double factor,
                const float* x, Index width) noexcept;
// Gradients of the factors of heads and queries, and of the sink.
void add_factors(const BackwardCall&) noexcept;

}  // namespace posenc::v0::detail
