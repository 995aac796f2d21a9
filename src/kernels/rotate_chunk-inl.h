// SPDX-License-Identifier: Apache-2.0
// The coefficients of a token, a chunk of pairs at a time, and the rotation of heads by them.
#include <cstdint>

#include "kernels/coefficients-inl.h"
#include "kernels/phase-inl.h"
#include "kernels/rotate.h"
#include "kernels/rotate_heads-inl.h"
#include "kernels/rotate_heads_bf16-inl.h"
#include "kernels/rotate_path-inl.h"

#if defined(POSENC_KERNELS_ROTATE_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_CHUNK_INL_H_
#undef POSENC_KERNELS_ROTATE_CHUNK_INL_H_
#else
#define POSENC_KERNELS_ROTATE_CHUNK_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class C>
struct Scratch {
  alignas(64) C cos_a[kChunk + kPadding], sin_a[kChunk + kPadding];
  alignas(64) C cos_b[kChunk + kPadding], sin_b[kChunk + kPadding];
  alignas(64) C cos_interleaved[2 * (kChunk + kPadding)], signed_sin[2 * (kChunk + kPadding)];
  Streamer stream[2];  // q and k
};

// Coefficients of one chunk, and what some kernels make of them (PrepareCoefficients).
template <class C>
struct Chunk {
  Coefficients<C> f;
  Index first, n;
  bool same;      // both members of every pair have the same coefficients
  bool prepared;  // cos_interleaved and signed_sin hold them
  C *cos_interleaved, *signed_sin;
};
// Where the coefficients of a token can be put.
template <class C>
struct CoefficientScratch {
  C *cos_a, *sin_a, *cos_b, *sin_b, *cos_interleaved, *signed_sin;
};

HWY_INLINE PairLayout LayoutOf(const RotaryTables& t, bool output, RotateMode mode) {
  bool interleaved = t.pairing == Pairing::interleaved;
  // even_then_odd: what comes out is half-split; a cache that is shifted already is.
  if (t.output_order == OutputOrder::even_then_odd) {
    const bool back = mode == RotateMode::gradient || mode == RotateMode::inverse;
    interleaved = mode != RotateMode::shift && output == back;
  }
  return interleaved ? PairLayout{2, 1} : PairLayout{1, t.pairs};
}

template <class C>
HWY_INLINE void InterleaveCoefficients(Chunk<C>& chunk) {
  const Coefficients<C>& f = chunk.f;
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= chunk.n; i += lanes) {  // rows may end at the last pair
    hn::StoreInterleaved2(hn::LoadU(d, f.cos_a + i), hn::LoadU(d, f.cos_b + i), d,
                          chunk.cos_interleaved + 2 * i);
    hn::StoreInterleaved2(hn::Neg(hn::LoadU(d, f.sin_a + i)), hn::LoadU(d, f.sin_b + i), d,
                          chunk.signed_sin + 2 * i);
  }
  for (; i < chunk.n; ++i) {
    chunk.cos_interleaved[2 * i] = f.cos_a[i], chunk.cos_interleaved[2 * i + 1] = f.cos_b[i];
    chunk.signed_sin[2 * i] = -f.sin_a[i], chunk.signed_sin[2 * i + 1] = f.sin_b[i];
  }
}

// The coefficients in the form that RotateVectors takes for heads of this kind.
template <class H, class C>
HWY_INLINE void PrepareCoefficients(Chunk<C>& chunk, PairLayout order) {
  if (chunk.prepared) return;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kByWords<H> && kWholeHeads) {
    PrepareWords(chunk.f.cos_a, chunk.n, order.step == 2, chunk.cos_interleaved);
    PrepareWords(chunk.f.sin_a, chunk.n, order.step == 2, chunk.signed_sin);
    chunk.prepared = true;
  }
#endif
  if (order.step == 2 && !kByWords<H>) InterleaveCoefficients(chunk), chunk.prepared = true;
}

// Not inlined: it is the bulk of a kernel, and called from several places.
template <class H>
HWY_NOINLINE void RotateVectors(const Chunk<ComputeIn<H>>& chunk, const H& heads,
                                PairLayout layout) {
#if HWY_TARGET == HWY_SCALAR
  if (layout.step == 2) return RotatePlainRuns(chunk.f, heads, layout, layout, 0, chunk.n);
  if constexpr (kByWords<H>)
    RotatePlainRuns(chunk.f, heads, layout, layout, 0, chunk.n);
  else
    RotateHalf(chunk.f, heads, layout.member, chunk.n);
#else
  if constexpr (kByWords<H>) {
    if (layout.step == 2)
      RotateInterleavedBFloat16(chunk.f, chunk.cos_interleaved, chunk.signed_sin, heads, chunk.n);
    else
      RotateHalfBFloat16(chunk.f, chunk.cos_interleaved, chunk.signed_sin, heads, layout.member,
                         chunk.n);
  } else {
    if (layout.step == 2)
      RotateInterleaved(chunk.f, chunk.cos_interleaved, chunk.signed_sin, heads, chunk.n);
    else
      RotateHalf(chunk.f, heads, layout.member, chunk.n);
  }
#endif
}

