// SPDX-License-Identifier: Apache-2.0
// What a plan prepares, and the checks that its calls share.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/rotate.h"
#include "posenc/rotary/plan.h"

namespace posenc {

struct RotaryPlan::State {
  RotarySpec spec;
  DType dtype = DType::f32;
  Isa isa = Isa::scalar;  // in use when the plan was made
  detail::RotateKernels kernels{};
  detail::AccessPattern access = detail::AccessPattern::sequential;
  Index element_size = 4;
  Index axes = 1;
  Index heads = 1;  // of the spectra; more than 1: tensors must have just these
  Index row_columns = 0;
  Index head_bytes = 0;
  std::int32_t block_count = 0, gap_count = 0;
  bool decays = false;
  std::vector<RotaryTables> tables;
  std::vector<Index> block_column;
  std::vector<detail::Gap> gaps;
  // What the tables point into.
  std::vector<std::uint32_t> turns;
  std::vector<std::uint64_t> wide;
  std::vector<double> per_unit;
};

namespace detail {

// Throws [rotary]: dtype, head_dim, shapes that disagree, read-only outputs, overlap.
// Returns batch * tokens, 0 when there is nothing to do.
Index check_tensors(const RotaryPlan::State&, const QK& in, const QK& out);
// Throws [rotary]: rows that do not fit in shape, dtype or layout, rows outside a cache.
void check_caller_rows(const RotaryPlan::State&, const QK&, const CallerRows&);
RowView row_view(const TensorView&, bool indexed) noexcept;
// Throws [rotary]: axes, count or batch that do not fit, not i32, i64 or f64, not finite.
// Returns the positions to read: those given, or a copy in `one_row`, whose row serves the batch.
// (Positions of one token are read before it is written: they may lie anywhere.)
void check_positions_apart(const QK& out, const Positions&, Index tokens);
// Throws [rotary]: cos and sin, which are read for every head, lie under an output.
void check_rows_apart(const QK& out, const TensorView& rows, std::string_view name);
const Positions& check_positions(const RotaryPlan::State&, const QK&, const Positions&,
                                 std::optional<Positions>& one_row);

// Rows looked up by position, for tables: cos and sin of position p in row p of `rows` (kind plan).
// The caller has checked that every position has a row, and filled in where the rows lie.
void apply_lookup(const RotaryPlan::State&, const QK& in, const QK& out, RowSource& rows,
                  RotateMode, const Executor&);
void run_rotation(const RotaryPlan::State&, RotateCall&, Index tokens, const Executor&);

}  // namespace detail
}  // namespace posenc
