// SPDX-License-Identifier: Apache-2.0
// Gradients of functions of the distance (distance_curve.h), from the gradients s of the scores of a tile.
//
// Between two knots the network is a line, so all its gradients come from a few sums by piece:
//
//   sum of s,  sum of s x,  sum of s dx/dc,  sum of s dx/dL,   x = psi(delta) / below
//
// For each query and knot the first distance that reaches the knot is found once, in double as the exact engine computes
// x; the pairs of a row and a piece are then neighbours. A distance that meets a knot exactly is a piece of its own: a
// unit that is 0 there has the slope 1, whichever side it is positive on.
#pragma once
#include <span>

#include "attention/fast/work.h"
#include "kernels/attention/fast_curves.h"
#include "posenc/attention/attention.h"

namespace posenc::inline v0::detail {

// Sums of one piece.
struct CurvePiece {
  double s, x, by_c, by_limit;
};
// Of one head, of one thread: [curves][pieces].
struct CurveGradientsWork {
  std::span<CurvePiece> pieces;
};

class CurveGradients {
 public:
  // slices: of the keys of a head.
  CurveGradients(const FastCall&, const AttentionGradients&, Index slices, CallArena&);
  CurveGradientsWork work(CallArena&) const;

  // Why the gradients of a term are not computed here; empty: they are.
  static std::string_view why_not(const ReadyCall&, const Term&) noexcept;
  bool none() const noexcept { return curves_.empty(); }
  // Before all tiles. False: a number is not finite, or a row divides by one that is not positive.
  bool find_knots(const Executor&) noexcept;

  void begin_head(CurveGradientsWork&) const noexcept;
  // s: of rows that lie tile_stride apart.
  void add(const FastRow* row, const float* s, Index rows, Index stride, Run keys,
           CurveGradientsWork&) const noexcept;
  void end_head(Index b, Index h, Index slice, const CurveGradientsWork&) noexcept;
  // To the caller's gradients.
  void finish() noexcept;

 private:
  struct Curve {
    const DistanceCurve* curve = nullptr;
    TermGradient to{};
    Index most_pieces = 0, first_piece = 0;  // of the arrays of a head
    std::span<double> knots;                 // each once, ascending
    // [B][groups][Tq][2 knots]: the first distance with x >= knot, and the first with x > knot, as measure() counts.
    std::span<std::int32_t> ends;
    std::span<float> by_c;      // like the line of psi: its derivative by c
    std::span<double> numbers;  // gradients: in, in_bias, out, out_bias, table

    Index pieces() const noexcept { return 2 * static_cast<Index>(knots.size()) + 1; }
  };
  // Of one row of a head.
  struct Row;
  Row row_of(const Curve&, const FastRow&) const noexcept;
  void add_row(const Curve&, const Row&, const float* s, Run keys, CurvePiece*) const noexcept;
  void add_run(const Row&, const float* s, Index key, Index count, CurvePiece&) const noexcept;
  void find_ends(const Curve&, Index row) const noexcept;
  void pull(Curve&) noexcept;

  const FastCall& call_;
  const FastCurveKernels& kernels_;
  Index slices_, pieces_ = 0;
  std::span<Curve> curves_;     // whose gradients are wanted
  std::span<CurvePiece> kept_;  // [B][H][slices][curves][pieces]
};

}  // namespace posenc::v0::detail
