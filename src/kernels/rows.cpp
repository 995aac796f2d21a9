// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/odd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
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

// The nearest quarter turn by integers; sin(pi/2 q) and cos(pi/2 q) for |q| <= 1/2 by polynomials
// in z = q^2 (interpolated at Chebyshev's points of [0, 1/4], within 1e-17), pi/2 in two parts.
void sincos(const std::uint64_t* phase, Index n, double gain, double* c, double* s) {
  const D d;
  const DU du;
  const hn::RebindToSigned<D> di;
  const auto g = hn::Set(d, gain);
  const auto one = hn::Set(du, std::uint64_t{1}), two = hn::Set(du, std::uint64_t{2});
  for (Index i = 0; i < n; i += lanes()) {
    const auto turn = hn::LoadU(du, phase + i);
    const auto quarter = hn::ShiftRight<62>(hn::Add(turn, hn::Set(du, std::uint64_t{1} << 61)));
    const auto rest = hn::BitCast(di, hn::Sub(turn, hn::ShiftLeft<62>(quarter)));
    const auto q = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 0x1p-62));
    const auto z = hn::Mul(q, q);
    auto a = hn::MulAdd(z, hn::Set(d, 0x1.e4a9d9166f052p-25), hn::Set(d, -0x1.e3027dea82bd7p-19));
    a = hn::MulAdd(z, a, hn::Set(d, 0x1.50783208843ebp-13));
    a = hn::MulAdd(z, a, hn::Set(d, -0x1.32d2cce500387p-8));
    a = hn::MulAdd(z, a, hn::Set(d, 0x1.466bc6775a476p-4));
    a = hn::MulAdd(z, a, hn::Set(d, -0x1.4abbce625be52p-1));
    a = hn::Mul(q, hn::MulAdd(z, a, hn::Set(d, 0x1.1a62633145c07p-54)));
    a = hn::MulAdd(q, hn::Set(d, 0x1.921fb54442d18p+0), a);
    auto b = hn::MulAdd(z, hn::Set(d, -0x1.b2f3eb054afcdp-28), hn::Set(d, 0x1.f9ce245cada0bp-22));
    b = hn::MulAdd(z, b, hn::Set(d, -0x1.a6d1eef479be1p-16));
    b = hn::MulAdd(z, b, hn::Set(d, 0x1.e1f5068688d5bp-11));
    b = hn::MulAdd(z, b, hn::Set(d, -0x1.55d3c7e3cb241p-6));
    b = hn::MulAdd(z, b, hn::Set(d, 0x1.03c1f081b5ac0p-2));
    b = hn::MulAdd(z, b, hn::Set(d, -0x1.3bd3cc9be45dep+0));
    b = hn::MulAdd(z, b, hn::Set(d, 1.0));
    const auto odd = hn::RebindMask(d, hn::TestBit(quarter, one));
    const auto sine_sign = hn::ShiftLeft<62>(hn::And(quarter, two));
    const auto cosine_sign = hn::ShiftLeft<62>(hn::And(hn::Add(quarter, one), two));
    const auto sine = hn::BitCast(du, hn::IfThenElse(odd, b, a));
    const auto cosine = hn::BitCast(du, hn::IfThenElse(odd, a, b));
    hn::StoreU(hn::Mul(hn::BitCast(d, hn::Xor(cosine, cosine_sign)), g), d, c + i);
    hn::StoreU(hn::Mul(hn::BitCast(d, hn::Xor(sine, sine_sign)), g), d, s + i);
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
  template <class V, class D32>
  static HWY_INLINE hn::Vec<D32> narrow(D32 d32, V x) {
    const hn::RebindToSigned<D32> di;
    const auto u = hn::BitCast(d32, x);
    const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(d32, 0x7fffu))));
    // NaN: quiet, with the upper bits of its payload
    const auto nan = hn::Or(hn::ShiftRight<16>(u), hn::Set(d32, 0x40u));
    const auto a = hn::BitCast(di, hn::And(u, hn::Set(d32, 0x7fffffffu)));
    const auto is_nan = hn::Gt(a, hn::Set(di, 0x7f800000));
    return hn::BitCast(d32, hn::IfThenElse(is_nan, hn::BitCast(di, nan), hn::BitCast(di, rounded)));
  }
};
struct ToF16 {
  using T = std::uint16_t;
  static HWY_INLINE hn::Vec<D> prepare(hn::Vec<D> x) { return RoundToOdd<false>(x); }
  template <class V, class D32>
  static HWY_INLINE hn::Vec<D32> narrow(D32 d32, V x) {
    const hn::RebindToFloat<D32> df;
    const hn::RebindToSigned<D32> di;
    const auto u = hn::BitCast(d32, x);
    const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 0x8000u));
    const auto a = hn::And(u, hn::Set(d32, 0x7fffffffu));
    // normal: the exponent moves from bias 127 to 15; a carry runs into it, up to infinity
    const auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(d32, 1u));
    const auto normal = hn::ShiftRight<13>(
        hn::Add(hn::Sub(a, hn::Set(d32, 112u << 23)), hn::Add(odd, hn::Set(d32, 0xfffu))));
    // subnormal: 1/2 + x is rounded at 2^-24, the last bit of a float16 subnormal
    const auto small = hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(df, a), hn::Set(df, 0.5f))),
                               hn::Set(d32, 0x3f000000u));
    const auto ai = hn::BitCast(di, a);
    const auto is_small = hn::Gt(hn::Set(di, 0x38800000), ai);
    const auto is_huge = hn::Gt(ai, hn::Set(di, 0x477fefff));  // 65520 and more: infinity
    auto r = hn::IfThenElse(is_small, hn::BitCast(di, small), hn::BitCast(di, normal));
    r = hn::IfThenElse(is_huge, hn::Set(di, 0x7c00), r);
    // NaN: quiet, with the upper bits of its payload
    const auto nan =
        hn::Or(hn::And(hn::ShiftRight<13>(a), hn::Set(d32, 0x3ffu)), hn::Set(d32, 0x7e00u));
    r = hn::IfThenElse(hn::Gt(ai, hn::Set(di, 0x7f800000)), hn::BitCast(di, nan), r);
    return hn::Or(hn::BitCast(d32, r), sign);
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
    const hn::Sisd<std::uint32_t> d32;
    const hn::Sisd<std::uint16_t> d16;
    put(d16, hn::Set(d16, static_cast<std::uint16_t>(hn::GetLane(Out::narrow(d32, f)))));
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
    const hn::RebindToUnsigned<decltype(df)> d32;
    const hn::RebindToSigned<decltype(df)> di;
    const hn::Rebind<std::uint16_t, decltype(df)> d16;
    put(d16, hn::DemoteTo(d16, hn::BitCast(di, Out::narrow(d32, f))));
  }
}
#endif
constexpr Index kBlockMax = HWY_MAX_BYTES / 4;

