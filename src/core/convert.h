// SPDX-License-Identifier: Apache-2.0
// 16-bit floats, by integer arithmetic and one rounding to nearest even, on every machine the same.
// (Highway 1.0.3 truncates to bfloat16 and its float16 is wrong without F16C.) NaN stays NaN,
// quieted, with the upper bits of its payload; beyond the largest is infinity; subnormals are kept.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

namespace posenc::inline v0 {

// IEEE 754 binary formats by the width of their fields.
struct BinaryF16 {
  static constexpr int fraction = 10, exponent = 5;
};
struct BinaryBF16 {
  static constexpr int fraction = 7, exponent = 8;
};

// binary32 or binary64 to a 16-bit format: rounded once, straight from the source.
template <class To, class Float>
constexpr std::uint16_t narrow_float(Float x) noexcept {
  using Bits = std::conditional_t<sizeof(Float) == 8, std::uint64_t, std::uint32_t>;
  constexpr int kFraction = sizeof(Float) == 8 ? 52 : 23, kBias = sizeof(Float) == 8 ? 1023 : 127;
  constexpr int kToBias = (1 << (To::exponent - 1)) - 1;
  constexpr int kDrop = kFraction - To::fraction;
  constexpr std::uint16_t kInfinity = ((1u << To::exponent) - 1u) << To::fraction;
  constexpr std::uint16_t kQuiet = 1u << (To::fraction - 1);

  const Bits bits = std::bit_cast<Bits>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> (8 * sizeof(Float) - 1)) << 15);
  const Bits fraction = bits & ((Bits{1} << kFraction) - 1);
  const int biased = static_cast<int>(bits >> kFraction) & (2 * kBias + 1);
  if (biased == 2 * kBias + 1)  // infinity or NaN
    return static_cast<std::uint16_t>(
        sign | kInfinity | (fraction ? kQuiet | static_cast<std::uint16_t>(fraction >> kDrop) : 0));
  // x = significand * 2^(... - kFraction); a subnormal has the smallest exponent, no leading one.
  const Bits significand = fraction | (biased > 0 ? Bits{1} << kFraction : 0);
  const int exponent = (biased > 0 ? biased : 1) - kBias + kToBias;  // biased as in To
  if (exponent >= (1 << To::exponent) - 1) return sign | kInfinity;
  const int drop = kDrop + (exponent < 1 ? 1 - exponent : 0);  // more for To's subnormals
  if (drop > kFraction + 1) return sign;                       // below half of the smallest
  const Bits odd = (significand >> drop) & 1;
  Bits rounded = (significand + (Bits{1} << (drop - 1)) - 1 + odd) >> drop;
  // The leading one, and a carry out of the fraction, run into the exponent; so does infinity.
  if (exponent > 1) rounded += static_cast<Bits>(exponent - 1) << To::fraction;
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(rounded));
}

constexpr std::uint16_t f16_from(float x) noexcept {
  return narrow_float<BinaryF16>(x);
}
constexpr std::uint16_t f16_from(double x) noexcept {
  return narrow_float<BinaryF16>(x);
}
constexpr std::uint16_t bf16_from(double x) noexcept {
  return narrow_float<BinaryBF16>(x);
}
constexpr std::uint16_t bf16_from(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float f32_from_bf16(std::uint16_t h) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16);
}
constexpr float f32_from_f16(std::uint16_t h) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u)  // infinity or NaN, quieted
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 |
                                (magnitude > 0x7c00u ? 0x400000u : 0u));
  if (magnitude >= 0x400u)  // normal: the exponent moves from bias 15 to 127
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  if (magnitude == 0) return std::bit_cast<float>(sign);
  const int shift = std::countl_zero(magnitude) - 21;  // brings the leading one to bit 10
  return std::bit_cast<float>(sign | static_cast<std::uint32_t>(113 - shift) << 23 |
                              ((magnitude << shift) & 0x3ffu) << 13);
}

}  // namespace posenc::v0
