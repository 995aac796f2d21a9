// SPDX-License-Identifier: Apache-2.0
// The rotation of tokens [begin, end): for each token the coefficients of its pairs (phase, rows
// or the caller's), then all heads of q and k with the coefficients in registers.
#include <cmath>
#include <cstring>

#include "kernels/reorder.h"
#include "kernels/rotate.h"
#include "kernels/rotate_chunk-inl.h"
#include "kernels/rotate_path-inl.h"

#if defined(POSENC_KERNELS_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_INL_H_
#undef POSENC_KERNELS_ROTATE_INL_H_
#else
#define POSENC_KERNELS_ROTATE_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A few heads at a time are rotated into a buffer and streamed from there in the order of memory.
// Streaming straight from the rotation leaves lines half written where heads are not made of whole
// lines or only a part of a head rotates.
template <class T>
HWY_NOINLINE void StreamHeads(const RotateCall& call, const Chunk<Compute<T>>& chunk,
                              const TokenHeads<T>& h, PairLayout order, Index ahead,
                              Streamer& streamer) {
  auto* buffer = reinterpret_cast<T*>(streamer.memory + kLine);
  const auto size = static_cast<Index>(sizeof(T));
  const Index dim = call.blocks[0].head_dim, offset = call.blocks[0].offset;
  Index group = h.y_stride == dim ? kStreamGroup / (dim * size) : 1;
  if (group < 1) group = 1;
  HeadRuns<T> part;
  part.count = 1, part.ahead = ahead, part.around[0] = 0;
  for (Index first = 0; first < h.heads; first += group) {
    part.heads = h.heads - first < group ? h.heads - first : group;
    part.run[0] = {h.x + first * h.x_stride, buffer + offset, part.heads, h.x_stride, dim};
    for (Index i = 0; i < part.heads; ++i)
      for (std::int32_t g = 0; g < call.gap_count; ++g)
        std::memcpy(buffer + i * dim + call.gaps[g].begin,
                    part.run[0].x - offset + i * h.x_stride + call.gaps[g].begin,
                    static_cast<std::size_t>((call.gaps[g].end - call.gaps[g].begin) * size));
    RotateRuns(chunk, part, order, 1, 1);
    StreamBytes(streamer, reinterpret_cast<std::uint8_t*>(h.y - offset + first * h.y_stride),
                part.heads * dim * size);
  }
}

// xPos (arXiv:2212.10554, eq. 16): q grows by 2^(log2_decay * (p - centre) / scale), k shrinks.
template <class C>
HWY_INLINE void Decay(const RotateCall& call, const RotaryTables& t, const TokenPosition& p,
                      bool key, const Chunk<C>& chunk, C* cosine, C* sine) {
  const double center = call.mode == RotateMode::shift ? 0 : t.decay_center;
  double power = (RealPosition(p, 0) - center) / t.decay_scale;
  if (key != (call.mode == RotateMode::inverse)) power = -power;
  for (Index i = 0; i < chunk.n; ++i) {
    const C decay = static_cast<C>(std::exp2(t.log2_decay[chunk.first + i] * power));
    cosine[i] = chunk.f.cos_a[i] * decay;
    sine[i] = chunk.f.sin_a[i] * decay;
  }
}

// In place, heads one behind the other, some of them prefetched before as many are rotated.
template <class T>
HWY_NOINLINE void RotatePrefetched(const Chunk<Compute<T>>& chunk, const TokenHeads<T>& h,
                                   Index offset, PairLayout order, Index at_once) {
  const auto size = static_cast<Index>(sizeof(T));
  TokenHeads<T> part = h;
  for (Index first = 0; first < h.heads; first += at_once) {
    part.heads = h.heads - first < at_once ? h.heads - first : at_once;
    part.x = h.x + first * h.x_stride, part.y = h.y + first * h.y_stride;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(part.x - offset);
    for (Index i = 0; i < part.heads * h.x_stride * size; i += kLine)
      __builtin_prefetch(bytes + kPrefetchPartsAhead + i, 0, 2);
    RotateRuns(chunk, part, order, 1, 1);
  }
}

