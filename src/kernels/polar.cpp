// SPDX-License-Identifier: Apache-2.0
#include "kernels/polar.h"

#include <type_traits>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/polar.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/double_vector-inl.h"
#include "kernels/math-inl.h"
#include "kernels/softplus_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using DU = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;

HWY_INLINE V set(double x) {
  return hn::Set(D(), x);
}

template <class T>
HWY_INLINE V load(const T* p) {
  return ReadDoubles(p);
}
template <class T>
HWY_INLINE void store(V v, T* p) {
  WriteDoubles(v, p);
}

// Several vectors that go through the same steps side by side: a step waits for the one before it,
// and a core looks no further ahead than two channels' steps. As many as the registers hold.
#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
using Many = V;
#else
struct Many {
  static constexpr int kCount = HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86 ? 4 : 2;
  V v[kCount];
  HWY_ATTR Many() {}  // else it is made without the target's attribute, with which NEON's V is
};
HWY_INLINE V at(const Many& m, int k) {
  return m.v[k];
}
#endif
HWY_INLINE V at(const V& v, int) {
  return v;
}
template <class X>
constexpr int count_of() {
  if constexpr (std::is_same_v<X, V>)
    return 1;
  else
    return X::kCount;
}
// f(k) for each of them.
template <class X, class F>
HWY_INLINE X each(const F& f) {
  if constexpr (std::is_same_v<X, V>) {
    return f(0);
  } else {
    X r;
    for (int k = 0; k < count_of<X>(); ++k) r.v[k] = f(k);
    return r;
  }
}
template <class X, class A, class B, class C>
HWY_INLINE X mul_add(const A& a, const B& b, const C& c) {
  return each<X>([&](int k) HWY_ATTR { return hn::MulAdd(at(a, k), at(b, k), at(c, k)); });
}
template <class X, class A, class B>
HWY_INLINE X mul(const A& a, const B& b) {
  return each<X>([&](int k) HWY_ATTR { return hn::Mul(at(a, k), at(b, k)); });
}

// (ln((2 + s) / (2 - s)) - s) / s^3 in s^2 of [0, 4/9], likewise: within 8e-18 of the logarithm.
constexpr double kLog[] = {0x1.4b0a26c5f2aefp-24, 0x1.687a6e7c95176p-23, 0x1.eb905e8575054p-21,
                           0x1.10ac75dc602b1p-18, 0x1.3b18b294bebf9p-16, 0x1.745cf0b0e03bdp-14,
                           0x1.c71c727143318p-12, 0x1.24924923d44c6p-9,  0x1.999999999a3ddp-7,
                           0x1.5555555555555p-4};

// The same two in fewer steps, where the result is rounded to 32 or 16 bits: within 6e-11 of
// themselves, a thousandth of float's own rounding. Even and odd powers apart, so that the chains
// are short: a core holds few channels at once.
constexpr double kShortLog[] = {0x1.a9bafb0c93ac9p-16, 0x1.65ad56d9e0064p-14, 0x1.c7fb3587cdba6p-12,
                                0x1.248f579c7d0d0p-9,  0x1.9999a0d3dcfedp-7,  0x1.55555553e7594p-4};
constexpr double kShortExp[] = {0x1.a17e052cd2c8fp-13, 0x1.6da767a4988a9p-10, 0x1.1110a6173845ep-7,
                                0x1.555464884204ep-5,  0x1.5555557e7777ep-3,  0x1.0000005c981fcp-1,
                                0x1.fffffffff61ddp-1,  0x1.ffffffffa7011p-1};

template <class X, std::size_t n>
HWY_INLINE X even_and_odd(const X& x, const double (&c)[n]) {
  static_assert(n % 2 == 0, "the first coefficient is that of an odd power");
  const X square = mul<X>(x, x);
  X odd = mul_add<X>(square, set(c[0]), set(c[2])), even = mul_add<X>(square, set(c[1]), set(c[3]));
  for (std::size_t i = 4; i < n; i += 2) {
    odd = mul_add<X>(square, odd, set(c[i]));
    even = mul_add<X>(square, even, set(c[i + 1]));
  }
  return mul_add<X>(x, odd, even);
}

// e^-|x|; of |x| beyond 708 that of 708, 0 in every float.
template <class X>
HWY_INLINE X short_exp_minus_abs(const X& x) {
  const D d;
  const DU du;
  const V magic = set(0x1.8p52);
  const X a = each<X>([&](int k) HWY_ATTR { return hn::Min(hn::Abs(at(x, k)), set(708)); });
  const X shifted = mul_add<X>(a, set(0x1.71547652b82fep+0), magic);
  const X rest = each<X>([&](int k) HWY_ATTR {
    return hn::MulSub(hn::Sub(at(shifted, k), magic), set(0x1.62e42fefa39efp-1), at(a, k));
  });
  const X y = even_and_odd(rest, kShortExp);
  // n is subtracted from the exponent, which stays a normal number's
  return each<X>([&](int k) HWY_ATTR {
    const auto n = hn::ShiftLeft<52>(hn::BitCast(du, at(shifted, k)));
    return hn::BitCast(d, hn::Sub(hn::BitCast(du, at(y, k)), n));
  });
}
template <bool kShort>
HWY_INLINE V exp_minus_abs(V x) {
  if constexpr (kShort) return short_exp_minus_abs(x);
  return ExpMinus(D(), hn::Abs(x));
}

