// SPDX-License-Identifier: Apache-2.0
// Products of a few vectors with a panel, and start values that are read of them (fast_strips.h): where tokens meet rows
// of a table, which of the products a pair reads is known by its place alone.
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Keys [at, at + count) that read the numbers from `first` on, one after the other, or only that one.
struct FastRun {
  Index at = 0, count = 0, first = 0;
  bool steps = false;
};

struct FastReadKernels {
  // to[r][n] = start[n] + sum_c a[r][c] b[c][n], n of `panels` panels; start null: 0. Rows of `to` and `a` lie to_row and
  // a_row apart, panels of b b_panel. By number of rows, as FastKernels::strip.
  void (*products[2])(float* to, Index to_row, const float* a, Index a_row, const float* b,
                      Index b_panel, Index panels, Index channels, const float* start) noexcept;
  // out[r][c] += sum_n a[r][n] b[n][c]. out: FastStrip::out, of `vectors` vectors of channels; b: [panels of channels][n]
  // [panel], a panel of channels b_panel after the other. By number of rows.
  void (*add_values[2])(float* out, const float* a, Index a_row, const float* b, Index b_panel,
                        Index vectors, Index count) noexcept;
  // Below, `count` is rounded up to whole vectors.
  float (*sum)(const float* x, Index count) noexcept;
  // to[j] += from[j]
  void (*add_slice)(float* to, const float* from, Index count) noexcept;
  // to[j] = x[j] + y[j]
  void (*add_slices)(float* to, const float* x, const float* y, Index count) noexcept;
  // to[j] += from[index[j]]
  void (*add_indexed)(float* to, const float* from, const std::int32_t* index,
                      Index count) noexcept;
  // to[r][j] += from[index[j - r]][j]. Rows of `to` and `from` lie to_row and from_row apart.
  void (*add_columns)(float* to, Index to_row, Index rows, const float* from, Index from_row,
                      const std::int32_t* index, Index count) noexcept;
  // to[r][j] += the number of row r that key j reads. Rows of `to` and numbers lie to_row and numbers_row apart. A vector
  // may be read and written behind a run and its numbers.
  void (*add_runs)(float* to, Index to_row, Index rows, const float* numbers, Index numbers_row,
                   const FastRun*, Index runs) noexcept;
  // The other way: sums of x[r][j] by the number that key j reads.
  void (*sum_runs)(float* sums, Index sums_row, Index rows, const float* x, Index x_row,
                   const FastRun*, Index runs) noexcept;
  // to[r][j] = from[r][j]
  void (*copy)(float* to, Index to_row, const float* from, Index from_row, Index rows,
               Index count) noexcept;

  // to[step[j]] += x[j], j < count. Steps count up, each by 1 at most.
  void (*sum_steps)(float* to, const std::int32_t* step, const float* x, Index count) noexcept;
  // to[n] = factor * from[n], n < count. False: one of them is not finite or beyond `most`.
  bool (*narrow)(float* to, const double* from, Index count, double factor, float most) noexcept;
  bool (*scale)(float* to, const float* from, Index count, double factor, float most) noexcept;
};
const FastReadKernels& fast_read_kernels(Isa);

}  // namespace posenc::v0::detail
