// SPDX-License-Identifier: Apache-2.0
// y = M x + A for the tokens of one position. Three ways: one phase that is added (cosines and
// sines of some pairs are made, then met by x, while x of the next ones is on its way), one table
// row that is added, and any list of terms by windows of channels.
#include <cstdint>

#include "kernels/compose.h"
#include "kernels/element-inl.h"
#include "kernels/phase-inl.h"
#include "kernels/read.h"

#if defined(POSENC_KERNELS_COMPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_INL_H_
#undef POSENC_KERNELS_COMPOSE_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Pairs whose sines are made before they meet x: few, so that the processor overlaps the two.
inline constexpr Index kComposePairs = 64;
// Channels of the windows of the general way.
inline constexpr Index kComposeWindow = 512;
// Input is asked for this many bytes early.
inline constexpr Index kComposeAhead = 2048;

template <bool kStream, class D>
HWY_INLINE void WriteVector(hn::Vec<D> v, D d, BFloat16* p) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto upper = hn::BitCast(di, hn::ShiftRight<16>(RoundToUpperHalf(d, v)));
  hn::StoreU(hn::DemoteTo(d16, upper), d16, reinterpret_cast<std::uint16_t*>(p));
}

// One axis of a list of positions as a list of its own.
HWY_INLINE Positions AxisOf(const Positions& p, std::int32_t axis) {
  Positions one = p;
  const Index size = p.type == DType::i32 ? 4 : 8;
  one.data = static_cast<const char*>(p.data) + axis * p.axis_stride * size;
  one.axes = 1;
  return one;
}

// Whether the phase has a row here; its position, with the offset, in `at`.
HWY_INLINE bool PhasePosition(const ComposeSource& s, const Positions& p, Index batch, Index token,
                              TokenPosition& at) {
  if (is_zero(s, p, batch, token)) return false;
  if (s.phase.axes > 1) {
    read_position(p, s.phase.axes, batch, token, at);
  } else {
    read_position(AxisOf(p, s.axis), 1, batch, token, at);
  }
  for (Index a = 0; a < s.phase.axes; ++a) at.whole[a] += static_cast<std::uint64_t>(s.offset);
  return true;
}

// y = a x + row over n channels side by side; x null: zeros.
template <class T, bool kStream>
HWY_INLINE void AddRow(const T* x, T* y, const Compute<T>* row, Index n, Compute<T> a) {
  const hn::ScalableTag<Compute<T>> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto va = hn::Set(d, a);
  const auto ahead = kComposeAhead / static_cast<Index>(sizeof(T));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::LoadU(d, row + i);
    if (x != nullptr) {
      hwy::Prefetch(x + i + ahead);
      v = hn::MulAdd(ReadVector(d, x + i), va, v);
    }
    WriteVector<kStream>(v, d, y + i);
  }
  for (; i < n; ++i) y[i] = Narrow<T>((x != nullptr ? Widen(x[i]) * a : 0) + row[i]);
}

// Streams write whole vectors to addresses that are whole vectors.
template <class T>
HWY_INLINE bool Streams(const ComposeCall& call, const T* y, Index n) {
  const hn::ScalableTag<Compute<T>> d;
  return call.stream && sizeof(T) == sizeof(Compute<T>) && hn::Lanes(d) > 1 &&
         reinterpret_cast<std::uintptr_t>(y) % (hn::Lanes(d) * sizeof(T)) == 0 &&
         n % static_cast<Index>(hn::Lanes(d)) == 0;
}

// The tokens of an item: all batches when they share positions.
struct Item {
  Index token, first, last;  // batches [first, last)
};
HWY_INLINE Item ItemOf(const ComposeCall& call, Index i) {
  if (call.shared) return {i, 0, call.batch};
  return {i % call.tokens, i / call.tokens, i / call.tokens + 1};
}

