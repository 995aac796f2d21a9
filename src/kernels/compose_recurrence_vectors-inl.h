// SPDX-License-Identifier: Apache-2.0
// The recurrence of rows of sines in vectors.
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
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using RowTag = hn::ScalableTag<float>;

// Channel values of one vector of floats, computed in double: x(n+1) = 2 cos(w) x(n) - x(n-1). 63
// steps lose less than 63^2 units in the last place of a double, 5e-13: what a float gets is within
// 3e-8.
struct DoubleRecurrence {
  using Start = double;
  using StartTag = hn::ScalableTag<double>;
  static constexpr int kParts = HWY_TARGET == HWY_SCALAR ? 1 : 2;  // of doubles for one of floats
  static constexpr int kVisit = 2;  // vectors of a visit to a row: whole lines of memory
  hn::Vec<StartTag> now[kParts], next[kParts], twice[kParts];

  HWY_INLINE DoubleRecurrence() {}  // one of the compiler's own would not be for this target
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

// The same in float, for 16 bits: the difference of two rows is kept too, which keeps the error
// of a step from growing with its square (Reinsch). It begins from cos(w) - 1, so that it is as
// exact as it is small.
struct FloatRecurrence {
  using Start = float;
  using StartTag = RowTag;
  static constexpr int kVisit = 4;
  hn::Vec<RowTag> now, step, curvature;

  HWY_INLINE FloatRecurrence() {}
  HWY_INLINE hn::Vec<RowTag> Row() const { return now; }
  HWY_INLINE void Step() {
    now = hn::Add(now, step);
    step = hn::MulAdd(curvature, now, step);
  }
};

// The recurrence of the vector of channels that begins i channels into a span begins where the last
// one ended.
HWY_INLINE void BeginRecurrence(const ComposeSource& s, const Span& span, Index i,
                                PhaseStart<double>& start, DoubleRecurrence& recurrence) {
  const DoubleRecurrence::StartTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (int k = 0; k < DoubleRecurrence::kParts; ++k, i += lanes) {
    const auto cosine = hn::LoadU(d, s.wide.by_one.cosine + span.channel + i);
    recurrence.now[k] = hn::Load(d, start.row + span.at + i);
    recurrence.next[k] = hn::Load(d, start.quarter + span.at + i);
    recurrence.twice[k] = hn::Add(cosine, cosine);
  }
}
HWY_INLINE void EndRecurrence(const Span& span, Index i, const DoubleRecurrence& recurrence,
                              PhaseStart<double>& start) {
  const DoubleRecurrence::StartTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (int k = 0; k < DoubleRecurrence::kParts; ++k, i += lanes) {
    hn::Store(recurrence.now[k], d, start.row + span.at + i);
    hn::Store(recurrence.next[k], d, start.quarter + span.at + i);
  }
}

// It begins at a start, which moves on by a run.
HWY_INLINE void BeginRecurrence(const ComposeSource& s, const Span& span, Index i,
                                PhaseStart<float>& start, FloatRecurrence& recurrence) {
  const FloatRecurrence::StartTag d;
  const auto &one = s.narrow.by_one, &run = s.narrow.by_run;
  float *at_row = start.row + span.at + i, *at_quarter = start.quarter + span.at + i;
  const Index channel = span.channel + i;
  const auto row = hn::Load(d, at_row), quarter = hn::Load(d, at_quarter);
  recurrence.now = row;
  recurrence.step = hn::MulAdd(quarter, hn::LoadU(d, one.sine + channel),
                               hn::Mul(row, hn::LoadU(d, one.cosine + channel)));
  const auto less = hn::LoadU(d, one.cosine + channel);
  recurrence.curvature = hn::Add(less, less);
  const auto c = hn::LoadU(d, run.cosine + channel), sine = hn::LoadU(d, run.sine + channel);
  hn::Store(hn::MulAdd(quarter, sine, hn::Mul(row, c)), d, at_row);
  hn::Store(hn::NegMulAdd(row, sine, hn::Mul(quarter, c)), d, at_quarter);
}
HWY_INLINE void EndRecurrence(const Span&, Index, const FloatRecurrence&, PhaseStart<float>&) {}

// Rows that are added to bfloat16 by words (PackNumbers): of two vectors of channels the first holds the even ones, the
// second the odd.
template <class T>
inline constexpr bool kComposeWords = kIsBFloat16<T> &&
                                      (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4);

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
HWY_INLINE void SplitEvenAndOdd(hn::Vec<RowTag>& low, hn::Vec<RowTag>& high) {
  const RowTag d;
  const auto even = hn::ConcatEven(d, high, low);
  high = hn::ConcatOdd(d, high, low), low = even;
}
#endif
// Of a visit's recurrences that begin, or that go on where they paused.
template <class T, int kVisit, class Recurrence>
HWY_INLINE void SplitRecurrences(Recurrence* recurrence, bool paused) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  if constexpr (kComposeWords<T>)
    for (int v = 0; v < kVisit; v += 2) {
      SplitEvenAndOdd(recurrence[v].curvature, recurrence[v + 1].curvature);
      if (paused) continue;
      SplitEvenAndOdd(recurrence[v].now, recurrence[v + 1].now);
      SplitEvenAndOdd(recurrence[v].step, recurrence[v + 1].step);
    }
#else
  (void)recurrence, (void)paused;
#endif
}

