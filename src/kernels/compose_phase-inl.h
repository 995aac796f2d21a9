// SPDX-License-Identifier: Apache-2.0
// One phase that is added: rows of consecutive positions are made by recurrence, channel by
// channel, where they are added to x.
#include <cstdint>
#include <type_traits>

#include "kernels/compose_recurrence-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_PHASE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_PHASE_INL_H_
#undef POSENC_KERNELS_COMPOSE_PHASE_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_PHASE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a start for all batches of their items: made once, then added.
template <class T>
HWY_NOINLINE void ComposeShared(const ComposeCall& call, const ComposeSource& s,
                                PhaseStart<typename RecurrenceOf<T>::Start>& start,
                                const Span& span, Index item, Index from, Index to) {
  constexpr Index kPiece = 256;
  alignas(64) float rows[kRun<T>][kPiece + kPadding];
  Token<float> token[kRun<T>];
  for (Index r = from; r < to; ++r) token[r - from] = {nullptr, rows[r - from]};
  for (Index i = 0; i < span.n; i += kPiece) {
    const Span piece{span.at + i, span.channel + i, HWY_MIN(kPiece, span.n - i)};
    ComposeSpan<float, RecurrenceOf<T>, kRun<T>, false, false>(s, start, piece, token, from, to, 0,
                                                               {token, 0, call.access}, 0);
    for (Index r = 0; r < to - from; ++r)
      AddWindow<T>(call, ItemOf(call, item + r), s.first + piece.channel, rows[r], piece.n);
  }
}

// Tokens at consecutive positions of one group; x null: rows alone.
template <class T>
struct PhaseRun {
  const ComposeCall& call;
  const ComposeSource& s;
  Index begin;                  // the first item
  Index from = 0, to = 0;       // positions in the group
  Token<T> token[kPhaseGroup];  // from `from` on
  bool stream = false;
};

// A block of a run, from its exact start on.
template <class T>
HWY_NOINLINE void ComposeRunBlock(const PhaseRun<T>& run,
                                  PhaseStart<typename RecurrenceOf<T>::Start>& start,
                                  const Span* spans, int count) {
  const auto lanes = static_cast<Index>(hn::Lanes(hn::ScalableTag<float>()));
  const ComposeSource& s = run.s;
  const auto gain = static_cast<Compute<T>>(run.call.input_gain);
  Index base = 0;
  for (; base + kRun<T> <= run.from; base += kRun<T>)
    for (int k = 0; k < count; ++k) SkipRun<RecurrenceOf<T>, kRun<T>>(s, spans[k], start);
  for (; base < run.to; base += kRun<T>) {
    const Index from = HWY_MAX(run.from, base) - base, to = HWY_MIN(run.to - base, kRun<T>);
    const Index skipped = base + from - run.from;
    const Token<T>* token = run.token + skipped;
    // Whole runs are followed by the next run of the block, the last one by the next block.
    const bool more = base + 2 * kRun<T> <= run.to;
    for (int k = 0; k < count; ++k) {
      const Span& span = spans[k];
      const Index after =
          k + 1 < count ? spans[k + 1].channel : spans[0].channel + (more ? 0 : spans[0].n);
      const NextVisit<T> next{k + 1 < count || !more || from != 0 ? token : token + kRun<T>,
                              s.first + after, run.call.access};
      const auto compose = [&](auto has_x, auto stream) {
        ComposeSpan<T, RecurrenceOf<T>, kRun<T>, decltype(has_x)::value, decltype(stream)::value>(
            s, start, span, token, from, to, s.first + span.channel, next, gain);
      };
      if (run.call.shared && run.call.batch > 1)
        ComposeShared<T>(run.call, s, start, span, run.begin + skipped, from, to);
      else if (token->x == nullptr)
        compose(std::false_type(), std::false_type());
      else if (run.stream && span.channel % lanes == 0)
        compose(std::true_type(), std::true_type());
      else
        compose(std::true_type(), std::false_type());
    }
  }
}

template <class T>
HWY_INLINE void AddAround(const ComposeCall& call, const ComposeSource& s, const Item& item) {
  const SineCounts count = sine_counts(s.layout, s.phase.pairs, s.width);
  AddNothing<T>(call, item, 0, s.first);
  AddNothing<T>(call, item, s.first + count.sines + count.cosines, call.y_width);
}

