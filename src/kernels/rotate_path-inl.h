// SPDX-License-Identifier: Apache-2.0
// The path through tensors that lie in memory rather than in the cache: the heads of a token in
// runs a page apart or in sequence, outputs around the cache.
#include <cstring>

#include "kernels/rotate.h"
#include "kernels/rotate_heads-inl.h"
#include "kernels/token.h"

#if defined(POSENC_KERNELS_ROUTE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROUTE_INL_H_
#undef POSENC_KERNELS_ROUTE_INL_H_
#else
#define POSENC_KERNELS_ROUTE_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bytes that are rotated before they are streamed (more than that, and reading waits for writing),
// the widest head that is streamed, and a line of the cache.
inline constexpr Index kStreamGroup = 1024, kStreamBuffer = 8 * 1024, kLine = 64;
// A run of heads is a page or more. Bytes that input is prefetched ahead, in one run and in several
// (there what would lie behind the end of a run is prefetched in the next token); beside streams of
// writing nothing is, they compete. Heads a page and more apart: that many of them ahead. Heads that
// are rotated whole take longer each, and want input earlier.
inline constexpr Index kPage = 4096, kPrefetchBytes = 2048,
                       kPrefetchRunBytes = kWholeHeads ? 2048 : 1024, kPrefetchHeads = 3;
// Where memory is read sequentially and heads are rotated whole in place.
inline constexpr Index kPrefetchSequential = 4096;
// Where memory is read sequentially: bytes of a token that are prefetched before its phase is made,
// or memory would wait meanwhile.
inline constexpr Index kPrefetchFirst = 256;
// Where only a part of each head rotates, the lines between end the machine's own streams of
// reading: whole heads are prefetched that many bytes ahead, into the second cache, that many at a
// time.
inline constexpr Index kPrefetchPartsAhead = 8192, kPrefetchPartsBytes = 1024;
// Of a table's row, while the token before it is rotated: 64 pairs in float32 twice.
inline constexpr Index kMaxPrefetchedRow = 1024;

// Where heads lie far apart: tokens held at once, the pairs of each at most, and heads that are
// rotated for one of them before the next (sequential: while as many more are prefetched).
inline constexpr Index kBlockTokens = 8, kBlockPairs = 128, kBlockHeads = 4;

// The path through the heads of a token, the same for all tokens of a call.
struct RotatePath {
  bool plain = true;      // one head after the other, as in the cache
  bool block = false;     // heads far apart: several tokens at once
  bool together = false;  // q and k in one, else one after the other
  Index per[2] = {0, 0};  // heads a run, of q and k; 0: all
  bool stream[2] = {false, false};
  Index ahead[2] = {0, 0};       // bytes
  Index prefetched[2] = {0, 0};  // heads that are prefetched at once (plain only); 0: none is
};

struct Streamer {
  alignas(64) std::uint8_t memory[kLine + kStreamBuffer];
  std::uint8_t* next = nullptr;  // behind the last byte given
  Index pending = 0;             // of these not written yet, before memory + kLine
};

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
  if (i > 0) std::memcpy(to, from, static_cast<std::size_t>(i));
  for (; i + unit <= bytes; i += unit)
    for (Index j = i; j < i + unit; j += lanes) hn::Stream(hn::LoadU(d, from + j), d, to + j);
  s.pending = bytes - i;
  if (s.pending > kLine) {  // vectors longer than a line
    std::memcpy(to + i, from + i, static_cast<std::size_t>(s.pending));
    s.pending = 0;
  }
  if (s.pending > 0)
    std::memmove(s.memory + kLine - s.pending, from + i, static_cast<std::size_t>(s.pending));
  s.next = to + bytes;
}

// Whether a tensor is written around the cache: one block that rotates all heads alike.
template <class T>
HWY_INLINE bool Streamed(const RotateCall& call, const Heads& in, const Heads& out) {
  if (!call.stream || in.data == out.data || call.block_count != 1) return false;
  const RotaryTables& t = call.blocks[0];
  return in.dim_stride == 1 && out.dim_stride == 1 && t.pairs <= kChunk && t.heads == 1 &&
         t.output_order == OutputOrder::in_place && call.rows->cos.head_stride == 0 &&
         in.dim * static_cast<Index>(sizeof(T)) <= kStreamBuffer;
}