template <class T, int kVisit>
HWY_INLINE void PrefetchVisit(const T* x, AccessPattern access) {
  for (Index i = 0; i < kVisit * static_cast<Index>(hn::Lanes(RowTag()));
       i += 64 / static_cast<Index>(sizeof(T))) {
    if (access == AccessPattern::sequential)
      __builtin_prefetch(x + i, 0, 2);
    else
      hwy::Prefetch(x + i);
  }
}

// The rows [from, to) of a run are added to their tokens in a visit's channels from `channel` on;
// `token` is that of row `from`. What `ahead` reads is prefetched.
template <class T, int kVisit, bool kHasX, bool kStream, class Recurrence>
HWY_INLINE void ComposeVisit(Recurrence* recurrence, const Token<T>* token, Index from, Index to,
                             Index channel, NextVisit<T> ahead, Compute<T> gain) {
  const RowTag d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto a = hn::Set(d, gain);
  for (Index r = 0; r < to; ++r) {
    if (r >= from) {
      const Token<T> at = token[r - from];
      if (kHasX) PrefetchVisit<T, kVisit>(ahead.token[r - from].x + ahead.channel, ahead.access);
      for (int v = 0; v < kVisit; v += 2) {
        auto low = recurrence[v].Row(), high = recurrence[v + 1].Row();
        const Index at_pair = channel + v * lanes;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
        if constexpr (kComposeWords<T>) {
          const hn::RebindToUnsigned<RowTag> du;
          if (kHasX) {
            hn::Vec<RowTag> even, odd;
            LoadWords(d, at.x + at_pair, even, odd);
            low = hn::MulAdd(even, a, low), high = hn::MulAdd(odd, a, high);
          }
          hn::StoreU(PackNumbers(d, low, high), du,
                     reinterpret_cast<std::uint32_t*>(at.y + at_pair));
          continue;
        }
#endif
        if (kHasX) {
          low = hn::MulAdd(ReadVector(d, at.x + at_pair), a, low);
          high = hn::MulAdd(ReadVector(d, at.x + at_pair + lanes), a, high);
        }
        WritePair<kStream>(low, high, d, at.y + at_pair);
      }
    }
    for (int v = 0; v < kVisit; ++v) recurrence[v].Step();
  }
}

// The last channels of a span, less than a visit.
template <class T, class Recurrence>
HWY_INLINE void ComposeRest(Recurrence& recurrence, const Token<T>* token, Index from, Index to,
                            Index channel, Index n, Compute<T> gain) {
  const RowTag d;
  alignas(64) float row[kPadding];
  for (Index r = 0; r < to; ++r) {
    if (r >= from) {
      const Token<T> at = token[r - from];
      hn::StoreU(recurrence.Row(), d, row);
      for (Index c = 0; c < n; ++c)
        at.y[channel + c] =
            Narrow<T>((at.x != nullptr ? Widen(at.x[channel + c]) * gain : 0) + row[c]);
    }
    recurrence.Step();
  }
}

// Where the recurrences of a span stop between two parts of a run.
struct PausedRecurrence {
  alignas(64) float now[kPhaseBlockSequential], step[kPhaseBlockSequential];
};
HWY_INLINE void PauseRecurrence(const FloatRecurrence& recurrence, Index i,
                                PausedRecurrence& paused) {
  const RowTag d;
  hn::Store(recurrence.now, d, paused.now + i);
  hn::Store(recurrence.step, d, paused.step + i);
}
HWY_INLINE void ResumeRecurrence(const ComposeSource& s, const Span& span, Index i,
                                 const PausedRecurrence& paused, FloatRecurrence& recurrence) {
  const RowTag d;
  const auto less = hn::LoadU(d, s.narrow.by_one.cosine + span.channel + i);
  recurrence.now = hn::Load(d, paused.now + i);
  recurrence.step = hn::Load(d, paused.step + i);
  recurrence.curvature = hn::Add(less, less);
}

