// SPDX-License-Identifier: Apache-2.0
// What rounding to nearest even means, said without any rounding: no other value of the format is
// nearer, and of two equally near ones it is the even one. Values come from a table made by ldexp.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace posenc::test {

struct Format {
  int fraction, exponent;

  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent) - 1) << fraction);
  }
  // Of a finite pattern without sign; infinity counts as the value that would come next.
  double value(std::uint16_t pattern) const {
    const int e = pattern >> fraction, bias = (1 << (exponent - 1)) - 1;
    const int f = pattern & ((1 << fraction) - 1);
    return e == 0 ? std::ldexp(f, 1 - bias - fraction)
                  : std::ldexp(f + (1 << fraction), e - bias - fraction);
  }
};
inline constexpr Format kF16{10, 5}, kBF16{7, 8};

class NarrowReference {
 public:
  explicit NarrowReference(Format f) : format_(f), values_(f.infinity() + 1u) {
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = f.value(static_cast<std::uint16_t>(i));
  }

  // Whether `got` is what x must become.
  bool is_right(double x, std::uint16_t got) const {
    const std::uint16_t infinity = format_.infinity();
    const std::uint16_t magnitude = got & 0x7fffu;
    if ((got >> 15 != 0) != std::signbit(x)) return false;
    if (std::isnan(x))
      return magnitude > infinity && (magnitude & (1u << (format_.fraction - 1))) != 0;
    if (magnitude > infinity) return false;
    const double a = std::fabs(x);
    if (std::isinf(a)) return magnitude == infinity;
    if (a >= values_[infinity]) return magnitude == infinity;
    const double error = std::fabs(a - values_[magnitude]);  // exact: both on one fine grid
    const bool odd = magnitude % 2 != 0;
    if (magnitude > 0) {
      const double below = std::fabs(a - values_[magnitude - 1u]);
      if (below < error || (below == error && odd)) return false;
    }
    if (magnitude < infinity) {
      const double above = std::fabs(a - values_[magnitude + 1u]);
      if (above < error || (above == error && odd)) return false;
    }
    return true;
  }

  double value(std::size_t magnitude) const { return values_[magnitude]; }

 private:
  Format format_;
  std::vector<double> values_;
};

}  // namespace posenc::test