template <class H>
HWY_NOINLINE void RotateStrided(const Coefficients<ComputeIn<H>>& f, const H& heads,
                                PairLayout order, Index in_dim, Index out_dim, Index pairs) {
  RotatePlainRuns(f, heads, {order.step * in_dim, order.member * in_dim},
                  {order.step * out_dim, order.member * out_dim}, 0, pairs);
}

// Any strides and members: by vectors where it can be. It wants
// PrepareCoefficients before.
template <class H>
HWY_INLINE void RotateRuns(const Chunk<ComputeIn<H>>& chunk, const H& heads, PairLayout order,
                           Index in_dim, Index out_dim) {
  const bool exact_members = chunk.same || (order.step == 2 && !kByWords<H>);
  if (in_dim == 1 && out_dim == 1 && exact_members)
    RotateVectors(chunk, heads, order);
  else
    RotateStrided(chunk.f, heads, order, in_dim, out_dim, chunk.n);
}

// One token of one tensor, heads [head, head + count).
template <class T>
HWY_INLINE TokenHeads<T> HeadsOf(const RotaryTables& t, const Heads& in, const Heads& out,
                                 Index batch, Index token, Index head, Index count,
                                 Index first_pair, PairLayout order) {
  const Index channel = t.offset + first_pair * order.step;
  TokenHeads<T> h;
  h.x = static_cast<const T*>(in.data) + batch * in.batch_stride + token * in.token_stride +
        head * in.head_stride + channel * in.dim_stride;
  h.y = static_cast<T*>(out.data) + batch * out.batch_stride + token * out.token_stride +
        head * out.head_stride + channel * out.dim_stride;
  h.heads = count, h.x_stride = in.head_stride, h.y_stride = out.head_stride;
  return h;
}
// `per` heads a run (0: all, alone), behind those that are there.
template <class T>
HWY_INLINE void AddHeadRuns(TokenHeads<T> h, Index per, Index token_stride, HeadRuns<T>& runs) {
  Index left = h.heads;
  runs.heads += left;
  const bool alone = per == 0;
  if (alone) per = left;
  for (; left > 0; left -= per, h.x += per * h.x_stride, h.y += per * h.y_stride) {
    h.heads = left < per ? left : per;
    const Index length = h.heads * h.x_stride;
    runs.around[runs.count] = alone ? 0 : token_stride - HWY_MAX(length, runs.ahead);
    runs.run[runs.count++] = h;
  }
}

// Coefficients of pairs from `first` on, at most kChunk, of one token: by its position where they
// come from the phase, else by its place in the rows.
template <class C>
HWY_INLINE Chunk<C> CoefficientsOf(const CoefficientSource& source, const TokenPosition& p,
                                   Index batch, Index token, Index head, Index first,
                                   const CoefficientScratch<C>& scratch) {
  const RotaryTables& t = *source.tables;
  Chunk<C> chunk;
  chunk.first = first, chunk.n = t.pairs - first < kChunk ? t.pairs - first : kChunk;
  chunk.same = true, chunk.prepared = false;
  chunk.cos_interleaved = scratch.cos_interleaved, chunk.signed_sin = scratch.signed_sin;
  const C *c = scratch.cos_a, *s = scratch.sin_a;
  chunk.f = {c, s, c, s};
  if (source.rows->kind == RowSource::Kind::plan) {
    PlanRow(source, batch, token, head, first, chunk.n, scratch.cos_a, scratch.sin_a, &c, &s);
    chunk.f = {c, s, c, s};
  } else if (source.rows->kind == RowSource::Kind::caller) {
    chunk.same = CallerRow(source, batch, token, head, first, chunk.n, scratch.cos_a, scratch.sin_a,
                           scratch.cos_b, scratch.sin_b);
    if (!chunk.same) chunk.f.cos_b = scratch.cos_b, chunk.f.sin_b = scratch.sin_b;
  } else {
    const Factor f = FactorOf(t, source.mode, false);
    Phase(t, t.heads > 1 ? head : 0, p, first, chunk.n, f.cosine, f.sine, scratch.cos_a,
          scratch.sin_a);
  }
  return chunk;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