template <class T>
struct Token {
  const T* x;
  T* y;
};
template <class T>
HWY_INLINE Token<T> TokenAt(const ComposeCall& call, Index b, Index t) {
  const auto* x = static_cast<const T*>(call.x.data);
  return {x == nullptr ? x : x + b * call.x.batch_stride + t * call.x.token_stride,
          static_cast<T*>(call.y.data) + b * call.y.batch_stride + t * call.y.token_stride};
}

template <class T>
HWY_INLINE void AddWindow(const ComposeCall& call, const Item& item, Index channel,
                          const Compute<T>* row, Index n) {
  const auto a = static_cast<Compute<T>>(call.input_gain);
  for (Index b = item.first; b < item.last; ++b) {
    const Token<T> at = TokenAt<T>(call, b, item.token);
    const T* x = at.x == nullptr ? nullptr : at.x + channel;
    if (Streams(call, at.y + channel, n))
      AddRow<T, true>(x, at.y + channel, row, n, a);
    else
      AddRow<T, false>(x, at.y + channel, row, n, a);
  }
}

// Channels that no term reaches: y = a x.
template <class T>
HWY_INLINE void AddNothing(const ComposeCall& call, const Item& item, Index begin, Index end) {
  Compute<T> zero[kComposeWindow] = {};
  for (Index c = begin; c < end; c += kComposeWindow)
    AddWindow<T>(call, item, c, zero, HWY_MIN(kComposeWindow, end - c));
}

// How many sines and cosines a row of a phase has: with one channel less than the layout has the
// last one is dropped.
struct SineCounts {
  Index sines, cosines;
};
HWY_INLINE SineCounts CountsOf(const ComposeSource& s) {
  const Index used = HWY_MIN(s.width, sine_channels(s.layout, s.phase.pairs));
  if (s.layout == SineLayout::sines) return {used, 0};
  if (s.layout == SineLayout::cosines) return {0, used};
  return {used - used / 2, used / 2};
}

HWY_INLINE bool CosineFirst(SineLayout layout) {
  return layout == SineLayout::halves_cos_first || layout == SineLayout::cosines;
}

// c0 s0 c1 s1 .. or s0 c0 s1 c1 ..: n pairs of `even` and `odd` side by side; reads whole vectors.
template <class C>
HWY_INLINE void ZipPairs(const C* even, const C* odd, Index n, C* out) {
  const hn::ScalableTag<C> d;
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  for (Index i = 0; i < n; ++i) out[2 * i] = even[i], out[2 * i + 1] = odd[i];
#else
  for (Index i = 0; i < n; i += static_cast<Index>(hn::Lanes(d)))
    hn::StoreInterleaved2(hn::LoadU(d, even + i), hn::LoadU(d, odd + i), d, out + 2 * i);
#endif
}

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

// gain * row of a table, widened, in windows.
template <class T>
void AddTable(const ComposeCall& call, const ComposeSource& s, const Item& item) {
  using C = Compute<T>;
  const Index row = table_row(s, integer_at(*call.positions, s.axis, item.first, item.token));
  if (row < 0) return AddNothing<T>(call, item, 0, call.y_width);
  const hn::ScalableTag<C> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const T* from = static_cast<const T*>(s.table) + row * s.width;
  const auto gain = static_cast<C>(s.gain);
  alignas(64) C window[kComposeWindow];
  for (Index c = 0; c < s.width; c += kComposeWindow) {
    const Index n = HWY_MIN(kComposeWindow, s.width - c);
    Index i = 0;
    for (; i + lanes <= n; i += lanes) {
      hwy::Prefetch(from + c + i + kComposeAhead / static_cast<Index>(sizeof(T)));
      hn::StoreU(hn::Mul(ReadVector(d, from + c + i), hn::Set(d, gain)), d, window + i);
    }
    for (; i < n; ++i) window[i] = Widen(from[c + i]) * gain;
    AddWindow<T>(call, item, s.first + c, window, n);
  }
  AddNothing<T>(call, item, 0, s.first);
  AddNothing<T>(call, item, s.first + s.width, call.y_width);
}

// Channels [begin, end) of the row of a term, without its gain.
template <class T>
struct RowWindow {
  using C = Compute<T>;
  const ComposeCall& call;
  const ComposeSource& s;
  Index batch, token;

