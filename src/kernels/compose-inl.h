// SPDX-License-Identifier: Apache-2.0
// y = M x + A for the tokens of one position. Three cases: one phase that is added, one table row
// that is added, and any list of terms by windows of channels.
#include <cstdint>

#include "kernels/compose_phase-inl.h"
#include "kernels/compose_table-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_INL_H_
#undef POSENC_KERNELS_COMPOSE_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_INL_H_
#endif
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
    const SineCounts count = sine_counts(s.layout, s.phase.pairs, s.width);
    const Index used = count.sines + count.cosines;
    for (Index c = begin; c < end; ++c) out[c - begin] = 0;
    if (begin >= used || !PhasePosition(s, *call.positions, batch, token, at)) return;
    end = HWY_MIN(end, used);
    if (s.layout == SineLayout::interleaved) return Pairs(at, begin, end, out);
    const bool cosines_first = cosine_first(s.layout);
    const Index split = cosines_first ? count.cosines : count.sines;
    if (begin < split) Half(at, cosines_first, begin, HWY_MIN(end, split), out);
    if (end > split) {
      const Index from = HWY_MAX(begin, split);
      Half(at, !cosines_first, from - split, end - split, out + (from - begin));
    }
  }
  void Affine(Index begin, Index end, C* out) const {
    const Positions& p = *call.positions;
    const bool zero = is_zero(s, p, batch, token);
    for (Index c = begin; c < end; ++c) {
      double sum = s.affine[p.axes * s.width + c];
      for (std::int32_t a = 0; a < p.axes; ++a)
        sum += real_position(p, a, batch, token) * s.affine[a * s.width + c];
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
            static_cast<C>(float_element(s.rows.data, s.rows.dtype, at + c * s.rows.column_stride));
      return;
    }
    TableRow(table_row(s, *call.positions, batch, token), begin, end, out);
  }
  // Rows behind the table are made of three: P[r mod n] + extension (P[r / n] - P[0]).
  void TableRow(Index row, Index begin, Index end, C* out) const {
    if (row >= s.table_rows) {
      const double *low = s.wide_table + row % s.table_rows * s.width,
                   *high = s.wide_table + row / s.table_rows * s.width;
      for (Index c = begin; c < end; ++c)
        out[c - begin] =
            static_cast<C>(low[c] + s.extension * high[c] - s.extension * s.wide_table[c]);
      return;
    }
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
  const bool simple = dense && call.count == 1 && s->compose == Compose::add &&
                      (call.x.data == nullptr || call.x_width == call.y_width) &&
                      (s->kind == ComposeSource::Kind::phase ||
                       (s->kind == ComposeSource::Kind::table && s->beyond != Beyond::extend));
  if (simple && s->kind == ComposeSource::Kind::phase) {
    AddPhases<T>(call, *s, begin, end);
  } else if (simple) {
    AddTables<T>(call, *s, begin, end);
  } else {
    for (Index i = begin; i < end; ++i) {
      const Item item = ItemOf(call, i);
      if (dense && call.count == 0)
        AddNothing<T>(call, item, 0, call.y_width);
      else
        ComposeAny<T>(call, item);
    }
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

template <class T>
inline constexpr ComposeKernels kComposeKernels{ComposeTokens<T>, SumRows<T>};

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