// Whether the members of the pairs of each head are whole lines of the cache.
template <class T>
HWY_INLINE bool WholeLines(const RotateCall& call, const Heads& out) {
  const auto size = static_cast<Index>(sizeof(T));
  const Index bytes =
      (call.blocks[0].pairs | out.head_stride | out.token_stride | out.batch_stride) * size;
  if (call.gap_count > 0) return false;
  return ((reinterpret_cast<std::uintptr_t>(out.data) | static_cast<std::uintptr_t>(bytes)) &
          (kLine - 1)) == 0;
}

// Runs of a token that are a page apart; everything in one where memory is read sequentially.
template <class T>
HWY_INLINE void SplitIntoRuns(const RotateCall& call, Index bytes, RotatePath& r) {
  if (call.access == AccessPattern::sequential) return;
  const auto size = static_cast<Index>(sizeof(T));
  const Index run = bytes / (kMaxRuns - 2) > kPage ? bytes / (kMaxRuns - 2) : kPage;
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    if (in.data != nullptr && in.heads > 0)
      r.per[which] = (run + in.head_stride * size - 1) / (in.head_stride * size);
  }
}

// Heads to prefetch at once, or 0. Where less than two fifths of a head rotate, the lines that
// nobody reads cost more than the machine's waiting for the others.
template <class T>
HWY_INLINE Index PrefetchedHeads(const RotateCall& call, const Heads& in, const Heads& out) {
  if (call.gap_count == 0 || call.block_count != 1 || in.data != out.data || in.dim_stride != 1 ||
      in.head_stride != in.dim || 2 * call.blocks[0].pairs * 5 < in.dim * 2)
    return 0;
  const Index heads = kPrefetchPartsBytes / (in.dim * static_cast<Index>(sizeof(T)));
  return heads > 0 ? heads : 1;
}

// Whether all of each head rotates where it lies, and heads lie one behind the other.
HWY_INLINE bool WholeInPlace(const RotateCall& call) {
  if (call.gap_count > 0) return false;
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr) continue;
    if (in.data != out.data || in.dim_stride != 1 || in.head_stride != in.dim) return false;
  }
  return true;
}

template <class T>
HWY_INLINE RotatePath PathOf(const RotateCall& call) {
  RotatePath r;
  if (!call.large) return r;
  const bool pages = call.access == AccessPattern::interleave_pages;
  const auto size = static_cast<Index>(sizeof(T));
  Index bytes = 0;
  const RotaryTables* t = call.block_count == 1 ? call.blocks : nullptr;
  r.block = t != nullptr && t->pairs <= kBlockPairs && t->output_order == OutputOrder::in_place;
  bool runs = call.rows->cos.head_stride == 0, first = true, stream = false;
  for (std::int32_t n = 0; n < call.block_count; ++n)
    runs = runs && call.blocks[n].heads == 1 && call.blocks[n].log2_decay == nullptr;
  const bool of_call = runs;
  for (int which = 0; which < 2; ++which) {
    const Heads& in = which == 0 ? call.in->q : call.in->k;
    const Heads& out = which == 0 ? call.out->q : call.out->k;
    if (in.data == nullptr || in.heads == 0) continue;
    r.stream[which] = Streamed<T>(call, in, out);
    runs = runs && (first || r.stream[which] == stream) && in.dim_stride == 1 &&
           out.dim_stride == 1 && in.head_stride > 0 && in.head_stride * size < kPage &&
           (!r.stream[which] || WholeLines<T>(call, out));
    first = false, stream = r.stream[which];
    const Index stride = in.head_stride * size;
    const bool far = stride >= kPage || stride <= -kPage;
    r.ahead[which] = !pages ? 0 : far ? kPrefetchHeads * stride : kPrefetchBytes;
    const Index step = in.token_stride * size;
    r.block = r.block && far && step < kPage && step > -kPage && in.dim_stride == 1 &&
              out.dim_stride == 1 && (!r.stream[which] || WholeLines<T>(call, out));
    bytes += in.heads * stride;
    if (!pages) r.prefetched[which] = PrefetchedHeads<T>(call, in, out);
  }
  // As far as the conditions of runs are of the call rather than of memory, blocks have them too.
  r.block = r.block && of_call;
  r.plain = !pages && !r.block && !r.stream[0] && !r.stream[1];
  if (kWholeHeads && r.plain && of_call && WholeInPlace(call)) {
    r.plain = false, r.ahead[0] = r.ahead[1] = kPrefetchSequential;
    return r;
  }
  if (r.plain || !runs || (pages && bytes < 2 * kPage)) return r;
  SplitIntoRuns<T>(call, bytes, r);
  r.ahead[0] = r.ahead[1] = stream || !pages ? 0 : kPrefetchRunBytes;
  r.together = true;
  r.stream[0] = r.stream[1] = stream;
  return r;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
