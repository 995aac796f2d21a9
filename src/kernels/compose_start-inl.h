// SPDX-License-Identifier: Apache-2.0
// What rows of sines at consecutive positions begin from: exact rows, and how far a step goes.
#include <cstdint>
#include <type_traits>

#include "kernels/compose_window-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_START_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_START_INL_H_
#undef POSENC_KERNELS_COMPOSE_START_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_START_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a position gets depends on nothing but the position. f32: by recurrence in double, one
// position at a time from the exact row of the multiple of kPhaseGroup below it. 16 bits: that row
// is rotated in float by kRun positions at a time to a start, and the recurrence goes from there.
// Every step is arithmetic on one channel, so that no layout needs its channels exchanged.
template <class T>
inline constexpr Index kRun = sizeof(T) == 2 ? phase_run(DType::f16) : phase_run(DType::f32);
// Channels whose starts are kept while a group of positions is made, one span of pairs side by
// side or sines and cosines of the same pairs: few, in the first cache, or sequential as many as
// make long pieces of memory, in the second.
inline constexpr Index kPhaseBlock = 1024, kPhaseBlockSequential = 4096;
// Where the second span of a block begins in a start.
inline constexpr Index kSecondSpan = kPhaseBlockSequential / 2;

// Input is prefetched this many bytes ahead, in the order of the rows: into the first cache, or
// sequential into the second, where rows whole pages apart do not drive each other out.
inline constexpr Index kPhaseAheadPages = 256, kPhaseAheadSequential = 2048;
// Rows that are written alternately when sequential: whole pages apart they are one set of the
// first cache, which holds eight lines.
inline constexpr Index kRowsInterleaved = 8;

// A block of channels at a start, gain in: the row and, for each channel, the sine or cosine of a
// quarter of a turn more. During the recurrence of f32: the row and the next one.
template <class S>
struct PhaseStart {
  static constexpr Index kSize = kPhaseBlockSequential + kPadding;
  alignas(64) S row[kSize], quarter[kSize];
};

// Channels [channel, channel + n) of a phase, kept from `at` on in a start.
struct Span {
  Index at, channel, n;
};

// Vectors reach behind the n channels from `at` on, of which nothing is used.
template <class S>
HWY_INLINE void ClearBehind(PhaseStart<S>& start, Index at, Index n) {
  for (Index i = at + n; i < at + n + kPadding; ++i) start.row[i] = start.quarter[i] = 0;
}

// The exact start of pairs [first, first + n), at most kSecondSpan; returns how many spans they
// are.
template <class S>
HWY_INLINE int ExactStart(const ComposeSource& s, std::uint64_t position, Index first, Index n,
                          PhaseStart<S>& start, Span* span) {
  alignas(64) S c[kChunk + kPadding], sine[kChunk + kPadding];
  const bool interleaved = s.layout == SineLayout::interleaved;
  ClearBehind(start, 0, interleaved ? 2 * n : n);
  if (!interleaved) ClearBehind(start, kSecondSpan, n);
  TokenPosition where{};
  where.whole[0] = position;
  for (Index i = 0; i < n; i += kChunk) {
    const Index chunk = HWY_MIN(kChunk, n - i);
    Phase(s.phase, 0, where, first + i, chunk, s.gain, s.gain, c, sine);
    S *row = start.row + i, *quarter = start.quarter + i;
    if (interleaved) {
      row += i, quarter += i;
      for (Index m = 0; m < chunk; ++m) {
        row[2 * m] = sine[m], row[2 * m + 1] = c[m];
        quarter[2 * m] = c[m], quarter[2 * m + 1] = -sine[m];
      }
    } else {
      for (Index m = 0; m < chunk; ++m) {
        row[m] = sine[m], quarter[m] = c[m];
        row[kSecondSpan + m] = c[m], quarter[kSecondSpan + m] = -sine[m];
      }
    }
  }
  const SineCounts count = sine_counts(s.layout, s.phase.pairs, s.width);
  if (interleaved) {
    span[0] = {0, 2 * first, HWY_MIN(2 * n, count.sines + count.cosines - 2 * first)};
    return 1;
  }
  const bool cosines_first = cosine_first(s.layout);
  const Index sines = HWY_MIN(n, count.sines - first), cosines = HWY_MIN(n, count.cosines - first);
  int spans = 0;
  if (sines > 0) span[spans++] = {0, first + (cosines_first ? count.cosines : 0), sines};
  if (cosines > 0)
    span[spans++] = {kSecondSpan, first + (cosines_first ? 0 : count.sines), cosines};
  return spans;
}

// How far one position and a run rotate a channel, in what the recurrence starts in.
template <class S>
HWY_INLINE const PhaseRotation<S>& RotationOf(const ComposeSource& s) {
  if constexpr (sizeof(S) == 8)
    return s.wide;
  else
    return s.narrow;
}

// A row and a quarter become a row and the next one, for f32.
template <class S>
HWY_INLINE void TakeFirstStep(const ComposeSource& s, const Span& span, PhaseStart<S>& start) {
  const auto& one = RotationOf<S>(s).by_one;
  S *row = start.row + span.at, *next = start.quarter + span.at;
  for (Index l = 0; l < span.n; ++l)
    next[l] = row[l] * one.cosine[span.channel + l] + next[l] * one.sine[span.channel + l];
}

// Where the next visit is: tokens, and the channel that is read first.
template <class T>
struct NextVisit {
  const Token<T>* token;
  Index channel;
  AccessPattern access;
};
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