// Items [begin, begin + count) stand at consecutive whole positions, the first at `position`, in
// one group.
template <class T>
void AddPhaseRun(const ComposeCall& call, const ComposeSource& s, Index begin, Index count,
                 std::uint64_t position) {
  const auto from = static_cast<Index>(position % kPhaseGroup);
  const std::uint64_t exact = position - static_cast<std::uint64_t>(from);
  PhaseRun<T> run{call, s, begin, from, from + count, {}, call.stream};
  for (Index k = 0; k < count; ++k) {
    const Item item = ItemOf(call, begin + k);
    run.token[k] = TokenAt<T>(call, item.first, item.token);
    run.stream = run.stream && Streams(call, run.token[k].y + s.first, 0);
  }
  PhaseStart<typename RecurrenceOf<T>::Start> start;  // large: nothing is cleared that is not read
  const Index most =
      (call.access == AccessPattern::sequential ? kPhaseBlockSequential : kPhaseBlock) / 2;
  for (Index pair = 0; pair < s.phase.pairs; pair += most) {
    Span spans[2];
    const int n = ExactStart(s, exact, pair, HWY_MIN(most, s.phase.pairs - pair), start, spans);
    for (int k = 0; k < n && sizeof(T) == 4; ++k) TakeFirstStep(s, spans[k], start);
    ComposeRunBlock<T>(run, start, spans, n);
  }
  for (Index k = 0; k < count; ++k) AddAround<T>(call, s, ItemOf(call, begin + k));
}

// The sines and cosines of pairs [i, i + n) are added to x.
template <class T>
HWY_INLINE void AddPairs(const ComposeCall& call, const ComposeSource& s, const Item& item, Index i,
                         Index n, const Compute<T>* interleaved, const Compute<T>* sine,
                         const Compute<T>* c) {
  const SineCounts count = sine_counts(s.layout, s.phase.pairs, s.width);
  const Index sines = HWY_MAX(0, HWY_MIN(n, count.sines - i));
  const Index cosines = HWY_MAX(0, HWY_MIN(n, count.cosines - i));
  const bool cosines_first = cosine_first(s.layout);
  if (s.layout == SineLayout::interleaved)
    return AddWindow<T>(call, item, s.first + 2 * i, interleaved, sines + cosines);
  AddWindow<T>(call, item, s.first + i + (cosines_first ? count.cosines : 0), sine, sines);
  AddWindow<T>(call, item, s.first + i + (cosines_first ? 0 : count.sines), c, cosines);
}

// One item at any position, double work too.
template <class T>
void AddPhase(const ComposeCall& call, const ComposeSource& s, const Item& item) {
  using C = Compute<T>;
  TokenPosition at;
  if (!PhasePosition(s, *call.positions, item.first, item.token, at))
    return AddNothing<T>(call, item, 0, call.y_width);
  alignas(64) C c[kComposePairs + kPadding], sine[kComposePairs + kPadding];
  alignas(64) C interleaved[2 * (kComposePairs + kPadding)];
  for (Index i = 0; i < s.phase.pairs; i += kComposePairs) {
    const Index n = HWY_MIN(kComposePairs, s.phase.pairs - i);
    Phase(s.phase, 0, at, i, n, s.gain, s.gain, c, sine);
    if (s.layout == SineLayout::interleaved) InterleavePairs(sine, c, n, interleaved);
    AddPairs<T>(call, s, item, i, n, interleaved, sine, c);
  }
  AddAround<T>(call, s, item);
}

// How many items from `begin` stand in one run; 0: the first has a position of its own kind.
template <class T>
HWY_INLINE Index RunLength(const ComposeCall& call, const ComposeSource& s, Index begin, Index end,
                           std::uint64_t& position) {
  const Positions& p = *call.positions;
  if (!HasRecurrence<T>(s) || p.type == DType::f64) return 0;
  const Item first = ItemOf(call, begin);
  if (is_zero(s, p, first.first, first.token)) return 0;
  const auto whole = [&](const Item& item) {
    return static_cast<std::uint64_t>(integer_position(p, s.axis, item.first, item.token)) +
           static_cast<std::uint64_t>(s.offset);
  };
  position = whole(first);
  Index n = 1;
  const Index most = HWY_MIN(end - begin, kPhaseGroup - static_cast<Index>(position % kPhaseGroup));
  for (; n < most; ++n) {
    const Item next = ItemOf(call, begin + n);
    if (whole(next) != position + static_cast<std::uint64_t>(n) ||
        is_zero(s, p, next.first, next.token))
      break;
  }
  return n;
}

template <class T>
void AddPhases(const ComposeCall& call, const ComposeSource& s, Index begin, Index end) {
  while (begin < end) {
    if constexpr (sizeof(Compute<T>) == 4) {
      std::uint64_t position = 0;
      const Index run = RunLength<T>(call, s, begin, end, position);
      if (run > 0) {
        AddPhaseRun<T>(call, s, begin, run, position);
        begin += run;
        continue;
      }
    }
    AddPhase<T>(call, s, ItemOf(call, begin++));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