  // Sines or cosines of pairs [first, last).
  void Half(const TokenPosition& at, bool cosine, Index first, Index last, C* out) const {
    alignas(64) C c[kComposePairs + kPadding], sine[kComposePairs + kPadding];
    for (Index i = first; i < last; i += kComposePairs) {
      const Index n = HWY_MIN(kComposePairs, last - i);
      Phase(s.phase, 0, at, i, n, 1, 1, c, sine);
      for (Index k = 0; k < n; ++k) *out++ = cosine ? c[k] : sine[k];
    }
  }
  void Pairs(const TokenPosition& at, Index begin, Index end, C* out) const {
    alignas(64) C c[kComposePairs + kPadding], sine[kComposePairs + kPadding];
    for (Index i = begin / 2; 2 * i < end; i += kComposePairs) {
      const Index n = HWY_MIN(kComposePairs, (end + 1) / 2 - i);
      Phase(s.phase, 0, at, i, n, 1, 1, c, sine);
      for (Index ch = HWY_MAX(begin, 2 * i); ch < HWY_MIN(end, 2 * (i + n)); ++ch)
        *out++ = ch % 2 != 0 ? c[ch / 2 - i] : sine[ch / 2 - i];
    }
  }
  void PhaseRow(Index begin, Index end, C* out) const {
    TokenPosition at;
    const SineCounts count = CountsOf(s);
    const Index used = count.sines + count.cosines;
    for (Index c = begin; c < end; ++c) out[c - begin] = 0;
    if (begin >= used || !PhasePosition(s, *call.positions, batch, token, at)) return;
    end = HWY_MIN(end, used);
    if (s.layout == SineLayout::interleaved) return Pairs(at, begin, end, out);
    const bool cosine_first = CosineFirst(s.layout);
    const Index split = cosine_first ? count.cosines : count.sines;
    if (begin < split) Half(at, cosine_first, begin, HWY_MIN(end, split), out);
    if (end > split) {
      const Index from = HWY_MAX(begin, split);
      Half(at, !cosine_first, from - split, end - split, out + (from - begin));
    }
  }
  void Affine(Index begin, Index end, C* out) const {
    const Positions& p = *call.positions;
    const bool zero = is_zero(s, p, batch, token);
    for (Index c = begin; c < end; ++c) {
      double sum = s.affine[p.axes * s.width + c];
      for (std::int32_t a = 0; a < p.axes; ++a)
        sum += real_at(p, a, batch, token) * s.affine[a * s.width + c];
      out[c - begin] = zero ? 0 : static_cast<C>(sum);
    }
  }
  void Make(Index begin, Index end, C* out) const {
    if (s.kind == ComposeSource::Kind::phase) return PhaseRow(begin, end, out);
    if (s.kind == ComposeSource::Kind::affine) return Affine(begin, end, out);
    if (s.kind == ComposeSource::Kind::rows) {
      const Index at = batch * s.rows.batch_stride + token * s.rows.token_stride;
      for (Index c = begin; c < end; ++c)
        out[c - begin] =
            static_cast<C>(ReadRow(s.rows.data, s.rows.dtype, at + c * s.rows.column_stride));
      return;
    }
    const Index row = table_row(s, integer_at(*call.positions, s.axis, batch, token));
    const T* from = static_cast<const T*>(s.table) + (row < 0 ? 0 : row) * s.width;
    for (Index c = begin; c < end; ++c) out[c - begin] = row < 0 ? 0 : Widen(from[c]);
  }
};

template <class C>
HWY_INLINE void ComposeWindow(Compose how, C gain, const C* row, Index n, C* multiply, C* add) {
  for (Index i = 0; i < n; ++i) {
    const C p = gain * row[i];
    if (how == Compose::multiply) {
      multiply[i] *= p, add[i] *= p;
    } else if (how == Compose::one_plus) {
      multiply[i] *= 1 + p, add[i] *= 1 + p;
    } else {
      add[i] += p;
    }
  }
}