// ln(1 + u) of u in [0, 1] is ln((2 + s) / (2 - s)) with s = 2 u / (2 + u); what the rounding of
// 2 + u and of s lost is added.
template <class X>
HWY_INLINE X short_log_1_plus(const X& u) {
  const X s = each<X>([&](int k) HWY_ATTR {
    return hn::Div(hn::Add(at(u, k), at(u, k)), hn::Add(set(2), at(u, k)));
  });
  const X t = mul<X>(s, s);
  return mul_add<X>(mul<X>(s, t), even_and_odd(t, kShortLog), s);
}
#if POSENC_SOFTPLUS_TABLE
template <class X, std::size_t n>
HWY_INLINE X polynomial(const X& x, const double (&c)[n]) {
  X y = mul_add<X>(x, set(c[0]), set(c[1]));
  for (std::size_t i = 2; i < n; ++i) y = mul_add<X>(x, y, set(c[i]));
  return y;
}
HWY_INLINE Many many_softplus(const Many& x) {
  const SoftplusTable table;
  const V magic = set(0x1.8p52);
  const auto a =
      each<Many>([&](int k) HWY_ATTR { return SoftplusTable::short_of_overflow(at(x, k)); });
  const auto n = mul_add<Many>(a, set(0x1.71547652b82fep+4), magic);
  const auto rest = each<Many>([&](int k) HWY_ATTR {
    return hn::MulSub(hn::Sub(at(n, k), magic), set(0x1.62e42fefa39efp-5), at(a, k));
  });
  const auto y = polynomial(rest, kTableExp);
  Many r, log;
  for (int k = 0; k < Many::kCount; ++k)
    table.reduce(table.scaled(at(y, k), at(n, k)), r.v[k], log.v[k]);
  const auto small = mul_add<Many>(r, polynomial(r, kTableLog), log);
  return each<Many>(
      [&](int k) HWY_ATTR { return hn::Add(SoftplusTable::positive(at(x, k)), at(small, k)); });
}
#else
HWY_INLINE Many many_softplus(const Many& x) {
  const Many log = short_log_1_plus(short_exp_minus_abs(x));
  return each<Many>([&](int k) HWY_ATTR {
    const V v = at(x, k);
    return hn::Add(hn::IfThenElse(hn::Lt(v, set(0)), set(0), v), at(log, k));
  });
}
#endif
template <bool kShort>
HWY_INLINE V log_1_plus(V u) {
  if constexpr (kShort) return short_log_1_plus(u);
  const auto two = set(2);
  const auto below = hn::Add(two, u), lost = hn::Sub(u, hn::Sub(below, two));
  const auto inverse = hn::Div(two, below);
  const auto s = hn::Mul(u, inverse);
  const auto rest = hn::NegMulAdd(s, lost, hn::NegMulAdd(s, below, hn::Add(u, u)));
  const auto t = hn::Mul(s, s);
  const auto p = Polynomial(D(), t, kLog);
  const auto small = hn::MulAdd(hn::Mul(rest, set(0.5)), inverse, hn::Mul(hn::Mul(s, t), p));
  return hn::Add(s, small);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|). Not Max: NaN must stay. u: e^-|x|.
template <bool kShort>
HWY_INLINE V softplus(V x, V u) {
  return hn::Add(hn::IfThenElse(hn::Lt(x, set(0)), set(0), x), log_1_plus<kShort>(u));
}
HWY_INLINE V sigmoid(V x, V u) {
  const auto r = hn::Div(hn::IfThenElse(hn::Lt(x, set(0)), u, set(1)), hn::Add(set(1), u));
  return hn::IfThenElse(hn::Eq(x, x), r, x);
}

// Cosine and sine at i, rotated if a turn is given.
template <bool kTurn, class Row>
HWY_INLINE void angle(const Row& r, Index i, V& c, V& s) {
  const D d;
  c = hn::LoadU(d, r.cos + i), s = hn::LoadU(d, r.sin + i);
  if constexpr (kTurn) {
    const auto tc = hn::LoadU(d, r.turn_cos + i), ts = hn::LoadU(d, r.turn_sin + i);
    const auto rotated = hn::NegMulAdd(s, ts, hn::Mul(c, tc));
    s = hn::MulAdd(s, tc, hn::Mul(c, ts));
    c = rotated;
  }
}

// Vectors of channels from i on, of types of 32 and 16 bits.
template <bool kTurn, class T>
HWY_INLINE void many_rows(const PolarRow& r, Index i, const T* from, T* to_cos, T* to_sin) {
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  const Many x = each<Many>([&](int k) HWY_ATTR { return load(from + k * lanes); });
  const Many length = many_softplus(x);
  for (int k = 0; k < count_of<Many>(); ++k) {
    const V mu = at(length, k);
    V c, s;
    angle<kTurn>(r, i + k * lanes, c, s);
    store(hn::Mul(mu, c), to_cos + k * lanes), store(hn::Mul(mu, s), to_sin + k * lanes);
  }
}

