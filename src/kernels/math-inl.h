// SPDX-License-Identifier: Apache-2.0
// Sine, cosine and the exponential of vectors: one copy each.
#include <cstddef>
#include <cstdint>

#ifndef POSENC_KERNELS_MATH_ONCE_H_
#define POSENC_KERNELS_MATH_ONCE_H_
namespace posenc::inline v0::detail {

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2, from the highest coefficient down, interpolated at
// Chebyshev's points: e^r within 2e-17 in double, and within 1.1e-8 in float.
inline constexpr double kExpF64[] = {
    0x1.af38b6cc9f96ap-26, 0x1.289190088364dp-22, 0x1.71de0da8e0958p-19, 0x1.a019b90435244p-16,
    0x1.a01a01a7c588ap-13, 0x1.6c16c1788e279p-10, 0x1.11111111109b1p-7,  0x1.5555555553d5dp-5,
    0x1.5555555555556p-3,  0x1.0000000000001p-1};
inline constexpr float kExpF32[] = {0x1.6d110ap-10f, 0x1.120b6ep-7f, 0x1.55551ap-5f, 0x1.5554dcp-3f,
                                    0x1.0p-1f};

}  // namespace posenc::v0::detail
#endif

#if defined(POSENC_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_MATH_INL_H_
#undef POSENC_KERNELS_MATH_INL_H_
#else
#define POSENC_KERNELS_MATH_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// From the highest coefficient down.
template <class D, std::size_t n>
HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> x, const hn::TFromD<D> (&c)[n]) {
  auto y = hn::Set(d, c[0]);
  for (std::size_t i = 1; i < n; ++i) y = hn::MulAdd(x, y, hn::Set(d, c[i]));
  return y;
}

// turn: 2^32 is a whole one. Coefficients: floats searched for the smallest largest error of this
// very arithmetic over 1/8 of a turn, 7.9e-8 with FMA and 8.6e-8 without (rounded minimax
// ones: 9.9e-8 and 1.06e-7).
template <class D, class VU>
HWY_INLINE void SinCosOfTurn(D d, VU turn, hn::Vec<D>& sine, hn::Vec<D>& cosine) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto quarter = hn::ShiftRight<30>(hn::Add(turn, hn::Set(du, 0x20000000u)));
  const auto rest = hn::BitCast(di, hn::Sub(turn, hn::ShiftLeft<30>(quarter)));
  const auto q = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 0x1p-30f));
  const auto z = hn::Mul(q, q);
  auto s = hn::MulAdd(z, hn::Set(d, 1.58209659e-4f), hn::Set(d, -4.67789872e-3f));
  s = hn::MulAdd(z, s, hn::Set(d, 0.079692021f));
  s = hn::MulAdd(z, s, hn::Set(d, -0.645964324f));
  s = hn::Mul(q, hn::MulAdd(z, s, hn::Set(d, 1.57079637f)));
  auto c = hn::MulAdd(z, hn::Set(d, 9.18655132e-4f), hn::Set(d, -0.0208606068f));
  c = hn::MulAdd(z, c, hn::Set(d, 0.253668398f));
  c = hn::MulAdd(z, c, hn::Set(d, -1.23370051f));
  c = hn::MulAdd(z, c, hn::Set(d, 1.0f));
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(du, 1u)));
  const auto two = hn::Set(du, 2u);
  const auto sine_sign = hn::ShiftLeft<30>(hn::And(quarter, two));
  const auto cosine_sign = hn::ShiftLeft<30>(hn::And(hn::Add(quarter, hn::Set(du, 1u)), two));
  sine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), sine_sign));
  cosine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), cosine_sign));
}

// The same in double; a turn is 2^64. The nearest quarter turn by integers; sin(pi/2 q) and
// cos(pi/2 q) for |q| <= 1/2 by polynomials in z = q^2 (interpolated at Chebyshev's points of [0,
// 1/4], within 1e-17). kTwoParts: pi/2 in two parts, within 1.2e-16; else within 3e-16.
template <bool kTwoParts, class D>
HWY_INLINE void SinCosOfWideTurn(D d, hn::Vec<hn::RebindToUnsigned<D>> turn, hn::Vec<D>& sine,
                                 hn::Vec<D>& cosine) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto quarter = hn::ShiftRight<62>(hn::Add(turn, hn::Set(du, std::uint64_t{1} << 61)));
  const auto rest = hn::BitCast(di, hn::Sub(turn, hn::ShiftLeft<62>(quarter)));
  const auto q = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 0x1p-62));
  const auto z = hn::Mul(q, q);
  auto s = hn::MulAdd(z, hn::Set(d, 0x1.e4a9d9166f052p-25), hn::Set(d, -0x1.e3027dea82bd7p-19));
  s = hn::MulAdd(z, s, hn::Set(d, 0x1.50783208843ebp-13));
  s = hn::MulAdd(z, s, hn::Set(d, -0x1.32d2cce500387p-8));
  s = hn::MulAdd(z, s, hn::Set(d, 0x1.466bc6775a476p-4));
  s = hn::MulAdd(z, s, hn::Set(d, -0x1.4abbce625be52p-1));
  if constexpr (kTwoParts) {
    s = hn::Mul(q, hn::MulAdd(z, s, hn::Set(d, 0x1.1a62633145c07p-54)));
    s = hn::MulAdd(q, hn::Set(d, 0x1.921fb54442d18p+0), s);
  } else {
    s = hn::Mul(q, hn::MulAdd(z, s, hn::Set(d, 0x1.921fb54442d18p+0)));
  }
  auto c = hn::MulAdd(z, hn::Set(d, -0x1.b2f3eb054afcdp-28), hn::Set(d, 0x1.f9ce245cada0bp-22));
  c = hn::MulAdd(z, c, hn::Set(d, -0x1.a6d1eef479be1p-16));
  c = hn::MulAdd(z, c, hn::Set(d, 0x1.e1f5068688d5bp-11));
  c = hn::MulAdd(z, c, hn::Set(d, -0x1.55d3c7e3cb241p-6));
  c = hn::MulAdd(z, c, hn::Set(d, 0x1.03c1f081b5ac0p-2));
  c = hn::MulAdd(z, c, hn::Set(d, -0x1.3bd3cc9be45dep+0));
  c = hn::MulAdd(z, c, hn::Set(d, 1.0));
  const auto one = hn::Set(du, std::uint64_t{1}), two = hn::Set(du, std::uint64_t{2});
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, one));
  const auto sine_sign = hn::ShiftLeft<62>(hn::And(quarter, two));
  const auto cosine_sign = hn::ShiftLeft<62>(hn::And(hn::Add(quarter, one), two));
  sine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), sine_sign));
  cosine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), cosine_sign));
}

