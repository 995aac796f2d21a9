// SPDX-License-Identifier: Apache-2.0
// What a plan prepares, and the checks that its calls share.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/state_access.h"
#include "kernels/rotate.h"
#include "posenc/rotary/plan.h"
#include "positions/length.h"

namespace posenc::inline v0::detail {

struct RotaryPlanState {
  RotarySpec spec;
  DType dtype = DType::f32;
  Isa isa = Isa::scalar;  // in use when the plan was made
  RotateKernels kernels{};
  AccessPattern access = AccessPattern::sequential;
  Index element_size = 4;
  Index axes = 1;
  Index heads = 1;  // of the spectra; more than 1: tensors must have just these
  Index row_columns = 0;
  Index head_bytes = 0;
  std::int32_t block_count = 0, gap_count = 0;
  bool decays = false;
  bool refuses_lengths = true;  // outside the range of the spec, or of a table's rows
  LengthRange lengths;          // that calls may tell; unbounded where the plan allows all
  std::vector<RotaryTables> tables;
  std::vector<Index> block_column;
  std::vector<Gap> gaps;
  // What the tables point into.
  std::vector<std::uint32_t> turns;
  std::vector<std::uint64_t> wide;
  std::vector<double> per_unit;
};

// The kernels take what they read and what they write as one type, so that a call in place is one
// object (&in == &out) and costs no copy. They write to `out` alone: this is the only cast.
inline QK kernel_view(const ConstQK& x) noexcept {
  const auto view = [](const ConstHeads& h) {
    return Heads{const_cast<void*>(h.data),
                 h.batch,
                 h.tokens,
                 h.heads,
                 h.dim,
                 h.batch_stride,
                 h.token_stride,
                 h.head_stride,
                 h.dim_stride,
                 h.dtype};
  };
  return {view(x.q), view(x.k)};
}
// Throws [rotary]: neither q nor k, dtype, head_dim, shapes that disagree, overlap.
// Returns batch * tokens, 0 when there is nothing to do.
Index check_tensors(const RotaryPlanState&, const QK& in, const QK& out);
// Throws [rotary]: rows that do not fit in shape, dtype or layout, rows outside a cache.
void check_caller_rows(const RotaryPlanState&, const QK&, const CallerRows&);
RowView row_view(const ConstTensorView&, bool indexed) noexcept;
// Throws [rotary]: axes, count or batch that do not fit, not i32, i64 or f64, not finite.
// Returns the positions to read: those given, or a copy in `one_row`, whose row serves the batch.
// (Positions of one token are read before it is written: they may lie anywhere.)
void check_positions_apart(const QK& out, const Positions&, Index tokens);
// Throws [rotary]: cos and sin, which are read for every head, lie under an output.
void check_rows_apart(const QK& out, const ConstTensorView& rows, std::string_view name);
const Positions& check_positions(const RotaryPlanState&, const QK&, const Positions&,
                                 std::optional<Positions>& one_row);
// Throws [rotary]: positions of a length for which the plan does not hold. A shift is no position.
inline void check_lengths(const RotaryPlanState& s, const Positions& p, RotateMode mode) {
  if (mode != RotateMode::shift) check_length("rotary", p, s.lengths);
}

// Rows looked up by position, for tables: cos and sin of position p in row p of `rows` (kind plan).
// The caller has checked that every position has a row, and filled in where the rows lie.
void apply_lookup(const RotaryPlanState&, const QK& in, const QK& out, RowSource& rows, RotateMode,
                  const Executor&);
// What has passed all checks, `tokens` of it.
void rotate(const RotaryPlanState&, const QK& in, const QK& out, const Positions&, Index tokens,
            RotateMode, const Executor&);
void run_rotation(const RotaryPlanState&, RotateCall&, Index tokens, const Executor&);

}  // namespace posenc::v0::detail
