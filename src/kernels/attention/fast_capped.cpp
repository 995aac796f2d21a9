// SPDX-License-Identifier: Apache-2.0
// Strips and tiles whose scores have a soft cap, for every instruction set.
#include "kernels/attention/fast_capped.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_capped.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include <cfloat>

#include "kernels/attention/fast_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#define POSENC_UNROLL _Pragma("GCC unroll 16")

// With u = x 2 / cap log2(e) and E = 2^u - 1: tanh = E / (E + 2), its slope 4 2^u / (E + 2)^2.
struct Capped {
  F value, slope;
};
#if HWY_HAVE_SCALABLE
HWY_INLINE Capped CapF(F x, float cap, float) {
  // 1 - tanh^2 would keep no digits of a small slope.
  const float z = x / cap, e = std::exp(-2 * std::fabs(z)), half = 1 / (1 + e);
  return {cap * std::tanh(z), 4 * e * half * half};
}
HWY_INLINE F ZeroHiddenF(F score, F start) {
  return start == -HUGE_VALF ? 0 : score;
}
#else
// E keeps its digits near 0: 2^n - 1 + 2^n f q(f), n = round(u), q within 2.2e-8 of (2^f - 1) / f. Beyond |u| = 26 tanh
// is 1 in float.
HWY_INLINE Capped CapF(F x, float cap, float inverse) {
  const hn::RebindToSigned<FTag> di;
  const F magic = SetF(12582912.0f + 127.0f), one = SetF(1.0f), two = SetF(2.0f);
  const F u = hn::Min(hn::Max(MulF(x, SetF(inverse)), SetF(-26.0f)), SetF(26.0f));
  const F t = hn::Add(u, magic), f = hn::Sub(u, hn::Sub(t, magic));
  F q = hn::MulAdd(SetF(0.000154531634f), f, SetF(0.00133908633f));
  q = hn::MulAdd(q, f, SetF(0.00961808302f));
  q = hn::MulAdd(q, f, SetF(0.0555035695f));
  q = hn::MulAdd(q, f, SetF(0.240226507f));
  q = MulF(hn::MulAdd(q, f, SetF(0.693147182f)), f);
  const F power = hn::BitCast(FTag(), hn::ShiftLeft<23>(hn::BitCast(di, t)));
  const F e = hn::MulAdd(power, q, hn::Sub(power, one));
  const F half = hn::Div(one, hn::Add(e, two));
  const F whole = hn::MulAdd(power, q, power);  // 2^u
  return {MulF(MulF(e, half), SetF(cap)), MulF(MulF(whole, SetF(4.0f)), MulF(half, half))};
}
HWY_INLINE F ZeroHiddenF(F score, F start) {
  return hn::IfThenZeroElse(hn::Eq(start, SetF(-HUGE_VALF)), score);
}
#endif

// What becomes of a sum of a product: relative to the base, or to 0 where start values are under the cap.
struct RowCap {
  RowCap(const FastCap& c, const float* start_values, double base_of_row)
      : cap(c.cap),
        inverse(2 * 1.44269504f / c.cap),
        under(c.starts),
        start(start_values),
        base(static_cast<float>(base_of_row)) {}
  HWY_INLINE F operator()(F x, Index key, F& slope) const {
    if (start == nullptr) return Put(under ? AddF(x, SetF(base)) : x, slope);
    const F y = LoadF(start + key);
    if (!under) return AddF(Put(x, slope), y);
    return HideF(Put(AddF(x, AddF(y, SetF(base))), slope), y);
  }
  HWY_INLINE F Put(F x, F& slope) const {
    const Capped c = CapF(x, cap, inverse);
    slope = c.slope;
    return c.value;
  }
  float cap, inverse;
  bool under;
  const float* start;
  float base;
};

// tanh(z) / z for |z| up to 1, from z^2, within 1e-8: most scores lie there, and nothing is divided.
HWY_INLINE F RatioF(F square) {
  F p = MulAddF(SetF(-0.00035232809f), square, SetF(0.00227864762f));
  p = MulAddF(p, square, SetF(-0.00791248493f));
  p = MulAddF(p, square, SetF(0.0214614104f));
  p = MulAddF(p, square, SetF(-0.0538697056f));
  p = MulAddF(p, square, SetF(0.13332139f));
  p = MulAddF(p, square, SetF(-0.333332777f));
  return MulAddF(p, square, SetF(1.0f));
}