// Any list of terms and any strides.
template <class T>
void ComposeAny(const ComposeCall& call, const Item& item) {
  using C = Compute<T>;
  C multiply[kComposeWindow], add[kComposeWindow], row[kComposeWindow];
  for (Index begin = 0; begin < call.y_width; begin += kComposeWindow) {
    const Index end = HWY_MIN(begin + kComposeWindow, call.y_width);
    for (Index c = begin; c < end; ++c)
      multiply[c - begin] = static_cast<C>(call.input_gain), add[c - begin] = 0;
    for (Index n = 0; n < call.count; ++n) {
      const ComposeSource& s = call.sources[n];
      const Index from = HWY_MAX(begin, s.first), to = HWY_MIN(end, s.first + s.width);
      if (from >= to) continue;
      RowWindow<T>{call, s, item.first, item.token}.Make(from - s.first, to - s.first, row);
      ComposeWindow<C>(s.compose, static_cast<C>(s.gain), row, to - from, multiply + (from - begin),
                       add + (from - begin));
    }
    for (Index b = item.first; b < item.last; ++b) {
      const Token<T> at = TokenAt<T>(call, b, item.token);
      for (Index c = begin; c < end; ++c) {
        const bool has = at.x != nullptr && c < call.x_width;
        const C x = has ? Widen(at.x[c * call.x.channel_stride]) : C{0};
        at.y[c * call.y.channel_stride] = Narrow<T>(multiply[c - begin] * x + add[c - begin]);
      }
    }
  }
}

template <class T>
void ComposeTokens(const ComposeCall& call, Index begin, Index end) {
  const ComposeSource* s = call.sources;
  const bool dense =
      call.y.channel_stride == 1 && (call.x.data == nullptr || call.x.channel_stride == 1);
  // Appended channels have no x beside them.
  const bool simple =
      dense && call.count == 1 && s->compose == Compose::add &&
      (call.x.data == nullptr || call.x_width == call.y_width) &&
      (s->kind == ComposeSource::Kind::phase || s->kind == ComposeSource::Kind::table);
  if (simple && s->kind == ComposeSource::Kind::phase) {
    AddPhases<T>(call, *s, begin, end);
    begin = end;
  }
  for (Index i = begin; i < end; ++i) {
    const Item item = ItemOf(call, i);
    if (dense && call.count == 0)
      AddNothing<T>(call, item, 0, call.y_width);
    else if (simple)
      AddTable<T>(call, *s, item);
    else
      ComposeAny<T>(call, item);
  }
  if (call.stream) hwy::FlushStream();
}

// Gradient of a table row: the tokens that read it, channel by channel, in order.
template <class T>
void SumRows(const void* at, const Index* offset, Index count, Index n, double gain, double* out) {
  const T* from = static_cast<const T*>(at);
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    auto s0 = hn::Zero(d), s1 = s0;
    for (Index k = 0; k < count; ++k) {
      const T* x = from + offset[k] + i;
      if constexpr (sizeof(Compute<T>) == 8) {
        s0 = hn::Add(s0, hn::LoadU(d, x)), s1 = hn::Add(s1, hn::LoadU(d, x + lanes));
      } else {
        const hn::Rebind<float, hn::ScalableTag<double>> df;
        s0 = hn::Add(s0, hn::PromoteTo(d, ReadVector(df, x)));
        s1 = hn::Add(s1, hn::PromoteTo(d, ReadVector(df, x + lanes)));
      }
    }
    const auto g = hn::Set(d, gain);
    hn::StoreU(hn::Add(hn::LoadU(d, out + i), hn::Mul(g, s0)), d, out + i);
    hn::StoreU(hn::Add(hn::LoadU(d, out + i + lanes), hn::Mul(g, s1)), d, out + i + lanes);
  }
  for (; i < n; ++i) {
    double sum = 0;
    for (Index k = 0; k < count; ++k) sum += static_cast<double>(Widen(from[offset[k] + i]));
    out[i] += gain * sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();
#endif
