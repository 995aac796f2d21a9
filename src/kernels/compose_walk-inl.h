// SPDX-License-Identifier: Apache-2.0
// Rows of sines at consecutive positions, walked from exact ones channel by channel.
#include <cstdint>
#include <type_traits>

#include "kernels/compose_window-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_WALK_INL_H_
#undef POSENC_KERNELS_COMPOSE_WALK_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_WALK_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What a position gets depends on nothing but the position. f32: walked in double by one position
// at a time from the exact row of the multiple of kPhaseGroup below it. 16 bits: that row is turned
// in float by kRun positions at a time to a start, and walked from there. Every step is arithmetic
// on one channel, so that no layout needs its channels exchanged.
template <class T>
inline constexpr Index kRun = sizeof(T) == 2 ? phase_run(DType::f16) : phase_run(DType::f32);
// Channels whose starts stay in the first cache while a group of positions is walked: one span of
// pairs side by side, or sines and cosines of the same pairs.
inline constexpr Index kPhaseBlock = 1024, kSpan = kPhaseBlock / 2;

// Input is asked for this many bytes early, in the order of the walk: into the first cache. As it
// lies 32 bits go into the second, where rows whole pages apart do not drive each other out.
inline constexpr Index kPhaseAhead = 256, kPhaseAheadAsItLies = 1024;
template <class T>
[[gnu::always_inline]] inline bool AsksSecondCache(MemoryWay way) {
  return way == MemoryWay::as_it_lies && sizeof(T) == 4;
}

// A block of channels at a start, gain in: the row and, for each channel, the sine or cosine of a
// quarter of a turn more. While f32 is walked: the row and the next one.
template <class S>
struct PhaseStart {
  alignas(64) S row[kPhaseBlock + kPadding], quarter[kPhaseBlock + kPadding];
};

// Channels [channel, channel + n) of a phase, kept from `at` on in a start.
struct Span {
  Index at, channel, n;
};

// The exact start of pairs [first, first + n), at most kSpan; returns how many spans they are.
template <class S>
HWY_INLINE int ExactStart(const ComposeSource& s, std::uint64_t position, Index first, Index n,
                          PhaseStart<S>& start, Span* span) {
  alignas(64) S c[kSpan + kPadding], sine[kSpan + kPadding];
  TokenPosition where{};
  where.whole[0] = position;
  for (Index i = 0; i < n; i += kChunk)
    Phase(s.phase, 0, where, first + i, HWY_MIN(kChunk, n - i), s.gain, s.gain, c + i, sine + i);
  const SineCounts count = sine_counts(s.layout, s.phase.pairs, s.width);
  S *row = start.row, *quarter = start.quarter;
  if (s.layout == SineLayout::interleaved) {
    for (Index m = 0; m < n; ++m) {
      row[2 * m] = sine[m], row[2 * m + 1] = c[m];
      quarter[2 * m] = c[m], quarter[2 * m + 1] = -sine[m];
    }
    span[0] = {0, 2 * first, HWY_MIN(2 * n, count.sines + count.cosines - 2 * first)};
    return 1;
  }
  for (Index m = 0; m < n; ++m) {
    row[m] = sine[m], quarter[m] = c[m];
    row[kSpan + m] = c[m], quarter[kSpan + m] = -sine[m];
  }
  const bool cosines_first = cosine_first(s.layout);
  const Index sines = HWY_MIN(n, count.sines - first), cosines = HWY_MIN(n, count.cosines - first);
  int spans = 0;
  if (sines > 0) span[spans++] = {0, first + (cosines_first ? count.cosines : 0), sines};
  if (cosines > 0) span[spans++] = {kSpan, first + (cosines_first ? 0 : count.sines), cosines};
  return spans;
}

// How far one position and a run turn a channel, in what the walk starts in.
template <class S>
HWY_INLINE const PhaseTurning<S>& TurningOf(const ComposeSource& s) {
  if constexpr (sizeof(S) == 8)
    return s.wide;
  else
    return s.narrow;
}

// A row and a quarter become a row and the next one, for f32.
template <class S>
HWY_INLINE void TakeFirstStep(const ComposeSource& s, const Span& span, PhaseStart<S>& start) {
  const auto& one = TurningOf<S>(s).by_one;
  S *row = start.row + span.at, *next = start.quarter + span.at;
  for (Index l = 0; l < span.n; ++l)
    next[l] = row[l] * one.cosine[span.channel + l] + next[l] * one.sine[span.channel + l];
}

