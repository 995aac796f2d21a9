// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "core/element.h"
#include "core/known_enum.h"
#include "core/overlap.h"
#include "core/row_layout.h"
#include "core/shape.h"
#include "phase/rows.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "rotary/compat.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

template <class T>
void put_row(const RowPlane& plane, Index batch, Index token, Index head, Index first, Index n,
             const T* x) noexcept {
  if (plane.data == nullptr || (plane.dtype == DType::f64) != (sizeof(T) == 8)) return;
  const Index at = batch * plane.batch_stride + token * plane.token_stride +
                   head * plane.head_stride + first * plane.step * plane.column_stride;
  for (Index i = 0; i < n; ++i) {
    const Index to = at + i * plane.step * plane.column_stride;
    put_element(plane.data, plane.dtype, to, x[i]);
    if (plane.copy != 0)
      put_element(plane.data, plane.dtype, to + plane.copy * plane.column_stride, x[i]);
  }
}

}  // namespace

void compat_rows(const Spectrum& s, Precision precision, const Positions& p, const RowPlane& cos,
                 const RowPlane& sin, Index begin, Index end) noexcept {
  float c[kRowChunk], d[kRowChunk];
  double wide_c[kRowChunk], wide_d[kRowChunk];
  double position[kMaxCompatAxes];
  const bool wide = (cos.data && cos.dtype == DType::f64) || (sin.data && sin.dtype == DType::f64);
  for (Index r = begin; r < end; ++r) {
    const Index batch = r / p.count, token = r % p.count;
    for (Index a = 0; a < s.axes; ++a) position[a] = real_position(p, a, batch, token);
    for (Index head = 0; head < s.heads; ++head)
      for (Index first = 0; first < s.pairs(); first += kRowChunk) {
        const Index n = std::min(kRowChunk, s.pairs() - first);
        compat_phase(s, precision, head, position, first, first + n, c, d);
        put_row(cos, batch, token, head, first, n, c);
        put_row(sin, batch, token, head, first, n, d);
        if (!wide) continue;
        if (precision == Precision::hf_float32) {
          hf_phase(s, head, position, first, first + n, wide_c, wide_d);
        } else {
          std::copy_n(c, n, wide_c), std::copy_n(d, n, wide_d);
        }
        put_row(cos, batch, token, head, first, n, wide_c);
        put_row(sin, batch, token, head, first, n, wide_d);
      }
  }
}

void check_positions(const Positions& p, std::string_view who) {
  if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
    refuse_field(who, "positions", "must be i64, i32 or f64", dtype_name(p.type));
  if (p.count < 0 || p.batch < 0 || p.axes < 1)
    refuse_field(who, "positions", "must have axes and sizes");
  if (p.data == nullptr && p.count > 0 && p.batch > 0)
    refuse_field(who, "positions", "must not be null when there are tokens");
  if (p.type != DType::f64) return;
  for (Index a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 0; t < p.count; ++t) {
        const double x = real_position(p, a, b, t);
        if (!(std::fabs(x) <= 0x1p62))
          refuse(who, "real positions must be finite and at most 2^62", x);
      }
}

}  // namespace detail

