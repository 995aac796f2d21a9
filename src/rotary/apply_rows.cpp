// SPDX-License-Identifier: Apache-2.0
// Turning by rows of cosine and sine: the plan's own, or anybody's.
#include <string>

#include "core/element.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"
#include "positions/shared_row.h"
#include "rotary/plan_state.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

const Heads& shape_of(const QK& x) noexcept {
  return x.q.data != nullptr ? x.q : x.k;
}

void check_rows_dtype(const RotaryPlanState& s, const ConstTensorView& v) {
  const bool fits =
      s.dtype == DType::f64 ? v.dtype == DType::f64 : v.dtype == DType::f32 || v.dtype == s.dtype;
  if (!fits)
    refuse("rotary",
           s.dtype == DType::f64 ? std::string("cos and sin must be f64")
                                 : "cos and sin must be f32 or " + std::string(dtype_name(s.dtype)),
           dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse("rotary", "memory must be the CPU's");
}

// [tokens, C], [batch, tokens, C], [batch, tokens, heads, C], or [positions, C] with an index.
void check_rows_shape(const ConstTensorView& v, const Heads& h, Index columns, bool indexed) {
  const auto size = [&](int i) { return v.shape[static_cast<std::size_t>(i)]; };
  bool fits = v.rank >= 2 && v.rank <= 4 && size(v.rank - 1) == columns;
  if (indexed)
    fits = fits && v.rank == 2;
  else if (v.rank == 2)
    fits = fits && size(0) == h.tokens;
  else
    fits = fits && size(0) == h.batch && size(1) == h.tokens;
  if (!fits)
    detail::refuse_shape(
        "rotary",
        indexed ? "with an index cos and sin must be [positions, " + std::to_string(columns) + "]"
                : "cos and sin must be [tokens, C], [batch, tokens, C] or [batch, tokens, "
                  "heads, C] with C = " +
                      std::to_string(columns) + " and the tensors' sizes",
        v);
}

// Given by its memory or its size. For no tokens an empty index cannot be told from none: rows
// [n, C] of any n fit.
bool has_index(const CallerRows& rows, const Heads& h) noexcept {
  return rows.index.data != nullptr || rows.index.count != 0 ||
         (h.tokens == 0 && rows.cos.rank == 2);
}

void check_index(const Positions& p, const Heads& h, Index rows) {
  if (p.type != DType::i64 && p.type != DType::i32)
    refuse("rotary", "rows are numbered by i64 or i32", dtype_name(p.type));
  if (p.axes != 1) refuse_field("rotary", "index", "must have one axis", Index{p.axes});
  if (p.count != h.tokens)
    refuse_field("rotary", "index",
                 "must have a row number for each of the " + std::to_string(h.tokens) + " tokens",
                 p.count);
  if (p.batch != h.batch && p.batch != 1)
    refuse_field("rotary", "index",
                 "must have one row, or one for each of the batch of " + std::to_string(h.batch),
                 p.batch);
  if (p.data == nullptr && p.count > 0 && p.batch > 0)
    refuse_field("rotary", "index", "must have memory");
  for (Index b = 0; b < p.batch; ++b)
    for (Index t = 0; t < p.count; ++t) {
      const Index row = detail::integer_position(p, 0, b, t);
      if (row < 0 || row >= rows)
        refuse("rotary", "row numbers must be within the " + std::to_string(rows) + " rows given",
               row);
    }
}

}  // namespace

RowView row_view(const ConstTensorView& v, bool indexed) noexcept {
  RowView r;
  r.data = v.data, r.dtype = v.dtype;
  const auto last = static_cast<std::size_t>(v.rank - 1);
  r.column_stride = v.stride[last];
  if (indexed || v.rank == 2) {
    r.token_stride = v.stride[0];
  } else {
    r.batch_stride = v.stride[0], r.token_stride = v.stride[1];
    if (v.rank == 4 && v.shape[2] > 1) r.head_stride = v.stride[2];
  }
  return r;
}

void check_caller_rows(const RotaryPlanState& s, const QK& x, const CallerRows& rows) {
  if (s.tables.size() != 1)
    refuse("rotary", "the caller's cos and sin serve a spec of one block, blocks",
           static_cast<Index>(s.tables.size()));
  detail::check_known("rotary", "the layout of cos and sin", rows.layout);
  if (rows.layout == TableLayout::pairs)
    refuse("rotary", "cos and sin apart have layout half, duplicated or repeated",
           enum_text(rows.layout));
  const Heads& h = shape_of(x);
  if (h.data == nullptr) return;
  const Index columns = s.tables[0].pairs * (rows.layout == TableLayout::half ? 1 : 2);
  const bool indexed = has_index(rows, h);
  for (const ConstTensorView* v : {&rows.cos, &rows.sin}) {
    check_rows_dtype(s, *v);
    check_rows_shape(*v, h, columns, indexed);
    if (v->data == nullptr && h.batch * h.tokens > 0)
      refuse("rotary", "cos and sin must have memory");
  }
  if (rows.cos.rank != rows.sin.rank || rows.cos.shape != rows.sin.shape)
    detail::refuse_shape(
        "rotary",
        "cos and sin must have one shape: cos has " + shape_text(rows.cos) + ", sin must too",
        rows.sin);
  if (rows.cos.rank == 4)
    for (const Heads* t : {&x.q, &x.k})
      if (t->data != nullptr && rows.cos.shape[2] != 1 && t->heads != rows.cos.shape[2])
        refuse("rotary", "heads of cos and sin must be the tensors'", rows.cos.shape[2]);
  if (indexed) check_index(rows.index, h, rows.cos.shape[0]);
}

}  // namespace detail