// e^-a of doubles a from 0 to 746, within 1.8e-16 of itself or 2^-1074 where multiply-adds are fused, else within 1.5
// units in the last place: 2^-n e^r with r = n ln 2 - a. 2^-n in two steps reaches subnormals. kFused: as MulAdd; else
// products are rounded before they are added, which gives the same bits on every instruction set.
template <bool kFused, class D>
HWY_INLINE hn::Vec<D> ExpOfMinus(D d, hn::Vec<D> a) {
  const hn::RebindToUnsigned<D> du;
  const auto add_product = [](hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> z) HWY_ATTR {
    return kFused ? hn::MulAdd(x, y, z) : hn::Add(hn::Mul(x, y), z);
  };
  const auto magic = hn::Set(d, 0x1.8p52);
  const auto shifted = hn::Add(hn::Mul(a, hn::Set(d, 0x1.71547652b82fep+0)), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first so short that n times it is exact
  auto r = hn::Sub(hn::Mul(n, hn::Set(d, 0x1.62e42feep-1)), a);
  r = add_product(n, hn::Set(d, 0x1.a39ef35793c76p-33), r);
  auto q = hn::Set(d, kExpF64[0]);
  for (std::size_t i = 1; i < sizeof kExpF64 / sizeof *kExpF64; ++i)
    q = add_product(r, q, hn::Set(d, kExpF64[i]));
  const auto y = hn::Add(hn::Set(d, 1), add_product(hn::Mul(r, r), q, r));
  const auto steps = hn::And(hn::BitCast(du, shifted), hn::Set(du, std::uint64_t{0x7ff}));
  const auto half = hn::ShiftRight<1>(steps), bias = hn::Set(du, std::uint64_t{1023});
  const auto first = hn::BitCast(d, hn::ShiftLeft<52>(hn::Sub(bias, half)));
  const auto second = hn::BitCast(d, hn::ShiftLeft<52>(hn::Sub(hn::Add(bias, half), steps)));
  return hn::Mul(hn::Mul(y, first), second);
}
// Of any a >= 0. Of NaN: some number.
template <class D>
HWY_INLINE hn::Vec<D> ExpMinus(D d, hn::Vec<D> a) {
  return ExpOfMinus<true>(d, hn::Min(a, hn::Set(d, 746)));  // e^-746 rounds to 0
}
// Of any a >= 0 or NaN, which stays; the same bits on every instruction set.
template <class D>
HWY_INLINE hn::Vec<D> ExpMinusSameBits(D d, hn::Vec<D> a) {
  const auto most = hn::Set(d, 746);
  return ExpOfMinus<false>(d, hn::IfThenElse(hn::Gt(a, most), most, a));
}

// e^x of floats, within 9.2e-8 of itself where it is a normal float: x from kExpLeast (ln 2^-126)
// to kExpMost (ln 2^128). Below it is 0, above infinity; NaN stays. 2^n e^r with r = x - n ln 2; n
// is added to the exponent.
inline constexpr float kExpLeast = -0x1.5d589ep+6f, kExpMost = 0x1.62e42ep+6f;
template <class D>
HWY_INLINE hn::Vec<D> ExpF32(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 0x1.715476p+0f), magic);
  const auto n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first so short that n times it is exact
  auto r = hn::NegMulAdd(n, hn::Set(d, 0x1.62e4p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 0x1.7f7d1cp-20f), r);
  const auto q = Polynomial(d, r, kExpF32);
  const auto y = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), q, r));
  const auto power = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  auto e = hn::BitCast(d, hn::Add(hn::BitCast(du, y), power));
  e = hn::IfThenElse(hn::Lt(x, hn::Set(d, kExpLeast)), hn::Zero(d), e);
  e = hn::IfThenElse(hn::Gt(x, hn::Set(d, kExpMost)), hn::Inf(d), e);
  return hn::IfThenElse(hn::Eq(x, x), e, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
