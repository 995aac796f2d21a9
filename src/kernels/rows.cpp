// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/element-inl.h"
#include "kernels/math-inl.h"
#include "kernels/round_to_odd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using DU = hn::RebindToUnsigned<D>;

HWY_INLINE Index lanes() {
  return static_cast<Index>(hn::Lanes(D()));
}

// Lower 64 bits of the product.
HWY_INLINE hn::Vec<DU> multiply(hn::Vec<DU> a, hn::Vec<DU> b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(DU(), hn::GetLane(a) * hn::GetLane(b));
#else
  const DU du;
  const hn::Repartition<std::uint32_t, D> d32;
  const auto a_low = hn::BitCast(d32, a), a_high = hn::BitCast(d32, hn::ShiftRight<32>(a));
  const auto b_low = hn::BitCast(d32, b), b_high = hn::BitCast(d32, hn::ShiftRight<32>(b));
  const auto cross = hn::Add(hn::MulEven(a_high, b_low), hn::MulEven(a_low, b_high));
  return hn::Add(hn::BitCast(du, hn::MulEven(a_low, b_low)),
                 hn::ShiftLeft<32>(hn::BitCast(du, cross)));
#endif
}

void add_turns(const std::uint64_t* turns, std::uint64_t position, Index n, std::uint64_t* phase) {
  const DU du;
  const auto p = hn::Set(du, position);
  Index i = 0;
  for (; i + lanes() <= n; i += lanes())
    hn::StoreU(hn::Add(hn::LoadU(du, phase + i), multiply(hn::LoadU(du, turns + i), p)), du,
               phase + i);
  for (; i < n; ++i) phase[i] += turns[i] * position;
}

void sincos(const std::uint64_t* phase, Index n, double gain, double* c, double* s) {
  const D d;
  const DU du;
  const auto g = hn::Set(d, gain);
  for (Index i = 0; i < n; i += lanes()) {
    hn::Vec<D> sine, cosine;
    SinCosOfWideTurn<true>(d, hn::LoadU(du, phase + i), sine, cosine);
    hn::StoreU(hn::Mul(cosine, g), d, c + i);
    hn::StoreU(hn::Mul(sine, g), d, s + i);
  }
}

// Two vectors of doubles become one of the output's type; `Out` writes it, whole or in part.
struct ToF32 {
  using T = float;
  static HWY_INLINE hn::Vec<D> prepare(hn::Vec<D> x) { return x; }
};
struct ToBF16 {
  using T = std::uint16_t;
  static HWY_INLINE hn::Vec<D> prepare(hn::Vec<D> x) { return RoundToOdd<true>(x); }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> narrow(DF df, hn::Vec<DF> x) {
    return ToBFloat16(df, x);
  }
};
struct ToF16 {
  using T = std::uint16_t;
  static HWY_INLINE hn::Vec<D> prepare(hn::Vec<D> x) { return RoundToOdd<false>(x); }
  template <class DF>
  static HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, DF>> narrow(DF df, hn::Vec<DF> x) {
    return ToFloat16(df, x);
  }
};

// A block is two vectors of doubles, one of floats; with one lane, one and one. (Two variables, no
// array: vectors of SVE have no size known here.)
#if HWY_TARGET == HWY_SCALAR
constexpr Index kParts = 1;
template <class Out, class Put>
HWY_INLINE void write_block(hn::Vec<D> x, hn::Vec<D>, Put put) {
  const hn::Sisd<float> df;
  // (Highway's one lane makes the largest float of infinity.)
  const auto f = hn::Set(df, static_cast<float>(hn::GetLane(Out::prepare(x))));
  if constexpr (sizeof(typename Out::T) == 4) {
    put(df, f);
  } else {
    put(hn::Sisd<std::uint16_t>(), Out::narrow(df, f));
  }
}
#else
constexpr Index kParts = 2;
template <class Out, class Put>
HWY_INLINE void write_block(hn::Vec<D> low, hn::Vec<D> high, Put put) {
  const hn::Repartition<float, D> df;
  const hn::Half<decltype(df)> dh;
  const auto f =
      hn::Combine(df, hn::DemoteTo(dh, Out::prepare(high)), hn::DemoteTo(dh, Out::prepare(low)));
  if constexpr (sizeof(typename Out::T) == 4) {
    put(df, f);
  } else {
    put(hn::Rebind<std::uint16_t, decltype(df)>(), Out::narrow(df, f));
  }
}
#endif
constexpr Index kBlockMax = HWY_MAX_BYTES / 4;

// n elements at x, the last block through the stack.
template <class Out>
void store(const double* x, Index n, void* out) {
  using T = typename Out::T;
  const D d;
  T* to = static_cast<T*>(out);
  const Index block = kParts * lanes();
  for (Index i = 0; i < n; i += block) {
    const auto low = hn::LoadU(d, x + i), high = hn::LoadU(d, x + i + (kParts - 1) * lanes());
    write_block<Out>(low, high, [&](auto dt, auto y) HWY_ATTR {
      if (i + block <= n) {
        hn::StoreU(y, dt, to + i);
      } else {
        HWY_ALIGN T part[kBlockMax] = {};
        hn::StoreU(y, dt, part);
        for (Index k = 0; i + k < n; ++k) to[i + k] = part[k];
      }
    });
  }
}