// A call whose tensors lie in memory.
template <class T>
HWY_NOINLINE void RotateLarge(const RotateCall& call, const RotatePath& path, int which,
                              const Chunk<Compute<T>>& chunk, Scratch<Compute<T>>& scratch,
                              const NonTemporalRuns<T>& runs, PairLayout order) {
  const Heads& in = which == 0 ? call.in->q : call.in->k;
  const Heads& out = which == 0 ? call.out->q : call.out->k;
  if (path.together && path.stream[which])
    RotateRuns(chunk, runs, order, 1, 1);
  else if (path.stream[which])
    StreamHeads<T>(call, chunk, runs.run[0], order, runs.ahead, scratch.stream[which]);
  else
    RotateRuns(chunk, Temporal(runs), order, path.together ? 1 : in.dim_stride,
               path.together ? 1 : out.dim_stride);
}

template <class T>
HWY_INLINE void RotateQueryAndKey(const RotateCall& call, const RotaryTables& t,
                                  const RotatePath& path, const TokenPosition& p, Index batch,
                                  Index token, Index head, Chunk<Compute<T>>& chunk,
                                  Scratch<Compute<T>>& scratch) {
  using C = Compute<T>;
  const bool each = t.heads > 1 || call.rows->cos.head_stride != 0;
  const PairLayout order = LayoutOf(t, true, call.mode);
  const bool reordered = LayoutOf(t, false, call.mode).step != order.step;
  NonTemporalRuns<T> runs;
  for (int which = 0; which < 2; ++which) {
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    const Heads& in = reordered ? out : which == 0 ? call.in->q : call.in->k;
    const bool there = in.data != nullptr && head < in.heads;
    const bool gathered = which == 1 && path.together && runs.count > 0;
    if (!there && !gathered) continue;
    const Chunk<C>* rotated = &chunk;
    Chunk<C> decayed;
    if (t.log2_decay != nullptr) {
      decayed = chunk;
      decayed.prepared = false;
      decayed.f = {scratch.cos_b, scratch.sin_b, scratch.cos_b, scratch.sin_b};
      Decay(call, t, p, which == 1, chunk, scratch.cos_b, scratch.sin_b);
      rotated = &decayed;
    }
    PrepareCoefficients<TokenHeads<T>>(t.log2_decay != nullptr ? decayed : chunk, order);
    TokenHeads<T> h;
    if (there)
      h = HeadsOf<T>(t, in, out, batch, token, head, each ? 1 : in.heads, chunk.first, order);
    if (path.plain && path.prefetched[which] > 0 && chunk.first == 0) {
      RotatePrefetched<T>(*rotated, h, t.offset, order, path.prefetched[which]);
      continue;
    }
    if (path.plain) {
      RotateRuns(*rotated, h, order, in.dim_stride, out.dim_stride);
      continue;
    }
    runs.ahead = path.ahead[which] / static_cast<Index>(sizeof(T));
    if (there) AddHeadRuns(h, path.per[which], in.token_stride, runs);
    if (path.together && which == 0) continue;
    RotateLarge<T>(call, path, which, *rotated, scratch, runs, order);
    runs.count = runs.heads = 0;
  }
}

// Blocks that leave pairs in another order: they are brought into it first, then rotated there.
template <class T>
HWY_NOINLINE void Reorder(const RotateCall& call, const RotaryTables& t, Index batch, Index token) {
  const bool split = LayoutOf(t, true, call.mode).step == 1;
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
        split ? Deinterleave(y, out.dim_stride, t.pairs) : Interleave(y, out.dim_stride, t.pairs);
      else
        CopyPairs(x, in.dim_stride, y, out.dim_stride, t.pairs, split);
    }
  }
}

