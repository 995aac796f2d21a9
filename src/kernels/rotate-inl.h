// SPDX-License-Identifier: Apache-2.0
// The rotation of tokens [begin, end): for each token the coefficients of its pairs (phase, rows
// or the caller's), then all heads of q and k with the coefficients in registers.
#include <cmath>
#include <cstring>

#include "kernels/coefficients-inl.h"
#include "kernels/phase-inl.h"
#include "kernels/reorder.h"
#include "kernels/rotate.h"
#include "kernels/route-inl.h"
#include "kernels/turn-inl.h"
#include "kernels/turn_bf16-inl.h"

#if defined(POSENC_KERNELS_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_INL_H_
#undef POSENC_KERNELS_ROTATE_INL_H_
#else
#define POSENC_KERNELS_ROTATE_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class C>
struct Scratch {
  alignas(64) C cos_a[kChunk + kPadding], sin_a[kChunk + kPadding];
  alignas(64) C cos_b[kChunk + kPadding], sin_b[kChunk + kPadding];
  alignas(64) C along[2 * (kChunk + kPadding)], across[2 * (kChunk + kPadding)];
  Streamer stream[2];  // q and k
};

// Coefficients of one chunk, and what the interleaved kernel makes of them when it is used.
template <class C>
struct Chunk {
  Coefficients<C> f;
  Index first, n;
  bool same;    // both members of every pair have the same coefficients
  bool zipped;  // scratch.along and scratch.across hold them
};

HWY_INLINE PairLayout LayoutOf(const RotaryTables& t, bool output, Sense sense) {
  bool interleaved = t.pairing == Pairing::interleaved;
  // even_then_odd: what comes out is half-split; a cache that is shifted already is.
  if (t.output_order == OutputOrder::even_then_odd) {
    const bool back = sense == Sense::gradient || sense == Sense::inverse;
    interleaved = sense != Sense::shift && output == back;
  }
  return interleaved ? PairLayout{2, 1} : PairLayout{1, t.pairs};
}

template <class C>
HWY_INLINE void Zip(Chunk<C>& chunk, Scratch<C>& scratch) {
  const Coefficients<C>& f = chunk.f;
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= chunk.n; i += lanes) {  // rows may end at the last pair
    hn::StoreInterleaved2(hn::LoadU(d, f.cos_a + i), hn::LoadU(d, f.cos_b + i), d,
                          scratch.along + 2 * i);
    hn::StoreInterleaved2(hn::Neg(hn::LoadU(d, f.sin_a + i)), hn::LoadU(d, f.sin_b + i), d,
                          scratch.across + 2 * i);
  }
  for (; i < chunk.n; ++i) {
    scratch.along[2 * i] = f.cos_a[i], scratch.along[2 * i + 1] = f.cos_b[i];
    scratch.across[2 * i] = -f.sin_a[i], scratch.across[2 * i + 1] = f.sin_b[i];
  }
  chunk.zipped = true;
}

// Not inlined: it is the bulk of a kernel, and called from several places.
template <class T, class H>
HWY_NOINLINE void TurnFast(const Chunk<Compute<T>>& chunk, const Scratch<Compute<T>>& scratch,
                           const H& heads, PairLayout layout) {
#if HWY_TARGET == HWY_SCALAR
  (void)scratch;
  if (layout.step == 2) return TurnPlainRuns<T>(chunk.f, heads, layout, layout, 0, chunk.n);
  if constexpr (kIsBFloat16<T>)
    TurnPlainRuns<T>(chunk.f, heads, layout, layout, 0, chunk.n);
  else
    TurnHalf<T>(chunk.f, heads, layout.member, chunk.n);
#else
  if constexpr (kIsBFloat16<T>) {
    (void)scratch;
    if (layout.step == 2)
      TurnInterleavedBFloat16<T>(chunk.f, heads, chunk.n);
    else
      TurnHalfBFloat16<T>(chunk.f, heads, layout.member, chunk.n);
  } else {
    if (layout.step == 2)
      TurnInterleaved<T>(chunk.f, scratch.along, scratch.across, heads, chunk.n);
    else
      TurnHalf<T>(chunk.f, heads, layout.member, chunk.n);
  }
#endif
}