// Where a walk goes on: tokens, and the channel that is met first.
template <class T>
struct Next {
  const Token<T>* token;
  Index channel;
  MemoryWay way;
};

#if HWY_HAVE_SCALABLE
// Vectors of SVE have no size known here and can be no members: plain loops, for the compiler to
// make vectors of.
inline constexpr Index kWalkLanes = 16;

struct WideWalk {
  using Start = double;
  double now[kWalkLanes], next[kWalkLanes], twice[kWalkLanes];

  HWY_INLINE float Row(Index l) const { return static_cast<float>(now[l]); }
  HWY_INLINE void Step(Index l) {
    const double after = twice[l] * next[l] - now[l];
    now[l] = next[l], next[l] = after;
  }
};

struct NarrowWalk {
  using Start = float;
  float now[kWalkLanes], step[kWalkLanes], bend[kWalkLanes];

  HWY_INLINE void Begin(Index l, float row, float quarter, float less, float sine) {
    now[l] = row, step[l] = row * less + quarter * sine, bend[l] = less + less;
  }
  HWY_INLINE float Row(Index l) const { return now[l]; }
  HWY_INLINE void Step(Index l) {
    now[l] += step[l];
    step[l] += bend[l] * now[l];
  }
};

// A walk of n channels from i on begins where the last one ended.
HWY_INLINE void BeginWalk(const ComposeSource& s, const Span& span, Index i, Index n,
                          PhaseStart<double>& start, WideWalk& walk) {
  for (Index l = 0; l < n; ++l) {
    const double cosine = s.wide.by_one.cosine[span.channel + i + l];
    walk.now[l] = start.row[span.at + i + l], walk.next[l] = start.quarter[span.at + i + l];
    walk.twice[l] = cosine + cosine;
  }
}
HWY_INLINE void EndWalk(const Span& span, Index i, Index n, const WideWalk& walk,
                        PhaseStart<double>& start) {
  for (Index l = 0; l < n; ++l)
    start.row[span.at + i + l] = walk.now[l], start.quarter[span.at + i + l] = walk.next[l];
}
// A walk begins at a start, which moves on by a run.
HWY_INLINE void BeginWalk(const ComposeSource& s, const Span& span, Index i, Index n,
                          PhaseStart<float>& start, NarrowWalk& walk) {
  using S = float;
  const auto &one = TurningOf<S>(s).by_one, &run = TurningOf<S>(s).by_run;
  for (Index l = 0; l < n; ++l) {
    S &row = start.row[span.at + i + l], &quarter = start.quarter[span.at + i + l];
    const Index c = span.channel + i + l;
    walk.Begin(l, row, quarter, one.cosine[c], one.sine[c]);
    const S next = row * run.cosine[c] + quarter * run.sine[c];
    quarter = quarter * run.cosine[c] - row * run.sine[c];
    row = next;
  }
}
HWY_INLINE void EndWalk(const Span&, Index, Index, const NarrowWalk&, PhaseStart<float>&) {}

template <class T, class Walk, Index kWalk, bool kHasX, bool kStream>
HWY_INLINE void WalkSpan(const ComposeSource& s, PhaseStart<typename Walk::Start>& start,
                         const Span& span, const Token<T>* token, Index from, Index to, Index first,
                         Next<T>, Compute<T> gain) {
  for (Index i = 0; i < span.n; i += kWalkLanes) {
    const Index n = HWY_MIN(kWalkLanes, span.n - i);
    Walk walk;
    BeginWalk(s, span, i, n, start, walk);
    for (Index r = 0; r < to; ++r) {
      if (r >= from)
        for (Index l = 0; l < n; ++l) {
          const Token<T> at = token[r - from];
          const Index c = first + i + l;
          at.y[c] = Narrow<T>((kHasX ? Widen(at.x[c]) * gain : 0) + walk.Row(l));
        }
      for (Index l = 0; l < n; ++l) walk.Step(l);
    }
    EndWalk(span, i, n, walk, start);
  }
}

template <class Walk, Index kWalk>
HWY_INLINE void SkipRun(const ComposeSource& s, const Span& span,
                        PhaseStart<typename Walk::Start>& start) {
  for (Index i = 0; i < span.n; i += kWalkLanes) {
    const Index n = HWY_MIN(kWalkLanes, span.n - i);
    Walk walk;
    BeginWalk(s, span, i, n, start, walk);
    for (Index r = 0; r < kWalk; ++r)
      for (Index l = 0; l < n; ++l) walk.Step(l);
    EndWalk(span, i, n, walk, start);
  }
}
#else
using RowTag = hn::ScalableTag<float>;

