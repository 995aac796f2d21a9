// SPDX-License-Identifier: Apache-2.0
// Rows of a block to the caller's arrays.
#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"
#include "core/element.h"

namespace posenc::inline v0::detail {

RowTotal total_of(const FastCall& c, double weights, double m, Index h, bool wanted) noexcept {
  if (c.args.sink.empty()) return {weights, wanted ? (std::log2(weights) + m) / kLog2E : 0};
  const double sink = kLog2E * read_number(c.args.sink, h);
  const double top = std::max(sink, weights > 0 ? m : -HUGE_VAL);
  if (top == -HUGE_VAL) return {0, -HUGE_VAL};
  // Relative to the larger of the two; the sum is wanted relative to the reference.
  const double both = std::exp2(sink - top) + weights * std::exp2(m - top);
  return {weights == 0 ? 0 : both * std::exp2(top - m), (std::log2(both) + top) / kLog2E};
}

void put_rows(const FastCall& c, const FastRow* rows, const RowTotal* totals, Index count,
              const float* from, Index strip_rows, const AttentionResult& result) noexcept {
  const Heads& o = result.out;
  const TensorView& l = result.log_sum_exp;
  void* to[kMostStripRows];
  float factors[kMostStripRows];
  for (Index n = 0; n < count; ++n) {
    const FastRow& r = rows[n];
    const RowTotal& t = totals[n];
    to[n] = nullptr;
    if (t.leaves) continue;
    factors[n] = static_cast<float>(t.sum > 0 ? 1 / t.sum : 0);
    const Index at = r.b * o.batch_stride + r.i * o.token_stride + r.h * o.head_stride;
    if (o.dim_stride == 1)
      to[n] = static_cast<std::byte*>(o.data) + at * size_of(o.dtype);
    else
      for (Index d = 0; d < c.V; ++d)
        put_element(
            o.data, o.dtype, at + d * o.dim_stride,
            factors[n] * from[d / c.panel * (strip_rows * c.panel) + n * c.panel + d % c.panel]);
    if (!l.empty())
      put_element(l.data, l.dtype, r.b * l.stride[0] + r.h * l.stride[1] + r.i * l.stride[2],
                  t.log_sum_exp);
  }
  if (from != nullptr)
    c.kernels.put_rows[fast_type(o.dtype)](to, from, count, strip_rows, c.V, factors);
}

namespace {

// With a sink, sticks, or channels of the output that are not adjacent.
void put_any_group(const FastCall& c, FastWork& w, const RowGroup& g,
                   const RowOutput& to) noexcept {
  RowTotal totals[kMostStripRows];
  for (Index n = 0; n < g.count; ++n) {
    const FastRow& r = g.row[n];
    const Index row = g.first + n;
    RowTotal& t = totals[n];
    bool whole = true;
    if (breaks_sticks(c.args))
      whole = put_rest(c, w, g, n, t);
    else
      t = total_of(c, w, r.h, row, !to.result.log_sum_exp.empty());
    // A sink that is not finite makes the total NaN.
    t.leaves = !whole || w.left[static_cast<std::size_t>(row)] != 0 || std::isnan(t.sum) ||
               std::isnan(t.log_sum_exp);
    to.left[(r.b * c.H + r.h) * c.Tq + r.i] = t.leaves ? 1 : 0;
  }
  const float* from = w.out.data();  // null: values have no channels
  if (from != nullptr) from += g.slot * c.value_panels * c.panel;
  put_rows(c, g.row, totals, g.count, from, g.rows, to.result);
}

void put_sums(const FastCall& c, const FastWork& w, const RowGroup& g, const std::uint8_t* left,
              const TensorView& l) noexcept {
  double logarithms[kMostStripRows];
  c.kernels.finish_sums(w.totals.data() + g.first, w.reference.data() + g.first, g.rows,
                        logarithms);
  const FastRow& r = *g.row;  // the others follow it
  Index at = r.b * l.stride[0] + r.h * l.stride[1] + r.i * l.stride[2];
  for (Index n = 0; n < g.count; ++n, at += l.stride[2]) {
    if (left[n] != 0) continue;
    if (l.dtype == DType::f64)
      static_cast<double*>(l.data)[at] = logarithms[n];
    else
      put_element(l.data, l.dtype, at, logarithms[n]);
  }
}

}  // namespace

void put_group(const FastCall& c, FastWork& w, const RowGroup& g, const RowOutput& to) noexcept {
  const Heads& o = to.result.out;
  if (breaks_sticks(c.args) || !c.args.sink.empty() || o.dim_stride != 1)
    return put_any_group(c, w, g, to);
  const FastRow& r = *g.row;  // the others follow it
  const Index step = o.token_stride * size_of(o.dtype);
  std::byte* out =
      static_cast<std::byte*>(o.data) +
      (r.b * o.batch_stride + r.i * o.token_stride + r.h * o.head_stride) * size_of(o.dtype);
  std::uint8_t* left = to.left + (r.b * c.H + r.h) * c.Tq + r.i;
  void* rows[kMostStripRows];
  float factors[kMostStripRows];
  for (Index n = 0; n < g.count; ++n) {
    const auto row = static_cast<std::size_t>(g.first + n);
    const float total = w.totals[row];
    const bool leaves = w.left[row] != 0 || std::isnan(total);
    left[n] = leaves ? 1 : 0;
    rows[n] = leaves ? nullptr : out + n * step;
    factors[n] = total > 0 ? 1 / total : 0;
  }
  if (!to.result.log_sum_exp.empty()) put_sums(c, w, g, left, to.result.log_sum_exp);
  if (const float* from = w.out.data(); from != nullptr)
    c.kernels.put_rows[fast_type(o.dtype)](rows, from + g.slot * c.value_panels * c.panel, g.count,
                                           g.rows, c.V, factors);
}

}  // namespace posenc::v0::detail
