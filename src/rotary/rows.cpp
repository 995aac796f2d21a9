// SPDX-License-Identifier: Apache-2.0
#include "rotary/rows.h"
#include "core/shape.h"

#include <string>

#include "core/overlap.h"
#include "core/row_layout.h"
#include "phase/rows.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "rotary/plan_state.h"

namespace posenc::inline v0::detail {
namespace {

RowPlane plane_at(const TensorView& out, const Positions& p, const RowLayout& l, Index column,
                  Index pairs) {
  RowPlane r;
  r.step = l.step, r.copy = l.copy;
  r.dtype = out.dtype;
  r.token_stride = out.stride[0];
  r.batch_stride = p.count * out.stride[0];
  r.column_stride = out.stride[1];
  r.head_stride = pairs * l.step * out.stride[1];
  r.data = static_cast<std::byte*>(out.data) + column * out.stride[1] * size_of(out.dtype);
  return r;
}

void check_rows(const RotarySpec& spec, Index columns, const Positions& p, const TensorView& out,
                std::string_view who) {
  check_positions(p, who);
  if (p.axes != spec.axes())
    refuse_field(who, "positions", "must have " + detail::axes_text(spec.axes()), Index{p.axes});
  const Index rows = p.batch * p.count;
  if (out.rank != 2 || out.shape[0] != rows || out.shape[1] != columns)
    detail::refuse_shape(who, "rows", "must be " + detail::sizes_text({rows, columns}), out);
  if (!is_float(out.dtype))
    refuse_field(who, "rows", "must be f64, f32, f16 or bf16", dtype_name(out.dtype));
  if (out.device != Device::cpu) refuse(who, "memory must be the CPU's");
  check_no_self_overlap(who, {"rows", memory_of(out)});
  check_positions_apart(who, p, {{"rows", memory_of(out)}});
}

}  // namespace

void spec_rows(const RotarySpec& spec, std::span<const RotaryTables> blocks, Isa isa,
               const Positions& p, const TensorView& out, TableLayout layout,
               const Executor& executor, std::string_view who) {
  Index columns = 0;
  for (const RotaryTables& t : blocks) columns += row_layout(layout, t.heads * t.pairs).columns;
  const Index rows = p.batch * p.count;
  check_rows(spec, columns, p, out, who);
  if (rows == 0 || columns == 0) return;
  const RowKernels& kernels = row_kernels(isa);
  const bool stream = rows * columns * size_of(out.dtype) > kStreamRowBytes;
  split_rows(executor, rows, columns, [&](Index begin, Index end) noexcept {
    Index column = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const RotaryTables& t = blocks[b];
      const RowLayout l = row_layout(layout, t.heads * t.pairs);
      const RowPlane cos = plane_at(out, p, l, column, t.pairs);
      const RowPlane sin = plane_at(out, p, l, column + l.sine, t.pairs);
      column += l.columns;
      if (spec.precision == Precision::exact) {
        const PhaseTurns turns{t.wide_hi, t.wide_lo, t.per_unit, t.heads, t.axes, t.pairs, t.gain};
        exact_rows(kernels, turns, p, cos, sin, stream, begin, end);
      } else {
        compat_rows(spec.blocks[b].spectrum, spec.precision, p, cos, sin, begin, end);
      }
    }
  });
}

}  // namespace posenc::v0::detail

namespace posenc::inline v0 {

void RotaryPlan::rows(const Positions& positions, const TensorView& out,
                      const Executor& executor) const {
  const detail::RotaryPlanState& s = *state_;
  const DType want = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  if (out.dtype != want)
    refuse_field("rotary", "rows", "must be " + std::string(dtype_name(want)),
                 dtype_name(out.dtype));
  if (!s.lengths.unbounded()) {
    detail::check_positions(positions, "rotary");  // before they are read
    detail::check_length("rotary", positions, s.lengths);
  }
  detail::spec_rows(s.spec, s.tables, s.isa, positions, out, TableLayout::half, executor, "rotary");
}

}  // namespace posenc::v0
