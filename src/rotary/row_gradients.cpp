// SPDX-License-Identifier: Apache-2.0
// Gradients of the caller's cosines and sines. With y_a = x_a cos_a - d x_b sin_a and
// y_b = x_b cos_b + d x_a sin_b (d the direction):
//   dcos_a = g_a x_a   dsin_a = -d g_a x_b   dcos_b = g_b x_b   dsin_b = d g_b x_a
// summed over everything that a number is shared by. Pairs are shared out between threads, and
// each pair meets the tokens in order: the result does not depend on the number of threads.
#include <algorithm>
#include <string>

#include "core/parallel.h"
#include "core/shape.h"
#include "kernels/args.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "positions/shared_row.h"
#include "rotary/gradient_tensors.h"

namespace posenc::inline v0 {
namespace {

using State = detail::RotaryPlanState;

struct RowCall {
  const RotaryTables* table;
  const ConstQK *x, *g;
  const CallerRows* rows;
  const RowGradients* want;
  Positions index;
  detail::RowView cos, sin;  // of the gradients
  Index batch, tokens;
};

void add(const TensorView& to, Index at, double x) noexcept {
  if (to.dtype == DType::f64)
    static_cast<double*>(to.data)[at] += x;
  else
    static_cast<float*>(to.data)[at] += static_cast<float>(x);
}

struct RowSums {
  double cos_a = 0, sin_a = 0, cos_b = 0, sin_b = 0;
};
void sum_head(const RotaryTables& t, const ConstHeads& x, const ConstHeads& g, Index batch,
              Index token, Index head, Index k, RowSums& r) noexcept {
  const bool zipped = t.pairing == Pairing::interleaved;
  const bool out_zipped = zipped && t.output_order == OutputOrder::in_place;
  const Index a = t.offset + (zipped ? 2 * k : k), b = zipped ? a + 1 : a + t.pairs;
  const Index oa = t.offset + (out_zipped ? 2 * k : k), ob = out_zipped ? oa + 1 : oa + t.pairs;
  const double xa = detail::head_element(x, batch, token, head, a),
               xb = detail::head_element(x, batch, token, head, b);
  const double ga = detail::head_element(g, batch, token, head, oa),
               gb = detail::head_element(g, batch, token, head, ob);
  r.cos_a += ga * xa, r.sin_a -= t.direction * ga * xb;
  r.cos_b += gb * xb, r.sin_b += t.direction * gb * xa;
}

// Adds what one row (of one head, or of all) collects for pair k.
void put(const RowCall& call, Index batch, Index token, Index head, Index k,
         const RowSums& r) noexcept {
  const TableLayout layout = call.rows->layout;
  const Index a = layout == TableLayout::repeated ? 2 * k : k;
  const Index b = layout == TableLayout::half         ? a
                  : layout == TableLayout::duplicated ? a + call.table->pairs
                                                      : a + 1;
  detail::RowSource source;
  source.index = call.index.data ? &call.index : nullptr;
  const double values[2][2] = {{r.cos_a, r.cos_b}, {r.sin_a, r.sin_b}};
  const detail::RowView* views[2] = {&call.cos, &call.sin};
  const TensorView* targets[2] = {&call.want->cos, &call.want->sin};
  for (int i = 0; i < 2; ++i) {
    const detail::RowView& v = *views[i];
    if (v.data == nullptr) continue;
    const Index at = detail::row_offset(source, v, batch, token, head);
    if (a == b) {
      add(*targets[i], at + a * v.column_stride, values[i][0] + values[i][1]);
    } else {
      add(*targets[i], at + a * v.column_stride, values[i][0]);
      add(*targets[i], at + b * v.column_stride, values[i][1]);
    }
  }
}

void add_pairs(const RowCall& call, Index begin, Index end) noexcept {
  const RotaryTables& t = *call.table;
  const bool indexed = call.index.data != nullptr;
  const bool by_head = !indexed && call.rows->cos.rank == 4 && call.rows->cos.shape[2] > 1;
  const bool by_batch = indexed || call.rows->cos.rank > 2;
  const ConstHeads &xq = call.x->q, &xk = call.x->k;
  const Index heads = by_head ? call.rows->cos.shape[2] : 1;
  for (Index k = begin; k < end; ++k)
    for (Index token = 0; token < call.tokens; ++token)
      for (Index head = 0; head < heads; ++head) {
        RowSums r;
        for (Index batch = 0; batch < call.batch; ++batch) {
          for (const bool key : {false, true}) {
            const ConstHeads &x = key ? xk : xq, &g = key ? call.g->k : call.g->q;
            if (x.data == nullptr) continue;
            if (by_head)
              sum_head(t, x, g, batch, token, head, k, r);
            else
              for (Index i = 0; i < x.heads; ++i) sum_head(t, x, g, batch, token, i, k, r);
          }
          if (by_batch) put(call, batch, token, head, k, r), r = RowSums{};
        }
        if (!by_batch) put(call, 0, token, head, k, r);
      }
}

void check_gradient(const ConstTensorView& v, const ConstTensorView& rows) {
  if (v.empty()) return;
  if (v.device != Device::cpu) refuse("rotary", "gradients of cos and sin must be the CPU's");
  if (v.dtype != DType::f64 && v.dtype != DType::f32)
    refuse("rotary", "gradients of cos and sin must be f64 or f32", dtype_name(v.dtype));
  if (v.rank != rows.rank || v.shape != rows.shape)
    detail::refuse_shape("rotary", "gradients of cos and sin must have their shapes", v);
}

}  // namespace

void RotaryPlan::row_gradients(const ConstQK& x, const ConstQK& g, const CallerRows& rows,
                               const RowGradients& want, const Executor& executor) const {
  const State& s = *state_;
  detail::check_gradient_tensors(s, x, g);
  if (s.decays) refuse("rotary", "xPos decays with the position: rows are not enough");
  detail::check_caller_rows(s, detail::kernel_view(x), rows);
  check_gradient(want.cos, rows.cos);
  check_gradient(want.sin, rows.sin);
  const ConstHeads& h = x.q.data ? x.q : x.k;
  if (h.data == nullptr || h.batch * h.tokens == 0) return;
  const std::initializer_list<detail::Operand> written = {
      {"the gradient of cos", detail::memory_of(want.cos)},
      {"the gradient of sin", detail::memory_of(want.sin)}};
  detail::check_outputs("rotary", written, {},
                        {{"q", detail::memory_of(x.q)},
                         {"k", detail::memory_of(x.k)},
                         {"d_out of q", detail::memory_of(g.q)},
                         {"d_out of k", detail::memory_of(g.k)},
                         {"cos", detail::memory_of(rows.cos)},
                         {"sin", detail::memory_of(rows.sin)}});
  detail::check_positions_apart("rotary", rows.index, written);
  const bool indexed = rows.index.data != nullptr;
  RowCall call{&s.tables[0], &x, &g,      &rows,   &want, detail::shared_row(rows.index),
               {},           {}, h.batch, h.tokens};
  if (!want.cos.empty()) call.cos = detail::row_view(want.cos, indexed);
  if (!want.sin.empty()) call.sin = detail::row_view(want.sin, indexed);
  const Index pairs = s.tables[0].pairs;
  detail::parallel_for(executor, pairs, pairs,
                       [&](Index begin, Index end) noexcept { add_pairs(call, begin, end); });
}

}  // namespace posenc::v0
