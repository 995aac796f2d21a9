// SPDX-License-Identifier: Apache-2.0
// Rows of cosine and sine for plans, tables and the public functions.
#pragma once
#include <cstdint>

#include "core/parallel.h"
#include "kernels/rows.h"
#include "posenc/core/executor.h"
#include "posenc/core/isa.h"
#include "posenc/phase.h"
#include "posenc/positions.h"

namespace posenc::inline v0::detail {

// frequency / 2 pi of [heads, axes, pairs] as in `Turns`, each part an array of its own.
struct PhaseTurns {
  const std::uint64_t *hi = nullptr, *lo = nullptr;
  const double* per_unit = nullptr;
  Index heads = 1, axes = 1, pairs = 0;
  double gain = 1;
};

// Where the cosines (or sines) go: pair i of head h of row [batch, token] at column step * i, and
// once more at + copy unless that is 0. Strides in elements. data null: not wanted.
struct RowPlane {
  void* data = nullptr;
  DType dtype = DType::f32;
  Index batch_stride = 0, token_stride = 0, head_stride = 0, column_stride = 1;
  Index step = 1, copy = 0;
};

// |position| for which the upper 64 bits of the turns suffice, at 2^-64 of a turn (3.4e-19 rad)
// each: 9.2e-11 in float32 work, 1.4e-18 in double work.
inline constexpr std::uint64_t kNear32 = std::uint64_t{1} << 28, kNear64 = 4;

// phase[i] += position x turns of pairs [first, first + n) of a head, summed over the axes; `at`:
// element of the position of the first axis. 2^64 is a turn.
void add_phases(const RowKernels&, const PhaseTurns&, const Positions&, Index at, Index head,
                Index first, Index n, std::uint64_t near, std::uint64_t* phase) noexcept;

// Rows [begin, end) of batch x tokens. Positions have at least `axes` streams.
void exact_rows(const RowKernels&, const PhaseTurns&, const Positions&, const RowPlane& cos,
                const RowPlane& sin, bool stream, Index begin, Index end) noexcept;
// The same by compat_phase (rotary/compat.h).
void compat_rows(const Spectrum&, Precision, const Positions&, const RowPlane& cos,
                 const RowPlane& sin, Index begin, Index end) noexcept;

// Most streams that the compatibility precisions take.
inline constexpr Index kMaxCompatAxes = 16;

// Throws [who]: real positions that are not finite or beyond 2^62.
void check_positions(const Positions&, std::string_view who);

// Splits rows at fixed places, so that results do not depend on the number of threads.
// work(begin, end) must be noexcept; elements: written a row.
template <class Work>
void split_rows(const Executor& executor, Index rows, Index elements, const Work& work) {
  constexpr Index kBlock = 1024;  // rows; a multiple of those between anchors
  // One more thread or all: a block is worth a task.
  const Index most = rows * elements < kValuesPerTask ? 1 : rows;
  parallel_blocks(executor, rows, kBlock, most,
                  [&](Index, Index begin, Index end, Index) noexcept { work(begin, end); });
}

}  // namespace posenc::v0::detail
