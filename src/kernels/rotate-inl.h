// SPDX-License-Identifier: Apache-2.0
// The rotation of tokens [begin, end): for each token the coefficients of its pairs (phase, rows
// or the caller's), then all heads of q and k with the coefficients in registers.
#include <cmath>
#include <cstring>

#include "kernels/coefficients-inl.h"
#include "kernels/phase-inl.h"
#include "kernels/reorder.h"
#include "kernels/rotate.h"
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

// Bytes that are turned before they are streamed (more than that, and reading waits for writing),
// the widest head that is streamed, and a line of the cache.
inline constexpr Index kStreamGroup = 1024, kStreamBuffer = 8 * 1024, kLine = 64;

struct Streamer {
  alignas(64) std::uint8_t memory[kLine + kStreamBuffer];
  std::uint8_t* next = nullptr;  // behind the last byte given
  Index pending = 0;             // of these not written yet, before memory + kLine
};

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

template <class T>
HWY_INLINE void TurnFast(const Chunk<Compute<T>>& chunk, const Scratch<Compute<T>>& scratch,
                         const TokenHeads<T>& h, PairLayout layout) {
#if HWY_TARGET == HWY_SCALAR
  (void)scratch;
  if (layout.step == 2) return TurnPlain<T>(chunk.f, h, layout, layout, 0, chunk.n);
  if constexpr (kIsBFloat16<T>)
    TurnPlain<T>(chunk.f, h, layout, layout, 0, chunk.n);
  else
    TurnHalf<T>(chunk.f, h, layout.member, chunk.n);
#else
  if constexpr (kIsBFloat16<T>) {
    (void)scratch;
    if (layout.step == 2)
      TurnInterleavedBFloat16<T>(chunk.f, h, chunk.n);
    else
      TurnHalfBFloat16<T>(chunk.f, h, layout.member, chunk.n);
  } else {
    if (layout.step == 2)
      TurnInterleaved<T>(chunk.f, scratch.along, scratch.across, h, chunk.n);
    else
      TurnHalf<T>(chunk.f, h, layout.member, chunk.n);
  }
#endif
}

// Any strides and members: by vectors where it can be.
template <class T>
HWY_INLINE void TurnHeads(const Chunk<Compute<T>>& chunk, const Scratch<Compute<T>>& scratch,
                          const TokenHeads<T>& h, PairLayout order, Index in_dim, Index out_dim) {
  const bool exact_members = chunk.same || (order.step == 2 && !kIsBFloat16<T>);
  if (in_dim == 1 && out_dim == 1 && exact_members)
    TurnFast<T>(chunk, scratch, h, order);
  else
    TurnPlain<T>(chunk.f, h, {order.step * in_dim, order.member * in_dim},
                 {order.step * out_dim, order.member * out_dim}, 0, chunk.n);
}

// Writes `bytes` new ones, which lie at line + kLine, to `to`: whole lines around the cache. The
// rest waits for what follows it; a line that is half streamed, half stored costs 200 ns.
HWY_INLINE void Flush(Streamer& s) {
  if (s.pending > 0)
    std::memcpy(s.next - s.pending, s.memory + kLine - s.pending,
                static_cast<std::size_t>(s.pending));
  s.pending = 0;
}
HWY_INLINE void StreamBytes(Streamer& s, std::uint8_t* to, Index bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Index unit = lanes > kLine ? lanes : kLine;
  if (to != s.next) Flush(s);
  const std::uint8_t* from = s.memory + kLine - s.pending;
  to -= s.pending;
  bytes += s.pending;
  Index i = -static_cast<Index>(reinterpret_cast<std::uintptr_t>(to)) & (unit - 1);
  if (i > bytes) i = bytes;
  std::memcpy(to, from, static_cast<std::size_t>(i));
  for (; i + unit <= bytes; i += unit)
    for (Index j = i; j < i + unit; j += lanes) hn::Stream(hn::LoadU(d, from + j), d, to + j);
  s.pending = bytes - i;
  if (s.pending > kLine) {  // vectors longer than a line
    std::memcpy(to + i, from + i, static_cast<std::size_t>(s.pending));
    s.pending = 0;
  }
  std::memmove(s.memory + kLine - s.pending, from + i, static_cast<std::size_t>(s.pending));
  s.next = to + bytes;
}

// Whether a tensor is written around the cache: one block that turns all heads alike.
template <class T>
HWY_INLINE bool Streamed(const RotateCall& call, const Heads& in, const Heads& out) {
  if (!call.stream || in.data == out.data || call.block_count != 1) return false;
  const RotaryTables& t = call.blocks[0];
  return in.dim_stride == 1 && out.dim_stride == 1 && t.pairs <= kChunk && t.heads == 1 &&
         t.output_order == OutputOrder::in_place && call.rows.cos.head_stride == 0 &&
         in.dim * static_cast<Index>(sizeof(T)) <= kStreamBuffer;
}

