// SPDX-License-Identifier: Apache-2.0
// The walk of rows of sines in plain loops, for the compiler to make vectors of: those of SVE have
// no size known here and can be no members.
#include "kernels/compose_start-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_WALK_PLAIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_WALK_PLAIN_INL_H_
#undef POSENC_KERNELS_COMPOSE_WALK_PLAIN_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_WALK_PLAIN_INL_H_
#endif

#include <hwy/highway.h>

#if HWY_HAVE_SCALABLE
HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
#endif
