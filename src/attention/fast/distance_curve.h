// SPDX-License-Identifier: Apache-2.0
// A DistanceMlpTerm (FIRE) as start values: scale mlp(psi(delta) / below), below = psi(max(p_i, L)) + epsilon. The
// network is a piecewise linear function of its input, and psi of whole distances is a line, so the numbers of a row and
// a block of keys are a line in psi that turns at the few knots between them. Gradients: curve_gradients.h.
#pragma once
#include <optional>
#include <span>

#include "attention/call/ready_call.h"
#include "attention/call/visible_runs.h"
#include "attention/fast/fast_row.h"
#include "kernels/attention/fast_curves.h"
#include "posenc/attention/term.h"

namespace posenc::inline v0::detail {

class DistanceCurve {
 public:
  // Arrays of the term become doubles; the arena must outlive it.
  DistanceCurve(const ReadyCall&, const DistanceMlpTerm&, CallArena&);

  const DistanceMlpTerm& term() const noexcept { return *term_; }
  Index units() const noexcept { return units_; }
  // Slabs of the table: [batches][groups].
  Index groups() const noexcept { return groups_; }
  Index slabs() const noexcept { return batches_ * groups_; }
  Index slab(Index b, Index h) const noexcept;
  struct Unit {
    double in, in_bias, out;
  };
  Unit unit(Index h, Index u) const noexcept;
  // Of x, ascending; and a number between knot n - 1 and knot n.
  std::span<const double> knots() const noexcept { return knots_; }
  static double inside(std::span<const double> knots, std::size_t n) noexcept;

  // Whether psi is a line by distance: numbers are finite, and the positions of keys count up. Below, for these.
  bool is_line() const noexcept { return has_lines_; }
  const float* line() const noexcept { return psi_.data(); }
  Index line_numbers() const noexcept { return static_cast<Index>(psi_.size()); }
  // The same entries of another line: dpsi/dc.
  void fill_slopes(std::span<float> to) const noexcept;
  // The entry of key 0 in the line, and its distance; which row of [B][groups][Tq] this is.
  struct Place {
    Index row, entry, near;
  };
  Place place(Index b, Index h, Index i, Index key_row) const noexcept;
  // x = psi / below of a row, and d below/dc, d below/dL.
  struct Below {
    double value, by_c, by_limit;
  };
  Below below_of_row(Index row) const noexcept;
  double scale_of_row(Index row) const noexcept;  // c
  double psi(double c, double distance) const noexcept;
  // x grows with the distance, without its sign unless the term keeps it: these go from least() on.
  bool keeps_sign() const noexcept { return term_->keep_sign; }
  Index least() const noexcept;
  Index distances() const noexcept;  // from the least to the largest

  // to[j - keys.begin] += the number of key j, times log2(e), in double.
  void add(Index b, Index h, Index i, Index row, Run keys, double* to) const noexcept;
  // The same of rows of one head, in float, written `stride` apart: whole vectors. piece: of each row, where the search
  // begins. False: positions do not count up, or a number is not within `most`; `to` may hold anything then.
  bool write(std::span<const FastRow> rows, Run keys, float most, float* to, Index stride,
             Index* piece) const noexcept;
  // FastRow::entry, for `write`.
  Index entry(Index b, Index i, Index key_row) const noexcept;

 private:
  struct Row {
    double c, below, inverse;
  };
  Row row_of(Index b, Index h, Index i) const noexcept;
  void make_pieces(CallArena&);
  void make_lines(CallArena&);
  template <class F>
  void each_entry(const F&) const noexcept;
  void narrow(CallArena&);
  double value(Index h, double x) const noexcept;

  const ReadyCall* call_;
  const DistanceMlpTerm* term_;
  const AxisView* axis_;
  Index units_, batches_, groups_;
  std::span<double> in_, in_bias_, out_, out_bias_;  // out: [H][units], out_bias: [H]
  std::span<double> knots_;                          // of x, ascending
  std::span<double> slopes_, levels_;  // [H][knots + 1]: scale log2(e) mlp(x) = slope x + level
  std::span<float> psi_;               // [batches * groups][distances], entry n of high_ - n
  std::span<double> below_;            // [B][groups][Tq]
  // In float: 1 / below, 0 where `write` cannot use it; knots, slopes and levels, and by how much a slope grows at a knot.
  std::span<float> inverse_, narrow_knots_, narrow_slopes_, narrow_levels_, more_;
  const FastCurveKernels* kernels_;
  bool has_lines_ = false;
  Index high_ = 0, size_ = 0;
};

}  // namespace posenc::v0::detail
