// SPDX-License-Identifier: Apache-2.0
// frequency / 2 pi mod 1 for any finite double, by integer multiplication with the bits of 1 / 2 pi
// that matter (M. H. Payne, R. N. Hanek: Radian reduction for trigonometric functions, 1983).
#include <array>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/phase.h"

namespace posenc::inline v0 {
namespace {

// floor(2^1280 / 2 pi), least significant limb first. The largest exponent of a double is 971 above
// its last bit: 971 + 53 + 128 bits and 64 to round with are 1216.
constexpr int kBits = 1280;
constexpr std::array<std::uint64_t, kBits / 64> kInverseTwoPi{
    0xfc33ef0826bd0d87, 0x1580cc11bf1edaea, 0x9afed7ec47e35742, 0xcf41ce7de294a4ba,
    0x5d49eeb1faf97c5e, 0xd3d18fd9a797fa8b, 0xdb4d9fb3c9f2c26d, 0xfbcbc462d6829b47,
    0xc7fe25fff7816603, 0x272117e2ef7e4a0e, 0x4e64758e60d4ce7d, 0x3a671c09ad17df90,
    0xba208d7d4baed121, 0x3f877ac72c4a69cf, 0x01924bba82746487, 0x6dc91b8e909374b8,
    0x7f9458eaf7aef158, 0x36d8a5664f10e410, 0x7f09d5f47d4d3770, 0x28be60db9391054a};

__extension__ using U128 = unsigned __int128;

// frequency / 2 pi to the last bit of a double: 1 / 2 pi as a sum of two.
double turns_per_unit(double f) {
  constexpr double hi = 0x1.45f306dc9c883p-3, lo = -0x1.6b01ec5417056p-57;
  int exponent;
  const double m = std::frexp(f, &exponent);  // so that the small parts do not underflow
  const double t = m * hi;
  const double rest = std::fma(m, hi, -t) + m * lo;
  return std::ldexp(t + rest, exponent);
}

Turns turns_of(double f) {
  Turns r;
  r.per_unit = turns_per_unit(f);
  if (f == 0) return r;
  int exponent;
  const double m = std::frexp(std::fabs(f), &exponent);  // [1/2, 1) x 2^exponent
  const auto mantissa = static_cast<std::uint64_t>(std::ldexp(m, 53));
  // mantissa x kInverseTwoPi has its unit kBits - (exponent - 53) bits up; the first bit of the
  // fraction stands just below. Six limbs hold 128 bits of it, 64 and more to round with, and the
  // 53 that carry; what lies above is whole turns.
  const int unit = kBits - (exponent - 53);
  const int first = (unit - 128 - 128) / 64;  // unit >= 309
  constexpr int kLimbs = 6;
  std::array<std::uint64_t, kLimbs + 1> product{};
  std::uint64_t carry = 0;
  for (int i = 0; i < kLimbs; ++i) {
    const int at = first + i;
    const std::uint64_t limb =
        at < kBits / 64 ? kInverseTwoPi[static_cast<std::size_t>(at)] : std::uint64_t{0};
    const U128 x = static_cast<U128>(limb) * mantissa + carry;
    product[static_cast<std::size_t>(i)] = static_cast<std::uint64_t>(x);
    carry = static_cast<std::uint64_t>(x >> 64);
  }
  product[kLimbs] = carry;
  const int low = unit - 128 - 64 * first;  // where bit 2^-128 stands in the product, 128 .. 191
  const auto bits = [&](int from) {         // 64 bits from bit `from` on
    const auto limb = static_cast<std::size_t>(from / 64);
    const int shift = from % 64;
    return shift == 0 ? product[limb]
                      : (product[limb] >> shift) | (product[limb + 1] << (64 - shift));
  };
  U128 turn = (static_cast<U128>(bits(low + 64)) << 64) | bits(low);
  turn += bits(low - 64) >> 63;  // round half up: 1 / 2 pi is irrational, there are no ties
  if (f < 0) turn = -turn;
  r.hi = static_cast<std::uint64_t>(turn >> 64);
  r.lo = static_cast<std::uint64_t>(turn);
  return r;
}

}  // namespace

std::vector<Turns> exact_turns(const Spectrum& s) {
  std::vector<Turns> r;
  r.reserve(s.frequency.size());
  for (const double f : s.frequency) {
    if (!std::isfinite(f)) refuse_field("phase", "frequency", "must be finite", f);
    r.push_back(turns_of(f));
  }
  return r;
}

}  // namespace posenc::v0
