// SPDX-License-Identifier: Apache-2.0
// The walk of rows of sines in vectors.
#include <type_traits>

#include "kernels/compose_start-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_WALK_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_WALK_VECTORS_INL_H_
#undef POSENC_KERNELS_COMPOSE_WALK_VECTORS_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_WALK_VECTORS_INL_H_
#endif

#include <hwy/highway.h>

#if !HWY_HAVE_SCALABLE
HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RowTag = hn::ScalableTag<float>;

// Channel values of one vector of floats, walked in double: x(n+1) = 2 cos(w) x(n) - x(n-1). 63
// steps lose less than 63^2 units in the last place of a double, 5e-13: what a float gets is within
// 3e-8.
struct WideWalk {
  using Start = double;
  using StartTag = hn::ScalableTag<double>;
  static constexpr int kParts = HWY_TARGET == HWY_SCALAR ? 1 : 2;  // of doubles for one of floats
  static constexpr int kVisit = 2;  // vectors of a visit to a row: whole lines of memory
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
  static constexpr int kVisit = 4;
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

template <class T, int kVisit>
HWY_INLINE void AskForVisit(const T* x, MemoryWay way) {
  for (Index i = 0; i < kVisit * static_cast<Index>(hn::Lanes(RowTag()));
       i += 64 / static_cast<Index>(sizeof(T))) {
    if (way == MemoryWay::as_it_lies)
      __builtin_prefetch(x + i, 0, 2);
    else
      hwy::Prefetch(x + i);
  }
}

// The rows [from, to) of a run meet their tokens in a visit's channels from `channel` on; `token`
// is that of row `from`. What `ahead` meets is asked for.
template <class T, int kVisit, bool kHasX, bool kStream, class Walk>
HWY_INLINE void WalkVisit(Walk* walk, const Token<T>* token, Index from, Index to, Index channel,
                          Next<T> ahead, Compute<T> gain) {
  const RowTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto a = hn::Set(d, gain);
  for (Index r = 0; r < to; ++r) {
    if (r >= from) {
      const Token<T> at = token[r - from];
      if (kHasX) AskForVisit<T, kVisit>(ahead.token[r - from].x + ahead.channel, ahead.way);
      for (int v = 0; v < kVisit; v += 2) {
        auto low = walk[v].Row(), high = walk[v + 1].Row();
        const Index at_pair = channel + v * lanes;
        if (kHasX) {
          low = hn::MulAdd(ReadVector(d, at.x + at_pair), a, low);
          high = hn::MulAdd(ReadVector(d, at.x + at_pair + lanes), a, high);
        }
        WritePair<kStream>(low, high, d, at.y + at_pair);
      }
    }
    for (int v = 0; v < kVisit; ++v) walk[v].Step();
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

// Where the walks of a span stop between two parts of a run.
struct Stop {
  alignas(64) float now[kPhaseBlockAsItLies], step[kPhaseBlockAsItLies];
};
HWY_INLINE void StopWalk(const NarrowWalk& walk, Index i, Stop& stop) {
  const RowTag d;
  hn::Store(walk.now, d, stop.now + i);
  hn::Store(walk.step, d, stop.step + i);
}
HWY_INLINE void ResumeWalk(const ComposeSource& s, const Span& span, Index i, const Stop& stop,
                           NarrowWalk& walk) {
  const RowTag d;
  const auto less = hn::LoadU(d, s.narrow.by_one.cosine + span.channel + i);
  walk.now = hn::Load(d, stop.now + i);
  walk.step = hn::Load(d, stop.step + i);
  walk.bend = hn::Add(less, less);
}

// The visits of a span through a whole run, kRowsInTurns rows at a time. Returns the channels that
// were met.
template <class T, Index kWalk, bool kHasX, bool kStream>
HWY_INLINE Index WalkInParts(const ComposeSource& s, PhaseStart<float>& start, const Span& span,
                             const Token<T>* token, Index first, Next<T> next, Compute<T> gain) {
  constexpr Index early = kPhaseAheadAsItLies / static_cast<Index>(sizeof(T));
  constexpr int kVisit = NarrowWalk::kVisit;
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  const Index visits = span.n / (kVisit * lanes);
  Stop stop;
  for (Index r = 0; r < kWalk; r += kRowsInTurns) {
    const bool last = r + kRowsInTurns == kWalk;
    const Next<T> after = last ? next : Next<T>{token + kRowsInTurns, first, next.way};
    for (Index i = 0; i < visits * kVisit * lanes; i += kVisit * lanes) {
      NarrowWalk walk[kVisit];
      for (int v = 0; v < kVisit; ++v)
        if (r == 0)
          BeginWalk(s, span, i + v * lanes, start, walk[v]);
        else
          ResumeWalk(s, span, i + v * lanes, stop, walk[v]);
      const Index left = span.n - i - early;
      const Next<T> ahead = left > 0 ? Next<T>{token, first + i + early, next.way}
                                     : Next<T>{after.token, after.channel - left, next.way};
      WalkVisit<T, kVisit, kHasX, kStream>(walk, token, 0, kRowsInTurns, first + i, ahead, gain);
      for (int v = 0; v < kVisit && !last; ++v) StopWalk(walk[v], i + v * lanes, stop);
    }
    token += kRowsInTurns;
  }
  return visits * kVisit * lanes;
}

// A span, rows [from, to) of a run of kWalk. Its channels begin at `first` in the tokens.
template <class T, class Walk, Index kWalk, bool kHasX, bool kStream>
HWY_INLINE void WalkSpan(const ComposeSource& s, PhaseStart<typename Walk::Start>& start,
                         const Span& span, const Token<T>* token, Index from, Index to, Index first,
                         Next<T> next, Compute<T> gain) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  const bool as_it_lies = next.way == MemoryWay::as_it_lies;
  const Index early =
      (as_it_lies ? kPhaseAheadAsItLies : kPhaseAhead) / static_cast<Index>(sizeof(T));
  Index i = 0;
  if constexpr (kWalk > kRowsInTurns) {
    if (as_it_lies && from == 0 && to == kWalk)
      i = WalkInParts<T, kWalk, kHasX, kStream>(s, start, span, token, first, next, gain);
  }
  const auto visit = [&](auto vectors) {
    constexpr int kVisit = decltype(vectors)::value;
    for (; i + kVisit * lanes <= span.n; i += kVisit * lanes) {
      Walk walk[kVisit];
      for (int v = 0; v < kVisit; ++v) BeginWalk(s, span, i + v * lanes, start, walk[v]);
      const Index left = span.n - i - early;
      const Next<T> ahead = left > 0 ? Next<T>{token, first + i + early, next.way}
                                     : Next<T>{next.token, next.channel - left, next.way};
      if (from == 0 && to == kWalk)  // the usual one, unrolled
        WalkVisit<T, kVisit, kHasX, kStream>(walk, token, 0, kWalk, first + i, ahead, gain);
      else
        WalkVisit<T, kVisit, kHasX, kStream>(walk, token, from, to, first + i, ahead, gain);
      for (int v = 0; v < kVisit; ++v) EndWalk(span, i + v * lanes, walk[v], start);
    }
  };
  visit(std::integral_constant<int, Walk::kVisit>());
  if constexpr (Walk::kVisit > 2) visit(std::integral_constant<int, 2>());
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

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
#endif