// Channel values of one vector of floats, walked in double: x(n+1) = 2 cos(w) x(n) - x(n-1). 63
// steps lose less than 63^2 units in the last place of a double, 5e-13: what a float gets is within
// 3e-8.
struct WideWalk {
  using Start = double;
  using StartTag = hn::ScalableTag<double>;
  static constexpr int kParts = HWY_TARGET == HWY_SCALAR ? 1 : 2;  // of doubles for one of floats
  hn::Vec<StartTag> now[kParts], next[kParts], twice[kParts];

  HWY_INLINE WideWalk() {}  // one of the compiler's own would not be for this target
  HWY_INLINE hn::Vec<RowTag> Row() const {
#if HWY_TARGET == HWY_SCALAR
    return hn::DemoteTo(RowTag(), now[0]);
#else
    const hn::Half<RowTag> half;
    return hn::Combine(RowTag(), hn::DemoteTo(half, now[1]), hn::DemoteTo(half, now[0]));
#endif
  }
  HWY_INLINE void Step() {
    for (int k = 0; k < kParts; ++k) {
      const auto after = hn::MulSub(twice[k], next[k], now[k]);
      now[k] = next[k], next[k] = after;
    }
  }
};

// The same in float, for 16 bits: the difference of two rows is walked too, which keeps the error
// of a step from growing with its square (Reinsch). It begins from cos(w) - 1, so that it is as
// exact as it is small.
struct NarrowWalk {
  using Start = float;
  using StartTag = RowTag;
  static constexpr int kParts = 1;
  hn::Vec<RowTag> now, step, bend;

  HWY_INLINE NarrowWalk() {}
  HWY_INLINE hn::Vec<RowTag> Row() const { return now; }
  HWY_INLINE void Step() {
    now = hn::Add(now, step);
    step = hn::MulAdd(bend, now, step);
  }
};

// A walk of the vector of channels that begins i channels into a span begins where the last one
// ended.
HWY_INLINE void BeginWalk(const ComposeSource& s, const Span& span, Index i,
                          PhaseStart<double>& start, WideWalk& walk) {
  const WideWalk::StartTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (int k = 0; k < WideWalk::kParts; ++k, i += lanes) {
    const auto cosine = hn::LoadU(d, s.wide.by_one.cosine + span.channel + i);
    walk.now[k] = hn::Load(d, start.row + span.at + i);
    walk.next[k] = hn::Load(d, start.quarter + span.at + i);
    walk.twice[k] = hn::Add(cosine, cosine);
  }
}
HWY_INLINE void EndWalk(const Span& span, Index i, const WideWalk& walk,
                        PhaseStart<double>& start) {
  const WideWalk::StartTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (int k = 0; k < WideWalk::kParts; ++k, i += lanes) {
    hn::Store(walk.now[k], d, start.row + span.at + i);
    hn::Store(walk.next[k], d, start.quarter + span.at + i);
  }
}

// A walk begins at a start, which moves on by a run.
HWY_INLINE void BeginWalk(const ComposeSource& s, const Span& span, Index i,
                          PhaseStart<float>& start, NarrowWalk& walk) {
  const NarrowWalk::StartTag d;
  const auto &one = s.narrow.by_one, &run = s.narrow.by_run;
  float *at_row = start.row + span.at + i, *at_quarter = start.quarter + span.at + i;
  const Index channel = span.channel + i;
  const auto row = hn::Load(d, at_row), quarter = hn::Load(d, at_quarter);
  walk.now = row;
  walk.step = hn::MulAdd(quarter, hn::LoadU(d, one.sine + channel),
                         hn::Mul(row, hn::LoadU(d, one.cosine + channel)));
  const auto less = hn::LoadU(d, one.cosine + channel);
  walk.bend = hn::Add(less, less);
  const auto c = hn::LoadU(d, run.cosine + channel), sine = hn::LoadU(d, run.sine + channel);
  hn::Store(hn::MulAdd(quarter, sine, hn::Mul(row, c)), d, at_row);
  hn::Store(hn::NegMulAdd(row, sine, hn::Mul(quarter, c)), d, at_quarter);
}
HWY_INLINE void EndWalk(const Span&, Index, const NarrowWalk&, PhaseStart<float>&) {}

// Vectors of a visit to a row: whole lines of memory.
inline constexpr int kVisit = 2;

