// SPDX-License-Identifier: Apache-2.0
// One phase that is added: cosines and sines of some pairs are made, then met by x, while x of the
// next ones is on its way.
#include <cstdint>

#include "kernels/compose_window-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_PHASE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_PHASE_INL_H_
#undef POSENC_KERNELS_COMPOSE_PHASE_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_PHASE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of up to 8 consecutive positions from one exact row: that of the position's multiple of 8,
// turned by one position at a time. What a position gets depends on nothing but the position. For
// f32 in double, so that a row is within 3e-8; for 16 bits in float, within 6e-7. (Exact sines of
// every row in float instead: 1e-7, and 1.6 times the time in bfloat16.)
inline constexpr Index kRun = 8;
inline constexpr Index kRunRow = 2 * kComposePairs + kPadding;
using RunTag = hn::ScalableTag<float>;

// As many pairs as a vector of floats has, in double: two vectors, with one lane one.
struct WideRun {
  using D = hn::ScalableTag<double>;
  static constexpr int kParts = HWY_TARGET == HWY_SCALAR ? 1 : 2;
  hn::Vec<D> c[kParts], s[kParts], dc[kParts], ds[kParts];

  HWY_INLINE WideRun(const ComposeSource& source, std::uint64_t anchor, Index first) {
    const D d;
    const auto lanes = static_cast<Index>(hn::Lanes(d));
    std::uint64_t quarter[kPadding];
    std::int64_t rest[kPadding];
    for (Index i = 0; i < kParts * lanes; ++i) {
      const std::uint64_t turns = (std::uint64_t{source.phase.turns_hi[first + i]} << 32) |
                                  source.phase.turns_lo[first + i];
      const std::uint64_t turn = turns * anchor;
      quarter[i] = (turn + (std::uint64_t{1} << 61)) >> 62;
      rest[i] = static_cast<std::int64_t>(turn - (quarter[i] << 62));
    }
    for (int k = 0; k < kParts; ++k) {
      SinCosOfQuarters(d, quarter + k * lanes, rest + k * lanes, s[k], c[k]);
      c[k] = hn::Mul(c[k], hn::Set(d, source.gain)), s[k] = hn::Mul(s[k], hn::Set(d, source.gain));
      dc[k] = hn::LoadU(d, source.step_cosine + first + k * lanes);
      ds[k] = hn::LoadU(d, source.step_sine + first + k * lanes);
    }
  }
  HWY_INLINE void Step() {
    for (int k = 0; k < kParts; ++k) {
      const auto next = hn::NegMulAdd(s[k], ds[k], hn::Mul(c[k], dc[k]));
      s[k] = hn::MulAdd(s[k], dc[k], hn::Mul(c[k], ds[k]));
      c[k] = next;
    }
  }
  static HWY_INLINE hn::Vec<RunTag> Narrowed(const hn::Vec<D>* x) {
#if HWY_TARGET == HWY_SCALAR
    return hn::DemoteTo(RunTag(), x[0]);
#else
    const hn::Half<RunTag> half;
    return hn::Combine(RunTag(), hn::DemoteTo(half, x[1]), hn::DemoteTo(half, x[0]));
#endif
  }
  HWY_INLINE hn::Vec<RunTag> Cosine() const {
    return Narrowed(c);
  }
  HWY_INLINE hn::Vec<RunTag> Sine() const {
    return Narrowed(s);
  }
};

struct NarrowRun {
  hn::Vec<RunTag> c, s, dc, ds;

  HWY_INLINE NarrowRun(const ComposeSource& source, std::uint64_t anchor, Index first) {
    const RunTag d;
    const hn::RebindToUnsigned<RunTag> du;
    SinCosOfTurn(
        d, TurnOf(du, source.phase.turns_hi + first, source.phase.turns_lo + first, anchor), s, c);
    const auto gain = hn::Set(d, static_cast<float>(source.gain));
    c = hn::Mul(c, gain), s = hn::Mul(s, gain);
    dc = Steps(source.step_cosine + first), ds = Steps(source.step_sine + first);
  }
  static HWY_INLINE hn::Vec<RunTag> Steps(const double* from) {
    const hn::ScalableTag<double> d;
    hn::Vec<decltype(d)> v[WideRun::kParts];
    for (int k = 0; k < WideRun::kParts; ++k)
      v[k] = hn::LoadU(d, from + k * static_cast<Index>(hn::Lanes(d)));
    return WideRun::Narrowed(v);
  }
  HWY_INLINE void Step() {
    const auto next = hn::NegMulAdd(s, ds, hn::Mul(c, dc));
    s = hn::MulAdd(s, dc, hn::Mul(c, ds));
    c = next;
  }
  HWY_INLINE hn::Vec<RunTag> Cosine() const { return c; }
  HWY_INLINE hn::Vec<RunTag> Sine() const { return s; }
};

HWY_INLINE void StoreRunPairs(hn::Vec<RunTag> sine, hn::Vec<RunTag> cosine, bool interleaved,
                              Index i, float* row) {
  const RunTag d;
  if (!interleaved) {
    hn::StoreU(sine, d, row + i);
    hn::StoreU(cosine, d, row + kComposePairs + i);
    return;
  }
#if HWY_TARGET == HWY_SCALAR
  row[2 * i] = hn::GetLane(sine), row[2 * i + 1] = hn::GetLane(cosine);
#else
  hn::StoreInterleaved2(sine, cosine, d, row + 2 * i);
#endif
}