template <class T, class H>
HWY_NOINLINE void TurnStrided(const Coefficients<Compute<T>>& f, const H& heads, PairLayout order,
                              Index in_dim, Index out_dim, Index pairs) {
  TurnPlainRuns<T>(f, heads, {order.step * in_dim, order.member * in_dim},
                   {order.step * out_dim, order.member * out_dim}, 0, pairs);
}

// Any strides and members: by vectors where it can be.
template <class T, class H>
HWY_INLINE void TurnRuns(const Chunk<Compute<T>>& chunk, const Scratch<Compute<T>>& scratch,
                         const H& heads, PairLayout order, Index in_dim, Index out_dim) {
  const bool exact_members = chunk.same || (order.step == 2 && !kIsBFloat16<T>);
  if (in_dim == 1 && out_dim == 1 && exact_members)
    TurnFast<T>(chunk, scratch, heads, order);
  else
    TurnStrided<T>(chunk.f, heads, order, in_dim, out_dim, chunk.n);
}

// A few heads at a time are turned into a buffer and streamed from there in the order of memory.
// Streaming straight from the turn leaves lines half written where heads are not made of whole
// lines or only a part of a head turns.
template <class T>
HWY_NOINLINE void StreamHeads(const RotateCall& call, const Chunk<Compute<T>>& chunk,
                              const Scratch<Compute<T>>& scratch, const TokenHeads<T>& h,
                              PairLayout order, Index ahead, Streamer& streamer) {
  auto* buffer = reinterpret_cast<T*>(streamer.memory + kLine);
  const auto size = static_cast<Index>(sizeof(T));
  const Index dim = call.blocks[0].head_dim, offset = call.blocks[0].offset;
  Index group = h.y_stride == dim ? kStreamGroup / (dim * size) : 1;
  if (group < 1) group = 1;
  Runs<T> part;
  part.count = 1, part.ahead = ahead;
  for (Index first = 0; first < h.heads; first += group) {
    part.heads = h.heads - first < group ? h.heads - first : group;
    part.run[0] = {h.x + first * h.x_stride, buffer + offset, part.heads, h.x_stride, dim};
    for (Index i = 0; i < part.heads; ++i)
      for (std::int32_t g = 0; g < call.gap_count; ++g)
        std::memcpy(buffer + i * dim + call.gaps[g].begin,
                    part.run[0].x - offset + i * h.x_stride + call.gaps[g].begin,
                    static_cast<std::size_t>((call.gaps[g].end - call.gaps[g].begin) * size));
    TurnRuns<T>(chunk, scratch, part, order, 1, 1);
    StreamBytes(streamer, reinterpret_cast<std::uint8_t*>(h.y - offset + first * h.y_stride),
                part.heads * dim * size);
  }
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
// `per` heads a run (0: all), behind those that are there.
template <class T>
HWY_INLINE void AddRuns(TokenHeads<T> h, Index per, Runs<T>& runs) {
  Index left = h.heads;
  runs.heads += left;
  if (per == 0) per = left;
  for (; left > 0; left -= per, h.x += per * h.x_stride, h.y += per * h.y_stride) {
    h.heads = left < per ? left : per;
    runs.run[runs.count++] = h;
  }
}

// xPos (arXiv:2212.10554, eq. 16): q grows by 2^(log2_decay * (p - centre) / scale), k shrinks.
template <class C>
HWY_INLINE void Decay(const RotateCall& call, const RotaryTables& t, const TokenPosition& p,
                      bool key, const Chunk<C>& chunk, C* cosine, C* sine) {
  const double center = call.sense == Sense::shift ? 0 : t.decay_center;
  double power = (RealPosition(p, 0) - center) / t.decay_scale;
  if (key != (call.sense == Sense::inverse)) power = -power;
  for (Index i = 0; i < chunk.n; ++i) {
    const C decay = static_cast<C>(std::exp2(t.log2_decay[chunk.first + i] * power));
    cosine[i] = chunk.f.cos_a[i] * decay;
    sine[i] = chunk.f.sin_a[i] * decay;
  }
}

// A call whose tensors lie in memory.
template <class T>
HWY_NOINLINE void TurnLarge(const RotateCall& call, const Route& route, int which,
                            const Chunk<Compute<T>>& chunk, Scratch<Compute<T>>& scratch,
                            const StreamedRuns<T>& runs, PairLayout order) {
  const Heads& in = which == 0 ? call.in->q : call.in->k;
  const Heads& out = which == 0 ? call.out->q : call.out->k;
  if (route.together && route.stream[which])
    TurnRuns<T>(chunk, scratch, runs, order, 1, 1);
  else if (route.stream[which])
    StreamHeads<T>(call, chunk, scratch, runs.run[0], order, runs.ahead, scratch.stream[which]);
  else
    TurnRuns<T>(chunk, scratch, Stored(runs), order, route.together ? 1 : in.dim_stride,
                route.together ? 1 : out.dim_stride);
}

template <class T>
HWY_INLINE void TurnBoth(const RotateCall& call, const RotaryTables& t, const Route& route,
                         const TokenPosition& p, Index batch, Index token, Index head,
                         Chunk<Compute<T>>& chunk, Scratch<Compute<T>>& scratch) {
  using C = Compute<T>;
  const bool each = t.heads > 1 || call.rows.cos.head_stride != 0;
  const PairLayout order = LayoutOf(t, true, call.sense);
  const bool reordered = LayoutOf(t, false, call.sense).step != order.step;
  StreamedRuns<T> runs;
  for (int which = 0; which < 2; ++which) {
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    const Heads& in = reordered ? out : which == 0 ? call.in->q : call.in->k;
    const bool there = in.data != nullptr && head < in.heads;
    const bool gathered = which == 1 && route.together && runs.count > 0;
    if (!there && !gathered) continue;
    const Chunk<C>* turned = &chunk;
    Chunk<C> decayed;
    if (t.log2_decay != nullptr) {
      decayed = chunk;
      decayed.zipped = false;
      decayed.f = {scratch.cos_b, scratch.sin_b, scratch.cos_b, scratch.sin_b};
      Decay(call, t, p, which == 1, chunk, scratch.cos_b, scratch.sin_b);
      turned = &decayed;
    }
    if (order.step == 2 && !kIsBFloat16<T> && !turned->zipped)
      Zip(t.log2_decay != nullptr ? decayed : chunk, scratch);
    TokenHeads<T> h;
    if (there)
      h = HeadsOf<T>(t, in, out, batch, token, head, each ? 1 : in.heads, chunk.first, order);
    if (!call.large) {
      TurnRuns<T>(*turned, scratch, h, order, in.dim_stride, out.dim_stride);
      continue;
    }
    if (there) AddRuns(h, route.per[which], runs);
    if (route.together && which == 0) continue;
    runs.ahead = route.ahead[which] / static_cast<Index>(sizeof(T));
    TurnLarge<T>(call, route, which, *turned, scratch, runs, order);
    runs.count = runs.heads = 0;
  }
}

// Blocks that leave pairs in another order: they are brought into it first, then turned there.
template <class T>
HWY_NOINLINE void Reorder(const RotateCall& call, const RotaryTables& t, Index batch, Index token) {
  const bool split = LayoutOf(t, true, call.sense).step == 1;
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr) continue;
    const T* x = static_cast<const T*>(in.data) + batch * in.batch_stride +
                 token * in.token_stride + t.offset * in.dim_stride;
    T* y = static_cast<T*>(out.data) + batch * out.batch_stride + token * out.token_stride +
           t.offset * out.dim_stride;
    for (Index h = 0; h < in.heads; ++h, x += in.head_stride, y += out.head_stride) {
      if (in.data == out.data)
        split ? Unzip(y, out.dim_stride, t.pairs) : ZipPairs(y, out.dim_stride, t.pairs);
      else
        CopyPairs(x, in.dim_stride, y, out.dim_stride, t.pairs, split);
    }
  }
}

