// SPDX-License-Identifier: Apache-2.0
// Rotation in the order of operations of the program that a precision names
// (posenc/core/precision.h):
//   hf_float32, ggml     x cos and x sin rounded to float32, their sum rounded to float32, then to
//                        the dtype (f64 tensors: in double, as torch promotes)
//   hf_bfloat16_table    x cos and x sin rounded to bfloat16 (round_each), then their sum; else as
//                        above
// Not a fast path: it is there to reproduce.
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#include "kernels/rotate-inl.h"

HWY_BEFORE_NAMESPACE();  // what is inlined here is compiled for Highway's baseline
namespace posenc::inline v0::detail {
namespace {

using HWY_NAMESPACE::CallerRow;
using HWY_NAMESPACE::CopyGaps;
using HWY_NAMESPACE::LayoutOf;
using HWY_NAMESPACE::PlanRow;
using HWY_NAMESPACE::Reorder;
using HWY_NAMESPACE::RotatePath;
using HWY_NAMESPACE::Scratch;

template <class C>
C to_bfloat16(C x) noexcept {
  return f32_from_bf16(bf16_from(x));
}

template <class T>
void rotate_heads(const Coefficients<Compute<T>>& f, const TokenHeads<T>& h, PairLayout from,
                  PairLayout to, Index pairs, bool round_each) noexcept {
  const T* x = h.x;
  T* y = h.y;
  for (Index head = 0; head < h.heads; ++head, x += h.x_stride, y += h.y_stride)
    for (Index k = 0; k < pairs; ++k) {
      const Compute<T> a = Widen(x[k * from.step]), b = Widen(x[from.member + k * from.step]);
      Compute<T> ac = a * f.cos_a[k], bs = b * f.sin_a[k];
      Compute<T> bc = b * f.cos_b[k], as = a * f.sin_b[k];
      if (round_each) {
        ac = to_bfloat16(ac), bs = to_bfloat16(bs), bc = to_bfloat16(bc), as = to_bfloat16(as);
      }
      y[k * to.step] = Narrow<T>(ac - bs);
      y[to.member + k * to.step] = Narrow<T>(bc + as);
    }
}

// Coefficients of pairs [first, first + n) of one token and head.
template <class C>
Coefficients<C> coefficients(const RotateCall& call, const CompatPhase& phase, Index block,
                             Index batch, Index token, Index head, Index first, Index n,
                             Scratch<C>& scratch) noexcept {
  const RotaryTables& t = call.blocks[block];
  const CoefficientSource source = call.source(block);
  if (call.rows->kind == RowSource::Kind::caller) {
    CallerRow(source, batch, token, head, first, n, scratch.cos_a, scratch.sin_a, scratch.cos_b,
              scratch.sin_b);
    return {scratch.cos_a, scratch.sin_a, scratch.cos_b, scratch.sin_b};
  }
  const C *c = scratch.cos_a, *s = scratch.sin_a;
  if (call.rows->kind == RowSource::Kind::plan) {
    PlanRow(source, batch, token, head, first, n, scratch.cos_a, scratch.sin_a, &c, &s);
    return {c, s, c, s};
  }
  TokenPosition p;
  read_position(*call.positions, t.axes, batch, token, p);
  double position[kMaxAxes];
  for (Index a = 0; a < t.axes; ++a) position[a] = RealPosition(p, a);
  if constexpr (sizeof(C) == 8)
    phase.f64(phase.context, block, head, position, first, first + n, scratch.cos_a, scratch.sin_a);
  else
    phase.f32(phase.context, block, head, position, first, first + n, scratch.cos_a, scratch.sin_a);
  const Factor f = FactorOf(t, call.mode, true);
  for (Index i = 0; i < n; ++i) {
    scratch.cos_a[i] *= static_cast<C>(f.cosine);
    scratch.sin_a[i] *= static_cast<C>(f.sine);
  }
  return {c, s, c, s};
}

template <class T>
void rotate_block(const RotateCall& call, const CompatPhase& phase, Index block, Index batch,
                  Index token, Scratch<Compute<T>>& scratch) noexcept {
  const RotaryTables& t = call.blocks[block];
  const PairLayout order = LayoutOf(t, true, call.mode);
  const bool reordered = LayoutOf(t, false, call.mode).step != order.step;
  if (reordered) Reorder<T>(call, t, batch, token);
  const bool each = t.heads > 1 || call.rows->cos.head_stride != 0;
  for (int which = 0; which < 2; ++which) {
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    const Heads& in = reordered ? out : which == 0 ? call.in->q : call.in->k;
    if (in.data == nullptr) continue;
    for (Index head = 0; head < (each ? in.heads : 1); ++head)
      for (Index first = 0; first < t.pairs; first += kChunk) {
        const Index n = t.pairs - first < kChunk ? t.pairs - first : kChunk;
        const Coefficients<Compute<T>> f =
            coefficients(call, phase, block, batch, token, head, first, n, scratch);
        TokenHeads<T> h;
        h.x = static_cast<const T*>(in.data) + batch * in.batch_stride + token * in.token_stride +
              head * in.head_stride + (t.offset + first * order.step) * in.dim_stride;
        h.y = static_cast<T*>(out.data) + batch * out.batch_stride + token * out.token_stride +
              head * out.head_stride + (t.offset + first * order.step) * out.dim_stride;
        h.heads = each ? 1 : in.heads;
        h.x_stride = in.head_stride, h.y_stride = out.head_stride;
        rotate_heads(f, h, {order.step * in.dim_stride, order.member * in.dim_stride},
                     {order.step * out.dim_stride, order.member * out.dim_stride}, n,
                     phase.round_each);
      }
  }
}

template <class T>
void rotate(const RotateCall& call, const CompatPhase& phase, Index begin, Index end) noexcept {
  Scratch<Compute<T>> scratch;
  const Heads& shape = call.in->q.data != nullptr ? call.in->q : call.in->k;
  for (Index r = begin; r < end; ++r) {
    const Index batch = r / shape.tokens, token = r % shape.tokens;
    if (call.gap_count > 0) CopyGaps<T>(call, RotatePath{}, batch, token);
    for (std::int32_t n = 0; n < call.block_count; ++n)
      rotate_block<T>(call, phase, n, batch, token, scratch);
  }
}

}  // namespace

void rotate_compat(const RotateCall& call, const CompatPhase& phase, Index begin,
                   Index end) noexcept {
  const DType type = call.in->q.data != nullptr ? call.in->q.dtype : call.in->k.dtype;
  if (type == DType::bf16)
    rotate<BFloat16>(call, phase, begin, end);
  else if (type == DType::f16)
    rotate<Float16>(call, phase, begin, end);
  else if (type == DType::f64)
    rotate<double>(call, phase, begin, end);
  else
    rotate<float>(call, phase, begin, end);
}

}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