// n elements at x, the last block by way of the stack.
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
HWY_INLINE void turn(hn::Vec<D> dc, hn::Vec<D> ds, hn::Vec<D>& c, hn::Vec<D>& s) {
  const auto next = hn::NegMulAdd(s, ds, hn::Mul(c, dc));
  s = hn::MulAdd(s, dc, hn::Mul(c, ds));
  c = next;
}
// Rows that a block of columns walks before the next columns: their angles stay in registers.
constexpr Index kRowsAtOnce = 4;

template <class Out, bool kStream>
void walk_blocks(const RowWalk& w) {
  using T = typename Out::T;
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
              if constexpr (kStream) {
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
        if (w.cos) write_block<Out>(c, next_c, put(static_cast<T*>(w.cos) + r * w.cos_stride));
        if (w.sin) write_block<Out>(s, next_s, put(static_cast<T*>(w.sin) + r * w.sin_stride));
        turn(dc, ds, c, s);
        if constexpr (kParts > 1) turn(next_dc, next_ds, next_c, next_s);
      }
      hn::StoreU(c, d, w.c + i), hn::StoreU(s, d, w.s + i);
      if constexpr (kParts > 1)
        hn::StoreU(next_c, d, w.c + i + second), hn::StoreU(next_s, d, w.s + i + second);
    }
  }
}

// Streaming needs addresses that are whole vectors, and may write 16 bytes at least.
bool streams(const void* data, Index stride, Index size) {
  return data == nullptr ||
         (reinterpret_cast<std::uintptr_t>(data) % 64 == 0 && stride * size % 64 == 0);
}

template <class Out>
void walk(const RowWalk& w) {
  const Index size = sizeof(typename Out::T);
  if (w.stream && w.copy == 0 && kParts * lanes() * size >= HWY_STREAM_MULTIPLE &&
      streams(w.cos, w.cos_stride, size) && streams(w.sin, w.sin_stride, size)) {
    walk_blocks<Out, true>(w);
    hwy::FlushStream();
  } else {
    walk_blocks<Out, false>(w);
  }
}

constexpr RowKernels kKernels{add_turns,     sincos,      store<ToF32>, store<ToF16>,
                              store<ToBF16>, walk<ToF32>, walk<ToF16>,  walk<ToBF16>};
}  // namespace

const RowKernels* table_of_rows() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::detail {
HWY_EXPORT(table_of_rows);
const RowKernels& row_kernels(Isa isa) {
  return *isa_entry(HWY_DISPATCH_TABLE(table_of_rows), isa)();
}
}  // namespace posenc::detail
#endif
