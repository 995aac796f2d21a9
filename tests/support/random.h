// SPDX-License-Identifier: Apache-2.0
// Random numbers by counter: value i of a seed is the same whatever was asked before, on every
// machine and in every order. SplitMix64: Steele, Lea, Flood, OOPSLA 2014, figure 16.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "posenc/core/dtype.h"

namespace posenc::test {

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du) {}

  std::uint64_t bits(std::uint64_t i) const {
    std::uint64_t z = seed_ + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t bits() { return bits(next_++); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double a, double b) { return a + (b - a) * uniform(); }
  // Both ends included.
  Index integer(Index a, Index b) {
    const std::uint64_t n = static_cast<std::uint64_t>(b) - static_cast<std::uint64_t>(a) + 1;
    return static_cast<Index>(static_cast<std::uint64_t>(a) + (n == 0 ? bits() : bits() % n));
  }
  bool coin() { return (bits() >> 63) != 0; }
  double normal() {  // Box-Muller
    const double r = std::sqrt(-2 * std::log(1 - uniform()));
    return r * std::cos(2 * std::numbers::pi * uniform());
  }
  template <class T = double>
  std::vector<T> normals(std::size_t n) {
    std::vector<T> v(n);
    for (T& x : v) x = static_cast<T>(normal());
    return v;
  }

 private:
  std::uint64_t seed_, next_ = 0;
};

}  // namespace posenc::test