template <class T>
HWY_INLINE void TurnToken(const RotateCall& call, Index block, const Route& route, Index batch,
                          Index token, Index heads, Scratch<Compute<T>>& scratch) {
  using C = Compute<T>;
  const RotaryTables& t = call.blocks[block];
  TokenPosition p;
  p.fractional = false;
  if (call.positions != nullptr) read_position(*call.positions, t.axes, batch, token, p);
  if (LayoutOf(t, false, call.sense).step != LayoutOf(t, true, call.sense).step)
    Reorder<T>(call, t, batch, token);
  for (Index head = 0; head < heads; ++head) {
    for (Index first = 0; first < t.pairs; first += kChunk) {
      Chunk<C> chunk;
      chunk.first = first, chunk.n = t.pairs - first < kChunk ? t.pairs - first : kChunk;
      chunk.same = true, chunk.zipped = false;
      const C *c = scratch.cos_a, *s = scratch.sin_a;
      chunk.f = {c, s, c, s};
      if (call.rows.kind == RowSource::Kind::plan) {
        PlanRow(call, block, batch, token, head, first, chunk.n, scratch.cos_a, scratch.sin_a, &c,
                &s);
        chunk.f = {c, s, c, s};
      } else if (call.rows.kind == RowSource::Kind::caller) {
        chunk.same = CallerRow(call, t, batch, token, head, first, chunk.n, scratch.cos_a,
                               scratch.sin_a, scratch.cos_b, scratch.sin_b);
        if (!chunk.same) chunk.f.cos_b = scratch.cos_b, chunk.f.sin_b = scratch.sin_b;
      } else {
        const Factor f = FactorOf(t, call.sense, false);
        Phase(t, t.heads > 1 ? head : 0, p, first, chunk.n, f.cosine, f.sine, scratch.cos_a,
              scratch.sin_a);
      }
      TurnBoth<T>(call, t, route, p, batch, token, head, chunk, scratch);
    }
  }
}

