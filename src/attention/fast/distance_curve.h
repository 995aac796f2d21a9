// SPDX-License-Identifier: Apache-2.0
// A DistanceMlpTerm (FIRE) as start values: scale mlp(psi(delta) / below), below = psi(max(p_i, L)) + epsilon. The
// network is a piecewise linear function of its input, and psi of whole distances is a line, so a row is a few pieces
// a u + b of that line.
#pragma once
#include <optional>
#include <span>

#include "attention/call/ready_call.h"
#include "attention/call/visible_runs.h"
#include "posenc/attention/term.h"

namespace posenc::inline v0::detail {

class DistanceCurve {
 public:
  // Arrays of the term become doubles; the arena must outlive it.
  DistanceCurve(const ReadyCall&, const DistanceMlpTerm&, CallArena&);

  // to[j - keys.begin] += the number of key j, times log2(e), in double.
  void add(Index b, Index h, Index i, Index row, Run keys, double* to) const noexcept;
  // The same, in float, written. False: positions do not count up, or a number is not within `most`; `to` may hold
  // anything then.
  bool write(Index b, Index h, Index i, Index row, Run keys, float most, float* to) const noexcept;

 private:
  struct Row {
    double c, below, inverse;
  };
  Row row_of(Index b, Index h, Index i) const noexcept;
  void make_pieces(CallArena&);
  void make_lines(CallArena&);
  void find_ends(CallArena&);
  double value(Index h, double x) const noexcept;
  static bool write_piece(double slope, double level, const Row&, const float* u, Index count,
                          float most, float* to) noexcept;
  bool write_part(const double* slope, const double* level, const Row&, const float* u, Index count,
                  bool falls, float most, float* to) const noexcept;
  bool write_ends(const double* slope, const double* level, const Row&, const float* u, Index near,
                  Index step, Index count, const Index* ends, float most, float* to) const noexcept;

  const ReadyCall* call_;
  const DistanceMlpTerm* term_;
  const AxisView* axis_;
  Index units_, batches_, groups_;
  std::span<double> in_, in_bias_, out_, out_bias_;  // out: [H][units], out_bias: [H]
  std::span<double> knots_;                          // of x, ascending
  std::span<double> slopes_, levels_;  // [H][knots + 1]: scale log2(e) mlp(x) = slope x + level
  std::span<float> psi_;               // [batches * groups][distances], entry n of high_ - n
  std::span<double> below_;            // [B][groups][Tq]
  // [B][groups][Tq][knots]: the first distance whose input reaches a knot.
  std::span<Index> ends_;
  bool has_lines_ = false;
  Index high_ = 0, size_ = 0;
};

}  // namespace posenc::v0::detail
