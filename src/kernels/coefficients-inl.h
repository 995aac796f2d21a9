// SPDX-License-Identifier: Apache-2.0
// Coefficients of one token read from rows of cosine and sine: the plan's, or the caller's.
#include <type_traits>

#include "core/element.h"
#include "core/row_layout.h"
#include "kernels/args.h"
#include "kernels/element-inl.h"

#ifndef POSENC_KERNELS_COEFFICIENTS_ONCE_H_
#define POSENC_KERNELS_COEFFICIENTS_ONCE_H_
namespace posenc::inline v0::detail {

// What is multiplied into the rows of a block, or into the phase.
struct Factor {
  double cosine = 1, sine = 1;
};
// The phase has no gain yet; rows have it already. R(-p) negates the sine.
[[gnu::always_inline]] inline Factor FactorOf(const RotaryTables& t, RotateMode mode, bool rows) {
  const bool back = mode == RotateMode::gradient || mode == RotateMode::inverse;
  double g = rows ? 1 : t.gain;
  if (mode == RotateMode::inverse) g = rows ? 1 / (t.gain * t.gain) : 1 / t.gain;
  if (mode == RotateMode::shift) g = rows ? 1 / t.gain : 1;
  return {g, (back ? -g : g) * t.direction};
}

}  // namespace posenc::v0::detail
#endif

#if defined(POSENC_KERNELS_COEFFICIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COEFFICIENTS_INL_H_
#undef POSENC_KERNELS_COEFFICIENTS_INL_H_
#else
#define POSENC_KERNELS_COEFFICIENTS_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// n numbers of a row, `step` elements apart, as C, times factor.
template <class C, class T>
HWY_INLINE void ScaleRow(const T* from, Index step, Index n, double factor, C* to) {
  const C f = static_cast<C>(factor);
  Index i = 0;
  if constexpr (std::is_same_v<C, Compute<T>>) {
    const hn::ScalableTag<C> d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    if (step == 1)
      for (; i + lanes <= n; i += lanes)
        hn::StoreU(hn::Mul(ReadVector(d, from + i), hn::Set(d, f)), d, to + i);
  }
  for (; i < n; ++i) to[i] = static_cast<C>(Widen(from[i * step])) * f;
}
template <class C>
HWY_NOINLINE void ScaleRow(const void* base, DType type, Index offset, Index step, Index n,
                           double factor, C* to) {
  switch (type) {
    case DType::f64:
      return ScaleRow(static_cast<const double*>(base) + offset, step, n, factor, to);
    case DType::f16:
      return ScaleRow(static_cast<const Float16*>(base) + offset, step, n, factor, to);
    case DType::bf16:
      return ScaleRow(static_cast<const BFloat16*>(base) + offset, step, n, factor, to);
    default:
      return ScaleRow(static_cast<const float*>(base) + offset, step, n, factor, to);
  }
}

template <class C>
HWY_INLINE bool EqualRows(const C* a, const C* b, Index n) {
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes)
    if (!hn::AllTrue(d, hn::Eq(hn::LoadU(d, a + i), hn::LoadU(d, b + i)))) return false;
  for (; i < n; ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

// Pairs [first, first + n) of a plan's rows; c and s may point into the row itself.
template <class C>
HWY_INLINE void PlanRow(const CoefficientSource& source, Index batch, Index token, Index head,
                        Index first, Index n, C* buffer_c, C* buffer_s, const C** c, const C** s) {
  const RowSource& r = *source.rows;
  const RotaryTables& t = *source.tables;
  const Index block = source.block;
  const Factor f = FactorOf(t, source.mode, true);
  const Index pairs = t.heads * t.pairs;
  const RowLayout layout = row_layout(r.layout, pairs);
  const Index twice = layout.copy != 0 ? 2 : 1;
  const Index column = twice * r.block_column[block] + layout.step * (head * t.pairs + first);
  *c = buffer_c, *s = buffer_s;
  if (r.index != nullptr && r.pair_axis != nullptr && r.pair_axis[block] != nullptr) {
    for (Index i = 0; i < n; ++i) {
      const Index row = integer_position(*r.index, r.pair_axis[block][first + i], batch, token);
      const Index at = row * r.cos.token_stride + column + layout.step * i;
      buffer_c[i] = static_cast<C>(float_element(r.cos.data, r.cos.dtype, at) * f.cosine);
      buffer_s[i] =
          static_cast<C>(float_element(r.cos.data, r.cos.dtype, at + layout.sine) * f.sine);
    }
    return;
  }
  const Index at = column + (r.index != nullptr
                                 ? integer_position(*r.index, 0, batch, token) * r.cos.token_stride
                                 : batch * r.cos.batch_stride + token * r.cos.token_stride);
  const DType direct = sizeof(C) == 8 ? DType::f64 : DType::f32;
  if (r.cos.dtype == direct && layout.step == 1 && f.cosine == 1 && f.sine == 1) {
    *c = static_cast<const C*>(r.cos.data) + at;
    *s = *c + layout.sine;
    return;
  }
  ScaleRow(r.cos.data, r.cos.dtype, at, layout.step, n, f.cosine, buffer_c);
  ScaleRow(r.cos.data, r.cos.dtype, at + layout.sine, layout.step, n, f.sine, buffer_s);
}

// Column of a pair's first and second member.
struct Columns {
  Index step, member;
};
HWY_INLINE Columns ColumnsOf(TableLayout layout, Index pairs) {
  if (layout == TableLayout::duplicated) return {1, pairs};
  if (layout == TableLayout::repeated) return {2, 1};
  return {1, 0};
}

// Pairs [first, first + n) of the caller's rows: ca, sa, cb, sb as the mode wants them. True when
// both members of every pair have the same, which then stands in ca and sa alone.
template <class C>
HWY_INLINE bool CallerRow(const CoefficientSource& source, Index batch, Index token, Index head,
                          Index first, Index n, C* ca, C* sa, C* cb, C* sb) {
  const RowSource& r = *source.rows;
  const RotaryTables& t = *source.tables;
  const Columns col = ColumnsOf(r.layout, t.pairs);
  const auto read = [&](const RowView& v, Index member, double factor, C* to) {
    const Index at = row_offset(r, v, batch, token, head);
    ScaleRow(v.data, v.dtype, at + (first * col.step + member) * v.column_stride,
             col.step * v.column_stride, n, factor, to);
  };
  // The transpose of [ca -sa; sb cb]: each sine takes the other's place, negated.
  const bool transposed = source.mode == RotateMode::gradient;
  const double direction = transposed ? -t.direction : t.direction;
  read(r.cos, 0, 1, ca);
  read(r.sin, transposed ? col.member : 0, direction, sa);
  bool same = col.member == 0;
  if (!same) {
    read(r.cos, col.member, 1, cb);
    read(r.sin, transposed ? 0 : col.member, direction, sb);
    same = EqualRows(ca, cb, n) && EqualRows(sa, sb, n);
  }
  if (source.mode != RotateMode::inverse) return same;
  for (Index i = 0; i < n; ++i) {
    const double cos_a = static_cast<double>(ca[i]), sin_a = static_cast<double>(sa[i]);
    const double cos_b = same ? cos_a : static_cast<double>(cb[i]);
    const double sin_b = same ? sin_a : static_cast<double>(sb[i]);
    const double det = cos_a * cos_b + sin_a * sin_b;
    ca[i] = static_cast<C>(cos_b / det), sa[i] = static_cast<C>(-sin_a / det);
    if (!same) cb[i] = static_cast<C>(cos_a / det), sb[i] = static_cast<C>(-sin_b / det);
  }
  return same;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
