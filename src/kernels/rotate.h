// SPDX-License-Identifier: Apache-2.0
// The rotation kernels: arguments and the table of entries. A kernel is arithmetic on pointers and
// strides: no policy, no allocation, nothing thrown. It turns tokens [begin, end) of batch *
// tokens.
#pragma once
#include "core/memory_way.h"
#include "posenc/core/isa.h"
#include "posenc/rotary/plan.h"

namespace posenc::detail {

// Channels [begin, end) that no block turns; copied when the output is another tensor.
struct Gap {
  Index begin = 0, end = 0;
};

// Where element [batch, token, head, column] of the caller's cosines (or sines) lies, in elements.
struct RowView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Index batch_stride = 0, token_stride = 0, head_stride = 0, column_stride = 1;
};

// Rows of cosine and sine instead of the phase.
struct RowSource {
  enum class Kind : std::uint8_t {
    none,    // table-free
    plan,    // both in one row, a block after the other, gain in: RotaryPlan::rows, RotaryTable
    caller,  // anybody's: a pair's two members may differ, never assumed orthonormal
  } kind = Kind::none;
  TableLayout layout = TableLayout::half;
  RowView cos, sin;
  const Index* block_column = nullptr;  // plan: first column of each block in layout half
  // Row of each token by position; null: row = token. With several axes (plan only) pair k of
  // block n reads the row of its own stream, pair_axis[n][k]; null: the first.
  const Positions* index = nullptr;
  const std::int32_t* const* pair_axis = nullptr;
};

inline constexpr RowSource kNoRows{};

// A tensor of `out` is that of `in` exactly when their data are the same. Small, and made of
// pointers: it is cleared for each call.
struct RotateCall {
  const QK* in = nullptr;
  const QK* out = nullptr;
  const RotaryTables* blocks = nullptr;
  const Gap* gaps = nullptr;
  const Positions* positions = nullptr;  // null with rows
  const RowSource* rows = &kNoRows;
  std::int32_t block_count = 0, gap_count = 0;
  RotateMode mode = RotateMode::forward;
  MemoryWay way = MemoryWay::as_it_lies;
  bool large = false;   // tensors lie in memory rather than in the cache: its way counts
  bool stream = false;  // and out is far larger than the cache: write around it
};

using RotateKernel = void (*)(const RotateCall&, Index begin, Index end);

// The entry of the table for one dtype in the instruction set in use, or in the replaced form.
RotateKernel rotate_kernel(DType, Isa);

// The same in the arithmetic of the program that spec.precision names.
void rotate_compat(const RotateCall&, const RotarySpec&, Index begin, Index end) noexcept;

}  // namespace posenc::detail