// The rows of a tile. Exponents come from sums of products: relative to the reference of the row.
struct TileCap {
  FastCap cap;
  const float* const* start;
  const double *base, *reference;
  const float* shift;

  float after(int r) const { return cap.starts ? static_cast<float>(-reference[r]) : shift[r]; }
};

// In registers, where no sum exceeds the cap. False: nothing is changed but sums that start values were added to.
template <int R, int N, bool kSlope>
HWY_INLINE bool CapTile(F (&c)[R][N], const TileCap& t, Index key, float* slope, Index stride) {
  const bool under = t.cap.starts;
  if (under) POSENC_UNROLL for (int r = 0; r < R; ++r) {
      const F base = SetF(static_cast<float>(t.base[r]));
      POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] = AddF(
          c[r][x], t.start == nullptr ? base : AddF(LoadF(t.start[r] + key + x * kLanes), base));
    }
  F most = SetF(0);
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) most =
      MaxF(most, AbsF(c[r][x]));
  if (HWY_UNLIKELY(!AllAtMostF(most, t.cap.cap))) return false;
  const F inverse = SetF(1 / t.cap.cap);
  POSENC_UNROLL for (int r = 0; r < R; ++r) {
    const F after = SetF(t.after(r));
    POSENC_UNROLL for (int x = 0; x < N; ++x) {
      const F z = MulF(c[r][x], inverse), ratio = RatioF(MulF(z, z));
      if constexpr (kSlope) {
        const F tanh = MulF(z, ratio);
        StoreF(slope + r * stride + key + x * kLanes,
               MulAddF(MulF(tanh, SetF(-1.0f)), tanh, SetF(1.0f)));
      }
      const F add =
          under || t.start == nullptr ? after : AddF(LoadF(t.start[r] + key + x * kLanes), after);
      c[r][x] = MulAddF(c[r][x], ratio, add);
    }
  }
  return true;
}
// The same of any sums, without those of start values, in memory.
template <int R, int N, bool kSlope>
HWY_NOINLINE void CapStored(float* sums, const TileCap& t, Index key, float* slope, Index stride) {
  for (int r = 0; r < R; ++r) {
    const RowCap row(t.cap, t.start == nullptr ? nullptr : t.start[r], t.base[r]);
    const F after = SetF(t.after(r));
    for (Index x = key; x < key + N * kLanes; x += kLanes) {
      F left = after;
      float* sum = sums + r * stride + x;
      StoreF(sum, AddF(row(LoadF(sum), x, left), after));
      if constexpr (kSlope) StoreF(slope + r * stride + x, left);
    }
  }
}

template <int R, int N>
HWY_INLINE void CappedWeights(const FastBlock& b, const FastStrip& s, const TileCap& t, Index key,
                              F& largest) {
  F c[R][N];
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      SetF(0);
  const float* keys = b.k + key / kPanel * (b.channels * kPanel) + key % kPanel;
  AddProduct(c, s.q, b.channels, 1, keys, kPanel, b.channels);
  if (HWY_UNLIKELY((!CapTile<R, N, false>(c, t, key, nullptr, 0)))) {
    const float zeros[R] = {};
    FastStrip relative = s;
    relative.shift = zeros;
    ExponentTile<R, N, false>(b, relative, key);
    CapStored<R, N, false>(s.weights, t, key, nullptr, kBlockKeys);
    POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
        LoadF(s.weights + r * kBlockKeys + key + x * kLanes);
  }
  StoreWeights<R, N>(c, s, key, largest);
}

template <int R>
HWY_NOINLINE bool CappedStrip(const FastBlock& b, const FastStrip& s, const FastCap& cap) noexcept {
  F before[R];
  POSENC_UNROLL for (int r = 0; r < R; ++r) before[r] = LoadF(s.sums + r * kLanes);
  const TileCap tile{cap, s.start, s.base, s.reference, s.shift};
  F largest = SetF(-127.0f);
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel) CappedWeights<R, 2>(b, s, tile, key, largest);
  if (key < s.keys) CappedWeights<R, 1>(b, s, tile, key, largest);
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestExponent))) {
    POSENC_UNROLL for (int r = 0; r < R; ++r) StoreF(s.sums + r * kLanes, before[r]);
    return false;
  }
  AddValues<R>(b, s);
  return true;
}