template <class T>
HWY_INLINE void AskForVisit(const T* x, MemoryWay way) {
  for (Index i = 0; i < kVisit * static_cast<Index>(hn::Lanes(RowTag()));
       i += 64 / static_cast<Index>(sizeof(T))) {
    if (AsksSecondCache<T>(way))
      __builtin_prefetch(x + i, 0, 2);
    else
      hwy::Prefetch(x + i);
  }
}

// The rows [from, to) of a run meet their tokens in a visit's channels from `channel` on; `token`
// is that of row `from`. What `ahead` meets is asked for.
template <class T, bool kHasX, bool kStream, class Walk>
HWY_INLINE void WalkVisit(Walk* walk, const Token<T>* token, Index from, Index to, Index channel,
                          Next<T> ahead, Compute<T> gain) {
  const RowTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto a = hn::Set(d, gain);
  for (Index r = 0; r < to; ++r) {
    if (r >= from) {
      const Token<T> at = token[r - from];
      auto low = walk[0].Row(), high = walk[1].Row();
      const T* x = at.x + channel;
      if (kHasX) {
        AskForVisit(ahead.token[r - from].x + ahead.channel, ahead.way);
        low = hn::MulAdd(ReadVector(d, x), a, low);
        high = hn::MulAdd(ReadVector(d, x + lanes), a, high);
      }
      WritePair<kStream>(low, high, d, at.y + channel);
    }
    walk[0].Step(), walk[1].Step();
  }
}

// The last channels of a span, less than a visit.
template <class T, class Walk>
HWY_INLINE void WalkRest(Walk& walk, const Token<T>* token, Index from, Index to, Index channel,
                         Index n, Compute<T> gain) {
  const RowTag d;
  alignas(64) float row[kPadding];
  for (Index r = 0; r < to; ++r) {
    if (r >= from) {
      const Token<T> at = token[r - from];
      hn::StoreU(walk.Row(), d, row);
      for (Index c = 0; c < n; ++c)
        at.y[channel + c] =
            Narrow<T>((at.x != nullptr ? Widen(at.x[channel + c]) * gain : 0) + row[c]);
    }
    walk.Step();
  }
}

// A span, rows [from, to) of a run of kWalk. Its channels begin at `first` in the tokens.
template <class T, class Walk, Index kWalk, bool kHasX, bool kStream>
HWY_INLINE void WalkSpan(const ComposeSource& s, PhaseStart<typename Walk::Start>& start,
                         const Span& span, const Token<T>* token, Index from, Index to, Index first,
                         Next<T> next, Compute<T> gain) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  const Index early = (AsksSecondCache<T>(next.way) ? kPhaseAheadAsItLies : kPhaseAhead) /
                      static_cast<Index>(sizeof(T));
  Index i = 0;
  for (; i + kVisit * lanes <= span.n; i += kVisit * lanes) {
    Walk walk[kVisit];
    for (int v = 0; v < kVisit; ++v) BeginWalk(s, span, i + v * lanes, start, walk[v]);
    const Index left = span.n - i - early;
    const Next<T> ahead = left > 0 ? Next<T>{token, first + i + early, next.way}
                                   : Next<T>{next.token, next.channel - left, next.way};
    if (from == 0 && to == kWalk)  // the usual one, unrolled
      WalkVisit<T, kHasX, kStream>(walk, token, 0, kWalk, first + i, ahead, gain);
    else
      WalkVisit<T, kHasX, kStream>(walk, token, from, to, first + i, ahead, gain);
    for (int v = 0; v < kVisit; ++v) EndWalk(span, i + v * lanes, walk[v], start);
  }
  for (; i < span.n; i += lanes) {
    Walk walk;
    BeginWalk(s, span, i, start, walk);
    WalkRest<T>(walk, token, from, to, first + i, HWY_MIN(lanes, span.n - i), gain);
    EndWalk(span, i, walk, start);
  }
}

// A span is walked by a run that no token meets.
template <class Walk, Index kWalk>
HWY_INLINE void SkipRun(const ComposeSource& s, const Span& span,
                        PhaseStart<typename Walk::Start>& start) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  for (Index i = 0; i < span.n; i += lanes) {
    Walk walk;
    BeginWalk(s, span, i, start, walk);
    for (Index r = 0; r < kWalk; ++r) walk.Step();
    EndWalk(span, i, walk, start);
  }
}
#endif

template <class T>
using WalkOf = std::conditional_t<sizeof(T) == 4, WideWalk, NarrowWalk>;

// Whether the plan has prepared a phase for walking.
template <class T>
HWY_INLINE bool Walks(const ComposeSource& s) {
  return TurningOf<typename WalkOf<T>::Start>(s).by_one.cosine != nullptr;
}
}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