template <class T>
HWY_INLINE void RotateBlock(const RotateCall& call, Index block, const RotatePath& path,
                            Index batch, Index token, Index heads, Scratch<Compute<T>>& scratch) {
  const RotaryTables& t = call.blocks[block];
  TokenPosition p;
  p.fractional = false;
  if (call.positions != nullptr) read_position(*call.positions, t.axes, batch, token, p);
  if (LayoutOf(t, false, call.mode).step != LayoutOf(t, true, call.mode).step)
    Reorder<T>(call, t, batch, token);
  const CoefficientScratch<Compute<T>> buffers = {scratch.cos_a,           scratch.sin_a,
                                                  scratch.cos_b,           scratch.sin_b,
                                                  scratch.cos_interleaved, scratch.signed_sin};
  const CoefficientSource source = call.source(block);
  for (Index head = 0; head < heads; ++head)
    for (Index first = 0; first < t.pairs; first += kChunk) {
      Chunk<Compute<T>> chunk = CoefficientsOf(source, p, batch, token, head, first, buffers);
      RotateQueryAndKey<T>(call, t, path, p, batch, token, head, chunk, scratch);
    }
}

template <class T>
HWY_NOINLINE void CopyGaps(const RotateCall& call, const RotatePath& path, Index batch,
                           Index token) {
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr || in.data == out.data || path.stream[which]) continue;
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

// Where memory is read sequentially: a token's part of the heads that come next, into the second
// cache, whole heads. Behind the last one those of the token after all of these are next.
template <class T>
HWY_INLINE void PrefetchHeads(const Heads& in, const T* x, Index head, Index tokens) {
  const Index bytes = in.dim * static_cast<Index>(sizeof(T));
  for (Index h = head; h < head + kBlockHeads && h < 2 * in.heads; ++h) {
    const T* next = h < in.heads ? x + h * in.head_stride
                                 : x + (h - in.heads) * in.head_stride + tokens * in.token_stride;
    for (Index i = 0; i < bytes; i += kLine)
      __builtin_prefetch(reinterpret_cast<const std::uint8_t*>(next) + i, 0, 2);
  }
}

// Tokens [token, token + count) where heads lie far apart: a few heads of all of them, then the
// next heads, so that memory is read by more than a head of one token at a place.
template <class T>
HWY_NOINLINE void RotateFarHeads(const RotateCall& call, const RotatePath& path, Index batch,
                                 Index token, Index count) {
  using C = Compute<T>;
  const RotaryTables& t = call.blocks[0];
  const PairLayout order = LayoutOf(t, true, call.mode);
  constexpr Index n = kBlockPairs + kPadding;
  alignas(64) C memory[kBlockTokens][8 * n];
  Chunk<C> chunks[kBlockTokens];
  for (Index j = 0; j < count; ++j) {
    C* m = memory[j];
    TokenPosition p;
    p.fractional = false;
    if (call.positions != nullptr) read_position(*call.positions, t.axes, batch, token + j, p);
    if (call.gap_count > 0) CopyGaps<T>(call, path, batch, token + j);
    chunks[j] = CoefficientsOf<C>(call.source(0), p, batch, token + j, 0, 0,
                                  {m, m + n, m + 2 * n, m + 3 * n, m + 4 * n, m + 6 * n});
    PrepareCoefficients<TokenHeads<T>>(chunks[j], order);
  }
  NonTemporalRuns<T> runs;
  runs.count = 1, runs.around[0] = 0;
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr) continue;
    const T* first = static_cast<const T*>(in.data) + batch * in.batch_stride;
    const bool sequential = call.access == AccessPattern::sequential;
    runs.ahead = path.ahead[which] / static_cast<Index>(sizeof(T));
    for (Index head = 0; head < in.heads; head += kBlockHeads) {
      runs.heads = in.heads - head < kBlockHeads ? in.heads - head : kBlockHeads;
      for (Index j = 0; j < count; ++j) {
        if (sequential)
          PrefetchHeads(in, first + (token + j) * in.token_stride, head + kBlockHeads, count);
        runs.run[0] = HeadsOf<T>(t, in, out, batch, token + j, head, runs.heads, 0, order);
        if (path.stream[which])
          RotateRuns(chunks[j], runs, order, 1, 1);
        else
          RotateRuns(chunks[j], Temporal(runs), order, 1, 1);
      }
    }
  }
}