template <class T>
HWY_NOINLINE void CopyGaps(const RotateCall& call, const Route& route, Index batch, Index token) {
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr || in.data == out.data || route.stream[which]) continue;
    const T* x = static_cast<const T*>(in.data) + batch * in.batch_stride + token * in.token_stride;
    T* y = static_cast<T*>(out.data) + batch * out.batch_stride + token * out.token_stride;
    for (Index h = 0; h < in.heads; ++h, x += in.head_stride, y += out.head_stride)
      for (std::int32_t g = 0; g < call.gap_count; ++g) {
        const Gap gap = call.gaps[g];
        if (in.dim_stride == 1 && out.dim_stride == 1)
          std::memcpy(y + gap.begin, x + gap.begin,
                      static_cast<std::size_t>(gap.end - gap.begin) * sizeof(T));
        else
          for (Index i = gap.begin; i < gap.end; ++i) y[i * out.dim_stride] = x[i * in.dim_stride];
      }
  }
}

template <class T>
HWY_INLINE void RotateToken(const RotateCall& call, const Route& route, Index batch, Index token,
                            Index heads, Scratch<Compute<T>>& scratch) {
  if (call.gap_count > 0) CopyGaps<T>(call, route, batch, token);
  for (std::int32_t n = 0; n < call.block_count; ++n) {
    const bool each = call.blocks[n].heads > 1 || call.rows.cos.head_stride != 0;
    TurnToken<T>(call, n, route, batch, token, each ? heads : 1, scratch);
  }
}

template <class T>
HWY_INLINE void RotateTokens(const RotateCall& call, Index begin, Index end) {
  const QK& in = *call.in;
  const Heads& shape = in.q.data != nullptr ? in.q : in.k;
  const Index most = in.q.data == nullptr || (in.k.data != nullptr && in.k.heads > in.q.heads)
                         ? in.k.heads
                         : in.q.heads;
  const Route route = RouteOf<T>(call);
  Scratch<Compute<T>> scratch;
  Index batch = begin / shape.tokens, token = begin % shape.tokens;
  for (Index r = begin; r < end; ++r) {
    RotateToken<T>(call, route, batch, token, most, scratch);
    if (++token == shape.tokens) token = 0, ++batch;
  }
  if (call.stream) {
    for (Streamer& s : scratch.stream) Flush(s);
    hwy::FlushStream();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