// A few heads at a time are turned into a buffer and streamed from there in the order of memory.
// Streaming straight from the turn leaves lines half written wherever the output is not aligned
// or only a part of a head turns.
template <class T>
HWY_NOINLINE void StreamHeads(const RotateCall& call, const Chunk<Compute<T>>& chunk,
                              const Scratch<Compute<T>>& scratch, const TokenHeads<T>& h,
                              PairLayout order, Index dim, Index offset, Streamer& streamer) {
  auto* buffer = reinterpret_cast<T*>(streamer.memory + kLine);
  const auto size = static_cast<Index>(sizeof(T));
  const bool dense = h.y_stride == dim;
  Index group = dense ? kStreamGroup / (dim * size) : 1;
  if (group < 1) group = 1;
  for (Index first = 0; first < h.heads; first += group) {
    TokenHeads<T> part = h;
    part.heads = h.heads - first < group ? h.heads - first : group;
    part.x = h.x + first * h.x_stride;
    part.y = buffer + offset, part.y_stride = dim;
    for (Index i = 0; i < part.heads; ++i)
      for (std::int32_t g = 0; g < call.gap_count; ++g)
        std::memcpy(buffer + i * dim + call.gaps[g].begin,
                    part.x - offset + i * h.x_stride + call.gaps[g].begin,
                    static_cast<std::size_t>((call.gaps[g].end - call.gaps[g].begin) * size));
    TurnHeads<T>(chunk, scratch, part, order, 1, 1);
    StreamBytes(streamer, reinterpret_cast<std::uint8_t*>(h.y - offset + first * h.y_stride),
                part.heads * dim * size);
  }
}

// One token of one tensor, heads [head, head + count).
template <class T>
HWY_INLINE void TurnTensor(const RotateCall& call, const RotaryTables& t, int which,
                           const Heads& in, const Heads& out, Index batch, Index token, Index head,
                           Index count, Chunk<Compute<T>>& chunk, Scratch<Compute<T>>& scratch) {
  const PairLayout order = LayoutOf(t, true, call.sense);
  TokenHeads<T> h;
  h.x = static_cast<const T*>(in.data) + batch * in.batch_stride + token * in.token_stride +
        head * in.head_stride + (t.offset + chunk.first * order.step) * in.dim_stride;
  h.y = static_cast<T*>(out.data) + batch * out.batch_stride + token * out.token_stride +
        head * out.head_stride + (t.offset + chunk.first * order.step) * out.dim_stride;
  h.heads = count, h.x_stride = in.head_stride, h.y_stride = out.head_stride;
  if (order.step == 2 && !kIsBFloat16<T> && !chunk.zipped) Zip(chunk, scratch);
  if (Streamed<T>(call, in, out))
    StreamHeads<T>(call, chunk, scratch, h, order, in.dim, t.offset, scratch.stream[which]);
  else
    TurnHeads<T>(chunk, scratch, h, order, in.dim_stride, out.dim_stride);
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

template <class T>
HWY_INLINE void TurnBoth(const RotateCall& call, const RotaryTables& t, const TokenPosition& p,
                         Index batch, Index token, Index head, Chunk<Compute<T>>& chunk,
                         Scratch<Compute<T>>& scratch) {
  using C = Compute<T>;
  const bool each = t.heads > 1 || call.rows.cos.head_stride != 0;
  const bool reordered = LayoutOf(t, false, call.sense).step != LayoutOf(t, true, call.sense).step;
  for (int which = 0; which < 2; ++which) {
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    const Heads& in = reordered ? out : which == 0 ? call.in->q : call.in->k;
    if (in.data == nullptr || head >= in.heads) continue;
    const Index count = each ? 1 : in.heads;
    if (t.log2_decay == nullptr) {
      TurnTensor<T>(call, t, which, in, out, batch, token, head, count, chunk, scratch);
      continue;
    }
    Chunk<C> decayed = chunk;
    decayed.zipped = false;
    decayed.f = {scratch.cos_b, scratch.sin_b, scratch.cos_b, scratch.sin_b};
    Decay(call, t, p, which == 1, chunk, scratch.cos_b, scratch.sin_b);
    TurnTensor<T>(call, t, which, in, out, batch, token, head, count, decayed, scratch);
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
HWY_INLINE void TurnToken(const RotateCall& call, Index block, Index batch, Index token,
                          Index heads, Scratch<Compute<T>>& scratch) {
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
      TurnBoth<T>(call, t, p, batch, token, head, chunk, scratch);
    }
  }
}

template <class T>
HWY_NOINLINE void CopyGaps(const RotateCall& call, Index batch, Index token) {
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr || in.data == out.data || Streamed<T>(call, in, out)) continue;
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
HWY_INLINE void RotateToken(const RotateCall& call, Index batch, Index token, Index heads,
                            Scratch<Compute<T>>& scratch) {
  if (call.gap_count > 0) CopyGaps<T>(call, batch, token);
  for (std::int32_t n = 0; n < call.block_count; ++n) {
    const bool each = call.blocks[n].heads > 1 || call.rows.cos.head_stride != 0;
    TurnToken<T>(call, n, batch, token, each ? heads : 1, scratch);
  }
}

template <class T>
HWY_INLINE void RotateTokens(const RotateCall& call, Index begin, Index end) {
  const QK& in = *call.in;
  const Heads& shape = in.q.data != nullptr ? in.q : in.k;
  const Index most = in.q.data == nullptr || (in.k.data != nullptr && in.k.heads > in.q.heads)
                         ? in.k.heads
                         : in.q.heads;
  Scratch<Compute<T>> scratch;
  Index batch = begin / shape.tokens, token = begin % shape.tokens;
  for (Index r = begin; r < end; ++r) {
    RotateToken<T>(call, batch, token, most, scratch);
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
