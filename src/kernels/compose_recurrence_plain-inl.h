// SPDX-License-Identifier: Apache-2.0
// The recurrence of rows of sines in plain loops, for the compiler to make vectors of: those of SVE
// have no size known here and can be no members.
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
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr Index kRecurrenceLanes = 16;

struct DoubleRecurrence {
  using Start = double;
  double now[kRecurrenceLanes], next[kRecurrenceLanes], twice[kRecurrenceLanes];

  HWY_INLINE float Row(Index l) const { return static_cast<float>(now[l]); }
  HWY_INLINE void Step(Index l) {
    const double after = twice[l] * next[l] - now[l];
    now[l] = next[l], next[l] = after;
  }
};

struct FloatRecurrence {
  using Start = float;
  float now[kRecurrenceLanes], step[kRecurrenceLanes], curvature[kRecurrenceLanes];

  HWY_INLINE void Begin(Index l, float row, float quarter, float less, float sine) {
    now[l] = row, step[l] = row * less + quarter * sine, curvature[l] = less + less;
  }
  HWY_INLINE float Row(Index l) const { return now[l]; }
  HWY_INLINE void Step(Index l) {
    now[l] += step[l];
    step[l] += curvature[l] * now[l];
  }
};

// The recurrence of n channels from i on begins where the last one ended.
HWY_INLINE void BeginRecurrence(const ComposeSource& s, const Span& span, Index i, Index n,
                                PhaseStart<double>& start, DoubleRecurrence& recurrence) {
  for (Index l = 0; l < n; ++l) {
    const double cosine = s.wide.by_one.cosine[span.channel + i + l];
    recurrence.now[l] = start.row[span.at + i + l],
    recurrence.next[l] = start.quarter[span.at + i + l];
    recurrence.twice[l] = cosine + cosine;
  }
}
HWY_INLINE void EndRecurrence(const Span& span, Index i, Index n,
                              const DoubleRecurrence& recurrence, PhaseStart<double>& start) {
  for (Index l = 0; l < n; ++l)
    start.row[span.at + i + l] = recurrence.now[l],
                            start.quarter[span.at + i + l] = recurrence.next[l];
}
// It begins at a start, which moves on by a run.
HWY_INLINE void BeginRecurrence(const ComposeSource& s, const Span& span, Index i, Index n,
                                PhaseStart<float>& start, FloatRecurrence& recurrence) {
  using S = float;
  const auto &one = RotationOf<S>(s).by_one, &run = RotationOf<S>(s).by_run;
  for (Index l = 0; l < n; ++l) {
    S &row = start.row[span.at + i + l], &quarter = start.quarter[span.at + i + l];
    const Index c = span.channel + i + l;
    recurrence.Begin(l, row, quarter, one.cosine[c], one.sine[c]);
    const S next = row * run.cosine[c] + quarter * run.sine[c];
    quarter = quarter * run.cosine[c] - row * run.sine[c];
    row = next;
  }
}
HWY_INLINE void EndRecurrence(const Span&, Index, Index, const FloatRecurrence&,
                              PhaseStart<float>&) {}

template <class T, class Recurrence, Index kRows, bool kHasX, bool kStream>
HWY_INLINE void ComposeSpan(const ComposeSource& s, PhaseStart<typename Recurrence::Start>& start,
                            const Span& span, const Token<T>* token, Index from, Index to,
                            Index first, NextVisit<T>, Compute<T> gain) {
  for (Index i = 0; i < span.n; i += kRecurrenceLanes) {
    const Index n = HWY_MIN(kRecurrenceLanes, span.n - i);
    Recurrence recurrence;
    BeginRecurrence(s, span, i, n, start, recurrence);
    for (Index r = 0; r < to; ++r) {
      if (r >= from)
        for (Index l = 0; l < n; ++l) {
          const Token<T> at = token[r - from];
          const Index c = first + i + l;
          at.y[c] = Narrow<T>((kHasX ? Widen(at.x[c]) * gain : 0) + recurrence.Row(l));
        }
      for (Index l = 0; l < n; ++l) recurrence.Step(l);
    }
    EndRecurrence(span, i, n, recurrence, start);
  }
}

template <class Recurrence, Index kRows>
HWY_INLINE void SkipRun(const ComposeSource& s, const Span& span,
                        PhaseStart<typename Recurrence::Start>& start) {
  for (Index i = 0; i < span.n; i += kRecurrenceLanes) {
    const Index n = HWY_MIN(kRecurrenceLanes, span.n - i);
    Recurrence recurrence;
    BeginRecurrence(s, span, i, n, start, recurrence);
    for (Index r = 0; r < kRows; ++r)
      for (Index l = 0; l < n; ++l) recurrence.Step(l);
    EndRecurrence(span, i, n, recurrence, start);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
#endif
