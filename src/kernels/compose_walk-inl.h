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

// What a position gets depends on nothing but the position: the exact row of the multiple of
// kPhaseGroup below it, turned in double by kRun positions at a time to a start, from there walked
// by one position at a time. Every step is arithmetic on one channel, so that no layout needs its
// channels exchanged.
template <class T>
inline constexpr Index kRun = sizeof(T) == 2 ? phase_run(DType::f16) : phase_run(DType::f32);
// Channels whose starts stay in the first cache while a group of positions is walked: one span of
// pairs side by side, or sines and cosines of the same pairs.
inline constexpr Index kPhaseBlock = 1024, kSpan = kPhaseBlock / 2;

// Input is asked for this many bytes early, in the order of the walk.
inline constexpr Index kPhaseAhead = 256;

// A block of channels at a start: the row and, for each channel, the sine or cosine of a quarter
// of a turn more, gain in.
struct PhaseStart {
  alignas(64) double row[kPhaseBlock + kPadding], quarter[kPhaseBlock + kPadding];
};

// Channels [channel, channel + n) of a phase, kept from `at` on in a start.
struct Span {
  Index at, channel, n;
};

// The exact start of pairs [first, first + n), at most kSpan; returns how many spans they are.
HWY_INLINE int ExactStart(const ComposeSource& s, std::uint64_t position, Index first, Index n,
                          PhaseStart& start, Span* span) {
  alignas(64) double c[kSpan + kPadding], sine[kSpan + kPadding];
  TokenPosition where{};
  where.whole[0] = position;
  for (Index i = 0; i < n; i += kChunk)
    Phase(s.phase, 0, where, first + i, HWY_MIN(kChunk, n - i), s.gain, s.gain, c + i, sine + i);
  const SineCounts count = sine_counts(s.layout, s.phase.pairs, s.width);
  double *row = start.row, *quarter = start.quarter;
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

// Where a walk goes on: tokens, and the channel that is met first.
template <class T>
struct Next {
  const Token<T>* token;
  Index channel;
};

#if HWY_HAVE_SCALABLE
// Vectors of SVE have no size known here and can be no members: plain loops, for the compiler to
// make vectors of.
inline constexpr Index kWalkLanes = 16;

struct WideWalk {
  double now[kWalkLanes], next[kWalkLanes], twice[kWalkLanes];

  HWY_INLINE void Begin(Index l, double row, double after, double cosine) {
    now[l] = row, next[l] = after, twice[l] = cosine + cosine;
  }
  HWY_INLINE float Row(Index l) const { return static_cast<float>(now[l]); }
  HWY_INLINE void Step(Index l) {
    const double after = twice[l] * next[l] - now[l];
    now[l] = next[l], next[l] = after;
  }
};

struct NarrowWalk {
  float now[kWalkLanes], step[kWalkLanes], bend[kWalkLanes];

  HWY_INLINE void Begin(Index l, double row, double after, double cosine) {
    now[l] = static_cast<float>(row), step[l] = static_cast<float>(after - row);
    bend[l] = static_cast<float>(2 * cosine - 2);
  }
  HWY_INLINE float Row(Index l) const { return now[l]; }
  HWY_INLINE void Step(Index l) {
    now[l] += step[l];
    step[l] += bend[l] * now[l];
  }
};

// The start of n channels from i on moves on by a run; `walk` begins where it was.
template <class Walk>
HWY_INLINE void NextStart(const ComposeSource& s, const Span& span, Index i, Index n,
                          PhaseStart& start, Walk& walk) {
  for (Index l = 0; l < n; ++l) {
    double &row = start.row[span.at + i + l], &quarter = start.quarter[span.at + i + l];
    const Index c = span.channel + i + l;
    walk.Begin(l, row, row * s.by_one.cosine[c] + quarter * s.by_one.sine[c], s.by_one.cosine[c]);
    const double next = row * s.by_run.cosine[c] + quarter * s.by_run.sine[c];
    quarter = quarter * s.by_run.cosine[c] - row * s.by_run.sine[c];
    row = next;
  }
}

template <class T, class Walk, Index kWalk, bool kHasX, bool kStream>
HWY_INLINE void WalkSpan(const ComposeSource& s, PhaseStart& start, const Span& span,
                         const Token<T>* token, Index from, Index to, Index first, Next<T>,
                         Compute<T> gain) {
  for (Index i = 0; i < span.n; i += kWalkLanes) {
    const Index n = HWY_MIN(kWalkLanes, span.n - i);
    Walk walk;
    NextStart(s, span, i, n, start, walk);
    for (Index r = 0; r < to; ++r) {
      if (r >= from)
        for (Index l = 0; l < n; ++l) {
          const Token<T> at = token[r - from];
          const Index c = first + i + l;
          at.y[c] = Narrow<T>((kHasX ? Widen(at.x[c]) * gain : 0) + walk.Row(l));
        }
      for (Index l = 0; l < n; ++l) walk.Step(l);
    }
  }
}

template <class Walk>
HWY_INLINE void SkipRun(const ComposeSource& s, const Span& span, PhaseStart& start) {
  for (Index i = 0; i < span.n; i += kWalkLanes) {
    Walk walk;
    NextStart(s, span, i, HWY_MIN(kWalkLanes, span.n - i), start, walk);
  }
}
#else
using RowTag = hn::ScalableTag<float>;
using StartTag = hn::ScalableTag<double>;
// Vectors of doubles for one of floats.
inline constexpr int kParts = HWY_TARGET == HWY_SCALAR ? 1 : 2;

HWY_INLINE hn::Vec<RowTag> Narrowed(const hn::Vec<StartTag>* x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::DemoteTo(RowTag(), x[0]);
#else
  const hn::Half<RowTag> half;
  return hn::Combine(RowTag(), hn::DemoteTo(half, x[1]), hn::DemoteTo(half, x[0]));
#endif
}

// Channel values of one vector of floats, walked in double: x(n+1) = 2 cos(w) x(n) - x(n-1). Eight
// steps lose less than 64 units in the last place of a double: what a float gets is within 3e-8.
struct WideWalk {
  hn::Vec<StartTag> now[kParts], next[kParts], twice[kParts];

  HWY_INLINE void Begin(int k, hn::Vec<StartTag> row, hn::Vec<StartTag> after,
                        hn::Vec<StartTag> cosine) {
    now[k] = row, next[k] = after, twice[k] = hn::Add(cosine, cosine);
  }
  HWY_INLINE void Ready() {}
  HWY_INLINE hn::Vec<RowTag> Row() const { return Narrowed(now); }
  HWY_INLINE void Step() {
    for (int k = 0; k < kParts; ++k) {
      const auto after = hn::MulSub(twice[k], next[k], now[k]);
      now[k] = next[k], next[k] = after;
    }
  }
};

// The same in float, for 16 bits: the difference of two rows is walked too, which keeps the error
// of a step from growing with its square (Reinsch): within 7e-7.
struct NarrowWalk {
  hn::Vec<StartTag> wide[3][kParts];
  hn::Vec<RowTag> now, step, bend;

  HWY_INLINE void Begin(int k, hn::Vec<StartTag> row, hn::Vec<StartTag> after,
                        hn::Vec<StartTag> cosine) {
    const StartTag d;
    wide[0][k] = row, wide[1][k] = hn::Sub(after, row);
    wide[2][k] = hn::MulSub(hn::Set(d, 2.0), cosine, hn::Set(d, 2.0));
  }
  HWY_INLINE void Ready() {
    now = Narrowed(wide[0]), step = Narrowed(wide[1]), bend = Narrowed(wide[2]);
  }
  HWY_INLINE hn::Vec<RowTag> Row() const { return now; }
  HWY_INLINE void Step() {
    now = hn::Add(now, step);
    step = hn::MulAdd(bend, now, step);
  }
};

// The start of the vector of channels that begins i channels into a span moves on by a run;
// `walk`, if any, begins where it was.
template <class Walk>
HWY_INLINE void NextStart(const ComposeSource& s, const Span& span, Index i, PhaseStart& start,
                          Walk* walk) {
  const StartTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (int k = 0; k < kParts; ++k, i += lanes) {
    double *at_row = start.row + span.at + i, *at_quarter = start.quarter + span.at + i;
    const auto row = hn::Load(d, at_row), quarter = hn::Load(d, at_quarter);
    if (walk != nullptr) {
      const auto c = hn::LoadU(d, s.by_one.cosine + span.channel + i);
      const auto sine = hn::LoadU(d, s.by_one.sine + span.channel + i);
      walk->Begin(k, row, hn::MulAdd(quarter, sine, hn::Mul(row, c)), c);
    }
    const auto c = hn::LoadU(d, s.by_run.cosine + span.channel + i);
    const auto sine = hn::LoadU(d, s.by_run.sine + span.channel + i);
    hn::Store(hn::MulAdd(quarter, sine, hn::Mul(row, c)), d, at_row);
    hn::Store(hn::NegMulAdd(row, sine, hn::Mul(quarter, c)), d, at_quarter);
  }
  if (walk != nullptr) walk->Ready();
}

// Vectors of a visit to a row: whole lines of memory.
inline constexpr int kVisit = 2;

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
        const T* ask = ahead.token[r - from].x + ahead.channel;
        hwy::Prefetch(ask);
        if (sizeof(T) == 4) hwy::Prefetch(ask + lanes);
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
HWY_INLINE void WalkSpan(const ComposeSource& s, PhaseStart& start, const Span& span,
                         const Token<T>* token, Index from, Index to, Index first, Next<T> next,
                         Compute<T> gain) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  constexpr Index kAhead = kPhaseAhead / static_cast<Index>(sizeof(T));
  Index i = 0;
  for (; i + kVisit * lanes <= span.n; i += kVisit * lanes) {
    Walk walk[kVisit];
    for (int v = 0; v < kVisit; ++v) NextStart(s, span, i + v * lanes, start, &walk[v]);
    const Index left = span.n - i - kAhead;
    const Next<T> ahead =
        left > 0 ? Next<T>{token, first + i + kAhead} : Next<T>{next.token, next.channel - left};
    if (from == 0 && to == kWalk)  // the usual one, unrolled
      WalkVisit<T, kHasX, kStream>(walk, token, 0, kWalk, first + i, ahead, gain);
    else
      WalkVisit<T, kHasX, kStream>(walk, token, from, to, first + i, ahead, gain);
  }
  for (; i < span.n; i += lanes) {
    Walk walk;
    NextStart(s, span, i, start, &walk);
    WalkRest<T>(walk, token, from, to, first + i, HWY_MIN(lanes, span.n - i), gain);
  }
}

// The start of a span moves on by a run.
template <class Walk>
HWY_INLINE void SkipRun(const ComposeSource& s, const Span& span, PhaseStart& start) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  for (Index i = 0; i < span.n; i += lanes) NextStart<Walk>(s, span, i, start, nullptr);
}
#endif

template <class T>
using WalkOf = std::conditional_t<sizeof(T) == 4, WideWalk, NarrowWalk>;
}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