// A vector of channels from i on; x and the outputs are given at i.
template <bool kTurn, class T>
HWY_INLINE void one_row(const PolarRow& r, Index i, const T* from, T* to_cos, T* to_sin) {
  const auto x = load(from);
  constexpr bool kShort = sizeof(T) < 8;
  const auto mu = softplus<kShort>(x, exp_minus_abs<kShort>(x));
  V c, s;
  angle<kTurn>(r, i, c, s);
  store(hn::Mul(mu, c), to_cos), store(hn::Mul(mu, s), to_sin);
}

template <bool kTurn, class T>
HWY_INLINE void one_gradient(const PolarGradient& r, Index i, const T* from, const T* g_cos,
                             const T* g_sin, T* to) {
  const D d;
  const auto x = load(from), gc = load(g_cos), gs = load(g_sin);
  constexpr bool kShort = sizeof(T) < 8;
  const auto u = exp_minus_abs<kShort>(x);
  V c, s;
  angle<kTurn>(r, i, c, s);
  store(hn::Mul(sigmoid(x, u), hn::MulAdd(gc, c, hn::Mul(gs, s))), to);
  if (r.d_turn == nullptr) return;
  const auto old = hn::LoadU(d, r.d_turn + i);
  const auto sum = hn::MulAdd(softplus<kShort>(x, u), hn::NegMulAdd(gc, s, hn::Mul(gs, c)), old);
  hn::StoreU(hn::IfThenElse(hn::Eq(hn::LoadU(d, r.open + i), set(0)), old, sum), d, r.d_turn + i);
}

// The last few through buffers of one vector, so that every channel is computed alike.
constexpr std::size_t kMax = hn::MaxLanes(D());

template <bool kTurn, class T>
HWY_INLINE void row(const PolarRow& r) {
  const T* x = static_cast<const T*>(r.x);
  T *oc = static_cast<T*>(r.out_cos), *os = static_cast<T*>(r.out_sin);
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  Index i = 0;
  if constexpr (sizeof(T) < 8)
    for (const Index step = count_of<Many>() * lanes; i + step <= r.n; i += step)
      many_rows<kTurn>(r, i, x + i, oc + i, os + i);
  for (; i + lanes <= r.n; i += lanes) one_row<kTurn>(r, i, x + i, oc + i, os + i);
  if (i == r.n) return;
  T part[kMax] = {}, part_c[kMax], part_s[kMax];
  const Index left = r.n - i;
  for (Index k = 0; k < left; ++k) part[k] = x[i + k];
  one_row<kTurn>(r, i, part, part_c, part_s);
  for (Index k = 0; k < left; ++k) oc[i + k] = part_c[k], os[i + k] = part_s[k];
}

template <bool kTurn, class T>
HWY_INLINE void gradient(const PolarGradient& r) {
  const T *x = static_cast<const T*>(r.x), *gc = static_cast<const T*>(r.g_cos);
  const T* gs = static_cast<const T*>(r.g_sin);
  T* to = static_cast<T*>(r.d_x);
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  Index i = 0;
  for (; i + lanes <= r.n; i += lanes) one_gradient<kTurn>(r, i, x + i, gc + i, gs + i, to + i);
  if (i == r.n) return;
  T part[kMax] = {}, part_c[kMax] = {}, part_s[kMax] = {}, part_d[kMax];
  const Index left = r.n - i;
  for (Index k = 0; k < left; ++k) part[k] = x[i + k], part_c[k] = gc[i + k], part_s[k] = gs[i + k];
  one_gradient<kTurn>(r, i, part, part_c, part_s, part_d);
  for (Index k = 0; k < left; ++k) to[i + k] = part_d[k];
}

template <class T>
void any_row(const PolarRow& r) {
  r.turn_cos != nullptr ? row<true, T>(r) : row<false, T>(r);
}
template <class T>
void any_gradient(const PolarGradient& r) {
  r.turn_cos != nullptr ? gradient<true, T>(r) : gradient<false, T>(r);
}

constexpr PolarKernels kF64{any_row<double>, any_gradient<double>};
constexpr PolarKernels kF32{any_row<float>, any_gradient<float>};
constexpr PolarKernels kF16{any_row<Float16>, any_gradient<Float16>};
constexpr PolarKernels kBF16{any_row<BFloat16>, any_gradient<BFloat16>};
}  // namespace

const PolarKernels* polar_of(DType type) {
  return kernels_of_type(type, kF64, kF32, kF16, kBF16);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(polar_of);
const PolarKernels& polar_kernels(Isa isa, DType type) {
  return *isa_entry(HWY_DISPATCH_TABLE(polar_of), isa)(type);
}
}  // namespace posenc::v0::detail
#endif