// Sines and cosines of pairs [first, first + n) at positions anchor + [from, to), gain in:
// interleaved side by side, else the cosines kComposePairs behind the sines. Two vectors at once,
// because a step waits for the one before.
template <class Run>
HWY_INLINE void MakeRun(const ComposeSource& s, std::uint64_t anchor, Index first, Index n,
                        Index from, Index to, float* rows) {
  const auto lanes = static_cast<Index>(hn::Lanes(RunTag()));
  const bool interleaved = s.layout == SineLayout::interleaved;
  for (Index i = 0; i < n; i += 2 * lanes) {
    Run a(s, anchor, first + i), b(s, anchor, first + i + lanes);
    for (Index row = 0; row < to; ++row) {
      if (row >= from) {
        float* out = rows + (row - from) * kRunRow;
        StoreRunPairs(a.Sine(), a.Cosine(), interleaved, i, out);
        StoreRunPairs(b.Sine(), b.Cosine(), interleaved, i + lanes, out);
      }
      a.Step(), b.Step();
    }
  }
}

// The sines and cosines of pairs [i, i + n) meet x.
template <class T>
HWY_INLINE void AddPairs(const ComposeCall& call, const ComposeSource& s, const Item& item, Index i,
                         Index n, const Compute<T>* zipped, const Compute<T>* sine,
                         const Compute<T>* c) {
  const SineCounts count = CountsOf(s);
  const Index sines = HWY_MAX(0, HWY_MIN(n, count.sines - i));
  const Index cosines = HWY_MAX(0, HWY_MIN(n, count.cosines - i));
  const bool cosine_first = CosineFirst(s.layout);
  if (s.layout == SineLayout::interleaved)
    return AddWindow<T>(call, item, s.first + 2 * i, zipped, sines + cosines);
  AddWindow<T>(call, item, s.first + i + (cosine_first ? count.cosines : 0), sine, sines);
  AddWindow<T>(call, item, s.first + i + (cosine_first ? 0 : count.sines), c, cosines);
}

template <class T>
HWY_INLINE void AddAround(const ComposeCall& call, const ComposeSource& s, const Item& item) {
  const SineCounts count = CountsOf(s);
  AddNothing<T>(call, item, 0, s.first);
  AddNothing<T>(call, item, s.first + count.sines + count.cosines, call.y_width);
}

// Items [begin, begin + count) stand at consecutive whole positions, the first at `position`, in
// one group of kRun.
template <class T>
void AddPhaseRun(const ComposeCall& call, const ComposeSource& s, Index begin, Index count,
                 std::uint64_t position) {
  alignas(64) float rows[kRun * kRunRow];
  const auto from = static_cast<Index>(position % kRun);
  for (Index i = 0; i < s.phase.pairs; i += kComposePairs) {
    const Index n = HWY_MIN(kComposePairs, s.phase.pairs - i);
    const std::uint64_t anchor = position - static_cast<std::uint64_t>(from);
    if constexpr (sizeof(T) == 4)
      MakeRun<WideRun>(s, anchor, i, n, from, from + count, rows);
    else
      MakeRun<NarrowRun>(s, anchor, i, n, from, from + count, rows);
    for (Index k = 0; k < count; ++k) {
      const float* row = rows + k * kRunRow;
      AddPairs<T>(call, s, ItemOf(call, begin + k), i, n, row, row, row + kComposePairs);
    }
  }
  for (Index k = 0; k < count; ++k) AddAround<T>(call, s, ItemOf(call, begin + k));
}

// One item at any position, double work too.
template <class T>
void AddPhase(const ComposeCall& call, const ComposeSource& s, const Item& item) {
  using C = Compute<T>;
  TokenPosition at;
  if (!PhasePosition(s, *call.positions, item.first, item.token, at))
    return AddNothing<T>(call, item, 0, call.y_width);
  alignas(64) C c[kComposePairs + kPadding], sine[kComposePairs + kPadding];
  alignas(64) C zipped[2 * (kComposePairs + kPadding)];
  for (Index i = 0; i < s.phase.pairs; i += kComposePairs) {
    const Index n = HWY_MIN(kComposePairs, s.phase.pairs - i);
    Phase(s.phase, 0, at, i, n, s.gain, s.gain, c, sine);
    if (s.layout == SineLayout::interleaved) ZipPairs(sine, c, n, zipped);
    AddPairs<T>(call, s, item, i, n, zipped, sine, c);
  }
  AddAround<T>(call, s, item);
}

// How many items from `begin` stand in one run; 0: the first has a position of its own kind.
HWY_INLINE Index RunLength(const ComposeCall& call, const ComposeSource& s, Index begin, Index end,
                           std::uint64_t& position) {
  const Positions& p = *call.positions;
  if (s.phase.axes != 1 || p.type == DType::f64) return 0;
  const Item first = ItemOf(call, begin);
  if (is_zero(s, p, first.first, first.token)) return 0;
  const auto whole = [&](const Item& item) {
    return static_cast<std::uint64_t>(integer_at(p, s.axis, item.first, item.token)) +
           static_cast<std::uint64_t>(s.offset);
  };
  position = whole(first);
  Index n = 1;
  const Index most = HWY_MIN(end - begin, kRun - static_cast<Index>(position % kRun));
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
      const Index run = RunLength(call, s, begin, end, position);
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
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