namespace {

using detail::RowPlane;

Index columns_of(TableLayout layout, Index pairs) {
  return layout == TableLayout::half ? pairs : 2 * pairs;
}

// Strides of a tensor [rows, heads * columns], [rows, heads, columns], [batch, tokens, columns]
// (one head) or [batch, tokens, heads, columns].
RowPlane plane_of(const TensorView& v, const Spectrum& s, const Positions& p, Index columns) {
  RowPlane r;
  r.dtype = v.dtype;
  const auto size = [&](int i) { return v.shape[static_cast<std::size_t>(i)]; };
  const auto stride = [&](int i) { return v.stride[static_cast<std::size_t>(i)]; };
  const Index rows = p.batch * p.count;
  bool fits = false;
  if (v.rank == 2) {
    fits = size(0) == rows && size(1) == s.heads * columns;
    r.token_stride = stride(0), r.head_stride = columns * stride(1);
  } else if (v.rank == 3 && size(0) == rows && size(1) == s.heads) {
    fits = size(2) == columns;
    r.token_stride = stride(0), r.head_stride = stride(1);
  } else if (v.rank == 3 && s.heads == 1) {
    fits = size(0) == p.batch && size(1) == p.count && size(2) == columns;
    r.batch_stride = stride(0), r.token_stride = stride(1);
  } else if (v.rank == 4) {
    fits = size(0) == p.batch && size(1) == p.count && size(2) == s.heads && size(3) == columns;
    r.batch_stride = stride(0), r.token_stride = stride(1), r.head_stride = stride(2);
  }
  if (!fits)
    detail::refuse_shape("rows", "output",
                         "must be [" + std::to_string(rows) + ", " +
                             std::to_string(s.heads * columns) + "], [" + std::to_string(rows) +
                             ", " + std::to_string(s.heads) + ", " + std::to_string(columns) +
                             "] or these with batch and tokens apart",
                         v);
  if (v.rank < 4 && r.batch_stride == 0) r.batch_stride = p.count * r.token_stride;
  r.column_stride = stride(v.rank - 1);
  r.data = v.data;
  if (!is_float(v.dtype))
    refuse_field("rows", "output", "must be f64, f32, f16 or bf16", dtype_name(v.dtype));
  if (v.device != Device::cpu) refuse("rows", "memory must be the CPU's");
  return r;
}

void lay_out(RowPlane& r, TableLayout layout, Index pairs) {
  const detail::RowLayout l = detail::row_layout(layout, pairs);
  r.step = l.step, r.copy = l.copy;
}

RowPlane part(const RowPlane& plane, Index column) {
  RowPlane r = plane;
  r.data = static_cast<std::byte*>(plane.data) + column * plane.column_stride * size_of(r.dtype);
  return r;
}

void check_call(const Spectrum& s, const Positions& p, TableLayout layout, Precision precision) {
  detail::check_known("rows", "layout", layout);
  detail::check_known("rows", "precision", precision);
  detail::check_compat(s, precision);
  detail::check_positions(p, "rows");
  if (p.axes != s.axes)
    refuse_field("rows", "positions", "must have " + detail::axes_text(s.axes), Index{p.axes});
  if (precision != Precision::exact && s.axes > detail::kMaxCompatAxes)
    refuse("rows", "compatibility precisions support at most 16 axes", s.axes);
}

void fill(const Spectrum& s, const Positions& p, const RowPlane& cos, const RowPlane& sin,
          Precision precision, const Executor& executor) {
  const Index rows = p.batch * p.count, elements = 2 * s.heads * s.pairs();
  if (rows == 0 || elements == 0) return;
  if (precision != Precision::exact) {
    detail::split_rows(executor, rows, elements * 8, [&](Index begin, Index end) noexcept {
      detail::compat_rows(s, precision, p, cos, sin, begin, end);
    });
    return;
  }
  std::vector<std::uint64_t> hi, lo;
  std::vector<double> per_unit;
  for (const Turns& t : exact_turns(s))
    hi.push_back(t.hi), lo.push_back(t.lo), per_unit.push_back(t.per_unit);
  const detail::PhaseTurns turns{hi.data(), lo.data(), per_unit.data(), s.heads,
                                 s.axes,    s.pairs(), s.gain};
  const detail::RowKernels& kernels = detail::row_kernels(active_isa());
  const bool stream =
      rows * elements * size_of(cos.data ? cos.dtype : sin.dtype) > detail::kStreamRowBytes;
  detail::split_rows(executor, rows, elements, [&](Index begin, Index end) noexcept {
    detail::exact_rows(kernels, turns, p, cos, sin, stream, begin, end);
  });
}

}  // namespace

void phase_rows(const Spectrum& s, const Positions& p, const TensorView& cos, const TensorView& sin,
                TableLayout layout, Precision precision, const Executor& executor) {
  check_call(s, p, layout, precision);
  if (layout == TableLayout::pairs)
    refuse("rows", "layout pairs is of cos and sin in one tensor", enum_text(layout));
  RowPlane planes[2];
  const TensorView* views[2] = {&cos, &sin};
  for (int i = 0; i < 2; ++i)
    if (!views[i]->empty()) {
      planes[i] = plane_of(*views[i], s, p, columns_of(layout, s.pairs()));
      lay_out(planes[i], layout, s.pairs());
    }
  detail::check_outputs("rows", {{"cos", detail::memory_of(cos)}, {"sin", detail::memory_of(sin)}},
                        {}, {});
  detail::check_positions_apart("rows", p,
                                {{"cos", detail::memory_of(cos)}, {"sin", detail::memory_of(sin)}});
  fill(s, p, planes[0], planes[1], precision, executor);
}

void phase_rows(const Spectrum& s, const Positions& p, const TensorView& cos_sin,
                TableLayout layout, Precision precision, const Executor& executor) {
  check_call(s, p, layout, precision);
  if (cos_sin.empty() && p.batch * p.count * s.pairs() > 0)
    refuse_field("rows", "output", "must not be empty");
  if (cos_sin.empty()) return;
  const detail::RowLayout l = detail::row_layout(layout, s.pairs());
  RowPlane cos = plane_of(cos_sin, s, p, l.columns);
  const detail::Operand out{"the output", detail::memory_of(cos_sin)};
  detail::check_no_self_overlap("rows", out);
  detail::check_positions_apart("rows", p, {out});
  lay_out(cos, layout, s.pairs());
  fill(s, p, cos, part(cos, l.sine), precision, executor);
}

}  // namespace posenc::v0