template <class T>
HWY_INLINE void PrefetchFirst(const Heads& in, Index batch, Index token) {
  if (in.data == nullptr || in.dim_stride != 1) return;
  PrefetchLines(static_cast<const T*>(in.data) + batch * in.batch_stride + token * in.token_stride,
                kPrefetchFirst / static_cast<Index>(sizeof(T)));
}

template <class T>
HWY_INLINE void RotateToken(const RotateCall& call, const RotatePath& path, Index batch,
                            Index token, Index heads, Scratch<Compute<T>>& scratch) {
  if (call.large && call.access == AccessPattern::sequential) {
    PrefetchFirst<T>(call.in->q, batch, token);
    PrefetchFirst<T>(call.in->k, batch, token);
  }
  if (call.gap_count > 0) CopyGaps<T>(call, path, batch, token);
  for (std::int32_t n = 0; n < call.block_count; ++n) {
    const bool each = call.blocks[n].heads > 1 || call.rows->cos.head_stride != 0;
    RotateBlock<T>(call, n, path, batch, token, each ? heads : 1, scratch);
  }
}

// Prefetches the row of the token that is rotated next, unless it follows the last one: then the
// machine does so by itself.
HWY_INLINE void PrefetchRow(const RowSource& rows, Index batch, Index token, Index* last) {
  Index row = integer_position(*rows.index, 0, batch, token);
  const bool follows = row == *last + 1;
  *last = row;
  if (follows) return;
  const auto* data = static_cast<const std::uint8_t*>(rows.cos.data);
  const auto bytes = rows.cos.token_stride * static_cast<Index>(size_of(rows.cos.dtype));
  for (Index i = 0; i < bytes && i < kMaxPrefetchedRow; i += kLine)
    hwy::Prefetch(data + row * bytes + i);
}

template <class T>
void RotateTokens(const RotateCall& call, Index begin, Index end) {
  const QK& in = *call.in;
  const Heads& shape = in.q.data != nullptr ? in.q : in.k;
  const Index most = in.q.data == nullptr || (in.k.data != nullptr && in.k.heads > in.q.heads)
                         ? in.k.heads
                         : in.q.heads;
  const RotatePath path = PathOf<T>(call);
  Scratch<Compute<T>> scratch;
  Index batch = begin / shape.tokens, token = begin % shape.tokens;
  for (Index r = begin; r < end && path.block;) {
    Index count = shape.tokens - token < end - r ? shape.tokens - token : end - r;
    if (count > kBlockTokens) count = kBlockTokens;
    RotateFarHeads<T>(call, path, batch, token, count);
    r += count, token += count;
    if (token == shape.tokens) token = 0, ++batch;
  }
  const bool by_position = call.large && call.rows->kind == RowSource::Kind::plan &&
                           call.rows->index != nullptr && call.rows->pair_axis == nullptr;
  Index row = -1;
  for (Index r = begin; r < end && !path.block; ++r) {
    const bool last = token + 1 == shape.tokens;
    const Index next = last ? 0 : token + 1, next_batch = last ? batch + 1 : batch;
    if (by_position && r + 1 < end) PrefetchRow(*call.rows, next_batch, next, &row);
    RotateToken<T>(call, path, batch, token, most, scratch);
    token = next, batch = next_batch;
  }
  if (call.stream) {
    for (Streamer& s : scratch.stream) Flush(s);
    hwy::FlushStream();
  }
}

template <class T>
inline constexpr RotateKernels kRotateKernels{RotateTokens<T>};

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