// Adds an angle: (c, s) <- (c dc - s ds, s dc + c ds).
HWY_INLINE void rotate(hn::Vec<D> dc, hn::Vec<D> ds, hn::Vec<D>& c, hn::Vec<D>& s) {
  const auto next = hn::NegMulAdd(s, ds, hn::Mul(c, dc));
  s = hn::MulAdd(s, dc, hn::Mul(c, ds));
  c = next;
}
// Rows that a block of columns makes before the next columns: their angles stay in registers.
constexpr Index kRowsAtOnce = 4;

// How rows get to memory. The processor collects what is written around the cache in a few buffers of a cache line
// each. A block that fills a line is written at once. Smaller blocks of several rows would leave a line open for each
// row, more than there are buffers, and a line that leaves half full costs a read; so these rows are made in the cache
// and leave it line by line.
enum class RowWrite { cached, streamed, staged };
constexpr Index kLineBytes = 64;

template <class T>
HWY_INLINE void stream_row(const T* HWY_RESTRICT from, Index n, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + step <= n; i += step) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = from[i];
}

template <class Out, RowWrite kWrite>
void recurrence_blocks(const RowRecurrence& w) {
  using T = typename Out::T;
  constexpr bool kStaged = kWrite == RowWrite::staged;
  HWY_ALIGN T stage[kStaged ? 2 * kRowsAtOnce * kRowChunk : 1];
  T* const cosines = kStaged ? stage : static_cast<T*>(w.cos);
  T* const sines = kStaged ? stage + kRowsAtOnce * kRowChunk : static_cast<T*>(w.sin);
  const Index cos_stride = kStaged ? kRowChunk : w.cos_stride;
  const Index sin_stride = kStaged ? kRowChunk : w.sin_stride;
  const D d;
  const Index block = kParts * lanes(), second = (kParts - 1) * lanes();
  for (Index first = 0; first < w.rows; first += kRowsAtOnce) {
    const Index last = HWY_MIN(w.rows, first + kRowsAtOnce);
    for (Index i = 0; i < w.n; i += block) {
      auto c = hn::LoadU(d, w.c + i), s = hn::LoadU(d, w.s + i);
      auto next_c = hn::LoadU(d, w.c + i + second), next_s = hn::LoadU(d, w.s + i + second);
      const auto dc = hn::LoadU(d, w.step_c + i), ds = hn::LoadU(d, w.step_s + i);
      const auto next_dc = hn::LoadU(d, w.step_c + i + second);
      const auto next_ds = hn::LoadU(d, w.step_s + i + second);
      for (Index r = first; r < last; ++r) {
        const auto put = [&](T* to) HWY_ATTR {
          return [&w, to, i, block](auto dt, auto y) HWY_ATTR {
            if (i + block <= w.n) {
              if constexpr (kWrite == RowWrite::streamed) {
                hn::Stream(y, dt, to + i);
              } else {
                hn::StoreU(y, dt, to + i);
              }
              if (w.copy != 0) hn::StoreU(y, dt, to + i + w.copy);
            } else {
              HWY_ALIGN T part[kBlockMax] = {};
              hn::StoreU(y, dt, part);
              for (Index k = 0; i + k < w.n; ++k) to[i + k] = part[k];
              if (w.copy != 0)
                for (Index k = 0; i + k < w.n; ++k) to[i + k + w.copy] = part[k];
            }
          };
        };
        const Index row = kStaged ? r - first : r;
        if (w.cos) write_block<Out>(c, next_c, put(cosines + row * cos_stride));
        if (w.sin) write_block<Out>(s, next_s, put(sines + row * sin_stride));
        rotate(dc, ds, c, s);
        if constexpr (kParts > 1) rotate(next_dc, next_ds, next_c, next_s);
      }
      hn::StoreU(c, d, w.c + i), hn::StoreU(s, d, w.s + i);
      if constexpr (kParts > 1)
        hn::StoreU(next_c, d, w.c + i + second), hn::StoreU(next_s, d, w.s + i + second);
    }
    if constexpr (kStaged)
      for (Index r = first; r < last; ++r) {
        if (w.cos)
          stream_row(cosines + (r - first) * kRowChunk, w.n,
                     static_cast<T*>(w.cos) + r * w.cos_stride);
        if (w.sin)
          stream_row(sines + (r - first) * kRowChunk, w.n,
                     static_cast<T*>(w.sin) + r * w.sin_stride);
      }
  }
}

// Streaming needs addresses that are whole vectors, and may write 16 bytes at least.
bool streams(const void* data, Index stride, Index size) {
  return data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(data) % 64 == 0 && stride * size % 64 == 0);
}

template <class Out>
void recurrence(const RowRecurrence& w) {
  const Index size = sizeof(typename Out::T);
  if (w.stream && w.copy == 0 && kParts * lanes() * size >= HWY_STREAM_MULTIPLE &&
      streams(w.cos, w.cos_stride, size) && streams(w.sin, w.sin_stride, size)) {
    if (kParts * lanes() * size >= kLineBytes)
      recurrence_blocks<Out, RowWrite::streamed>(w);
    else
      recurrence_blocks<Out, RowWrite::staged>(w);
    hwy::FlushStream();
  } else {
    recurrence_blocks<Out, RowWrite::cached>(w);
  }
}

constexpr RowKernels kKernels{add_turns,         sincos,
                              store<ToF32>,      store<ToF16>,
                              store<ToBF16>,     recurrence<ToF32>,
                              recurrence<ToF16>, recurrence<ToBF16>};
}  // namespace

const RowKernels* table_of_rows() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_rows);
const RowKernels& row_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_rows), isa);
}
}  // namespace posenc::v0::detail
#endif