namespace {

void apply_plan_rows(const detail::RotaryPlanState& s, const QK& in, const QK& out,
                     const ConstTensorView& rows, RotateMode mode, const Executor& executor) {
  detail::check_known("rotary", "mode", mode);
  const Index tokens = detail::check_tensors(s, in, out);
  if (s.decays) refuse("rotary", "xPos decays with the position: rows are not enough, use apply");
  const Heads& h = detail::shape_of(in);
  const DType type = s.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Index all = h.batch * h.tokens;
  if (rows.rank != 2 || rows.shape[1] != s.row_columns || rows.stride[1] != 1 ||
      (rows.shape[0] != all && rows.shape[0] != h.tokens))
    detail::refuse_shape("rotary", "rows",
                         "must be a dense [" + std::to_string(all) + " (or " +
                             std::to_string(h.tokens) + " for every batch), " +
                             std::to_string(s.row_columns) + "]",
                         rows);
  if (rows.dtype != type)
    refuse_field("rotary", "rows", "must be " + std::string(dtype_name(type)),
                 dtype_name(rows.dtype));
  if (rows.device != Device::cpu) refuse_field("rotary", "rows", "must be in the CPU's memory");
  if (tokens == 0) return;
  if (rows.data == nullptr) refuse_field("rotary", "rows", "must have memory");
  detail::check_rows_apart(out, rows, "rows");
  detail::RowSource source;
  source.kind = detail::RowSource::Kind::plan;
  source.block_column = s.block_column.data();
  source.cos.data = rows.data, source.cos.dtype = rows.dtype;
  source.cos.token_stride = rows.stride[0];
  source.cos.batch_stride = rows.shape[0] == all ? h.tokens * rows.stride[0] : 0;
  detail::RotateCall call;
  call.in = &in, call.out = &out, call.mode = mode, call.rows = &source;
  detail::run_rotation(s, call, tokens, executor);
}

void apply_caller_rows(const detail::RotaryPlanState& s, const QK& in, const QK& out,
                       const CallerRows& rows, RotateMode mode, const Executor& executor) {
  detail::check_known("rotary", "mode", mode);
  const Index tokens = detail::check_tensors(s, in, out);
  if (s.decays) refuse("rotary", "xPos decays with the position: rows are not enough, use apply");
  if (mode == RotateMode::shift)
    refuse("rotary", "a shift by rows that may be no rotation would be a guess");
  detail::check_caller_rows(s, in, rows);
  if (tokens == 0) return;
  detail::check_rows_apart(out, rows.cos, "cos");
  detail::check_rows_apart(out, rows.sin, "sin");
  const bool indexed = rows.index.data != nullptr;
  if (indexed) detail::check_positions_apart(out, rows.index, tokens);
  const Positions index = detail::shared_row(rows.index);
  detail::RowSource source;
  source.kind = detail::RowSource::Kind::caller;
  source.layout = rows.layout;
  source.cos = detail::row_view(rows.cos, indexed);
  source.sin = detail::row_view(rows.sin, indexed);
  if (indexed) source.index = &index;
  detail::RotateCall call;
  call.in = &in, call.out = &out, call.mode = mode, call.rows = &source;
  detail::run_rotation(s, call, tokens, executor);
}

}  // namespace

void RotaryPlan::apply_rows(const QK& x, const ConstTensorView& rows, RotateMode mode,
                            const Executor& executor) const {
  apply_plan_rows(*state_, x, x, rows, mode, executor);
}
void RotaryPlan::apply_rows(const ConstQK& in, const QK& out, const ConstTensorView& rows,
                            RotateMode mode, const Executor& executor) const {
  apply_plan_rows(*state_, detail::kernel_view(in), out, rows, mode, executor);
}
void RotaryPlan::apply_rows(const QK& x, const CallerRows& rows, RotateMode mode,
                            const Executor& executor) const {
  apply_caller_rows(*state_, x, x, rows, mode, executor);
}
void RotaryPlan::apply_rows(const ConstQK& in, const QK& out, const CallerRows& rows,
                            RotateMode mode, const Executor& executor) const {
  apply_caller_rows(*state_, detail::kernel_view(in), out, rows, mode, executor);
}

}  // namespace posenc::v0