// The visits of a span through a whole run, kRowsInTurns rows at a time. Returns the channels that
// were written.
template <class T, Index kRows, bool kHasX, bool kStream>
HWY_INLINE Index ComposeInParts(const ComposeSource& s, PhaseStart<float>& start, const Span& span,
                                const Token<T>* token, Index first, NextVisit<T> next,
                                Compute<T> gain) {
  constexpr Index early = kPhaseAheadSequential / static_cast<Index>(sizeof(T));
  constexpr int kVisit = FloatRecurrence::kVisit;
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  const Index visits = span.n / (kVisit * lanes);
  PausedRecurrence paused;
  for (Index r = 0; r < kRows; r += kRowsInterleaved) {
    const bool last = r + kRowsInterleaved == kRows;
    const NextVisit<T> after =
        last ? next : NextVisit<T>{token + kRowsInterleaved, first, next.access};
    for (Index i = 0; i < visits * kVisit * lanes; i += kVisit * lanes) {
      FloatRecurrence recurrence[kVisit];
      for (int v = 0; v < kVisit; ++v)
        if (r == 0)
          BeginRecurrence(s, span, i + v * lanes, start, recurrence[v]);
        else
          ResumeRecurrence(s, span, i + v * lanes, paused, recurrence[v]);
      SplitRecurrences<T, kVisit>(recurrence, r > 0);
      const Index left = span.n - i - early;
      const NextVisit<T> ahead = left > 0
                                     ? NextVisit<T>{token, first + i + early, next.access}
                                     : NextVisit<T>{after.token, after.channel - left, next.access};
      ComposeVisit<T, kVisit, kHasX, kStream>(recurrence, token, 0, kRowsInterleaved, first + i,
                                              ahead, gain);
      for (int v = 0; v < kVisit && !last; ++v)
        PauseRecurrence(recurrence[v], i + v * lanes, paused);
    }
    token += kRowsInterleaved;
  }
  return visits * kVisit * lanes;
}

// A span, rows [from, to) of a run of kWalk. Its channels begin at `first` in the tokens.
template <class T, class Recurrence, Index kRows, bool kHasX, bool kStream>
HWY_INLINE void ComposeSpan(const ComposeSource& s, PhaseStart<typename Recurrence::Start>& start,
                            const Span& span, const Token<T>* token, Index from, Index to,
                            Index first, NextVisit<T> next, Compute<T> gain) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  const bool sequential = next.access == AccessPattern::sequential;
  const Index early =
      (sequential ? kPhaseAheadSequential : kPhaseAheadPages) / static_cast<Index>(sizeof(T));
  Index i = 0;
  if constexpr (kRows > kRowsInterleaved) {
    if (sequential && from == 0 && to == kRows)
      i = ComposeInParts<T, kRows, kHasX, kStream>(s, start, span, token, first, next, gain);
  }
  const auto visit = [&](auto vectors) {
    constexpr int kVisit = decltype(vectors)::value;
    for (; i + kVisit * lanes <= span.n; i += kVisit * lanes) {
      Recurrence recurrence[kVisit];
      for (int v = 0; v < kVisit; ++v)
        BeginRecurrence(s, span, i + v * lanes, start, recurrence[v]);
      SplitRecurrences<T, kVisit>(recurrence, false);
      const Index left = span.n - i - early;
      const NextVisit<T> ahead = left > 0
                                     ? NextVisit<T>{token, first + i + early, next.access}
                                     : NextVisit<T>{next.token, next.channel - left, next.access};
      if (from == 0 && to == kRows)  // the usual one, unrolled
        ComposeVisit<T, kVisit, kHasX, kStream>(recurrence, token, 0, kRows, first + i, ahead,
                                                gain);
      else
        ComposeVisit<T, kVisit, kHasX, kStream>(recurrence, token, from, to, first + i, ahead,
                                                gain);
      for (int v = 0; v < kVisit; ++v) EndRecurrence(span, i + v * lanes, recurrence[v], start);
    }
  };
  visit(std::integral_constant<int, Recurrence::kVisit>());
  if constexpr (Recurrence::kVisit > 2) visit(std::integral_constant<int, 2>());
  for (; i < span.n; i += lanes) {
    Recurrence recurrence;
    BeginRecurrence(s, span, i, start, recurrence);
    ComposeRest<T>(recurrence, token, from, to, first + i, HWY_MIN(lanes, span.n - i), gain);
    EndRecurrence(span, i, recurrence, start);
  }
}

// A span goes on by a run that no token reads.
template <class Recurrence, Index kRows>
HWY_INLINE void SkipRun(const ComposeSource& s, const Span& span,
                        PhaseStart<typename Recurrence::Start>& start) {
  const auto lanes = static_cast<Index>(hn::Lanes(RowTag()));
  for (Index i = 0; i < span.n; i += lanes) {
    Recurrence recurrence;
    BeginRecurrence(s, span, i, start, recurrence);
    for (Index r = 0; r < kRows; ++r) recurrence.Step();
    EndRecurrence(span, i, recurrence, start);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
#endif