template <int R>
HWY_NOINLINE bool CappedRescale(const FastBlock& b, const FastStrip& s,
                                const FastCap& cap) noexcept {
  const double zeros[R] = {};
  FastStrip capped = s;
  if (cap.starts) capped.base = zeros;
  const Index keys = StoreScores<R, false>(b, s);
  bool usable = true;
  for (int r = 0; r < R; ++r) {
    const RowCap row(cap, s.start == nullptr ? nullptr : s.start[r], s.base[r]);
    F slope = SetF(0);
    float* x = s.weights + r * kBlockKeys;
    for (Index key = 0; key < keys; key += kLanes) StoreF(x + key, row(LoadF(x + key), key, slope));
    usable = RescaleRow<R>(b, capped, r, keys) && usable;
  }
  AddValues<R>(b, s);
  return usable;
}

bool CapDecoded(FastDecodeRow& r, float* hidden, const FastCap& cap) noexcept {
  const RowCap row(cap, nullptr, r.base);
  const F zero = SetF(0);
  F slope = zero;
  bool usable = true;
  for (Index key = 0; key < r.keys; key += kLanes) {
    const F start = r.start == nullptr ? zero : LoadF(r.start + key);
    const F x = ZeroHiddenF(LoadF(r.x + key), start);
    usable = usable && AllBelowF(x, FLT_MAX);
    StoreF(hidden + key, HideF(zero, start));
    // What is hidden has start values of -inf: tanh is -1 there.
    StoreF(r.x + key, row(cap.starts ? AddF(x, start) : x, key, slope));
  }
  if (cap.starts) {
    if (r.start != nullptr) r.start = hidden;
    r.base = 0;
  }
  return usable;
}

template <int R, int N>
HWY_INLINE void CappedSlopeTile(const FastTileKeys& t, const FastCapRows& all, const TileCap& tile,
                                Index key, Index stride) {
  const FastTileRows& s = all.rows;
  F c[R][N];
  const Index panel = key / kPanel * kPanel;
  POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
      SetF(0);
  const float* keys = t.k + panel * t.channels + key % kPanel;
  AddProduct(c, s.q, t.q_width, 1, keys, kPanel, t.channels);
  if (HWY_UNLIKELY((!CapTile<R, N, true>(c, tile, key, all.slope, stride)))) {
    POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
        SetF(0);
    AddProduct(c, s.q, t.q_width, 1, keys, kPanel, t.channels);
    POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x)
        StoreF(s.p + r * stride + key + x * kLanes, c[r][x]);
    CapStored<R, N, true>(s.p, tile, key, all.slope, stride);
    POSENC_UNROLL for (int r = 0; r < R; ++r) POSENC_UNROLL for (int x = 0; x < N; ++x) c[r][x] =
        LoadF(s.p + r * stride + key + x * kLanes);
  }
  StoreSlopes(c, t, s, key, stride);
}

template <int R>
HWY_NOINLINE void CappedSlopes(const FastTileKeys& t, const FastCapRows& all, const FastCap& cap,
                               Index stride) noexcept {
  const FastTileRows& s = all.rows;
  const TileCap tile{cap, s.start, all.base, all.reference, s.shift};
  Index key = 0;
  for (; key + kLanes < s.keys; key += kPanel) CappedSlopeTile<R, 2>(t, all, tile, key, stride);
  if (key < s.keys) CappedSlopeTile<R, 1>(t, all, tile, key, stride);
}

void Multiply(float* s, const float* slope, Index rows, Index keys, Index stride) noexcept {
  for (Index r = 0; r < rows; ++r)
    for (Index key = 0; key < keys; key += kLanes) {
      float* x = s + r * stride + key;
      StoreF(x, MulF(LoadF(x), LoadF(slope + r * stride + key)));
    }
}

#undef POSENC_UNROLL

constexpr FastCapKernels kCapKernels{{CappedStrip<kStripRows>, CappedStrip<kFewRows>},
                                     {CappedRescale<kStripRows>, CappedRescale<kFewRows>},
                                     {CappedSlopes<kStripRows>, CappedSlopes<kFewRows>},
                                     CapDecoded,
                                     Multiply};

}  // namespace

const FastCapKernels* table_of_fast_cap() {
  return &kCapKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_cap);
const FastCapKernels& fast_cap_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_cap), isa);
}
}  // namespace posenc::v0::detail
#endif
