// SPDX-License-Identifier: Apache-2.0
// Arguments that kernels of several kinds take: where rows of cosine and sine lie, and where the
// coefficients of a rotation come from. Plain structs of pointers, strides and numbers.
#pragma once
#include <cstdint>

#include "core/element.h"
#include "posenc/core/positions.h"
#include "posenc/core/rotation.h"

namespace posenc::inline v0::detail {

// Where element [batch, token, head, column] of the caller's rows lies, in elements.
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

// Element of `v` (cos or sin of `r`) at which the row of a token begins.
[[gnu::always_inline]] inline Index row_offset(const RowSource& r, const RowView& v, Index batch,
                                               Index token, Index head) noexcept {
  const Index at = r.index != nullptr ? integer_position(*r.index, 0, batch, token) * v.token_stride
                                      : batch * v.batch_stride + token * v.token_stride;
  return at + head * v.head_stride;
}

// What the coefficients of one block are made of: its phase, or rows. `block` is its number in the
// plan, which picks its columns of the plan's rows.
struct CoefficientSource {
  const RotaryTables* tables = nullptr;
  const RowSource* rows = &kNoRows;
  Index block = 0;
  RotateMode mode = RotateMode::forward;
};

}  // namespace posenc::v0::detail
