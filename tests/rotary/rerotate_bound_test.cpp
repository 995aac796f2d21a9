// SPDX-License-Identifier: Apache-2.0
// The bound of moved keys: u = 2^-24 for cos and sin, u for their products, u for the sum, each of
// at most |k| g: 3 u = 1.79e-7 of the turned pair's length. f64: cos and sin within 2.3e-16 of 1
// (sqrt 2 of that for two), and 2^-53 twice: 5.5e-16. Keys that turn onto an axis come nearest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/convert.h"
#include "posenc/posenc.h"

namespace posenc {
namespace {

constexpr Index kKeys = 20000;

struct Search {
  std::vector<Index> from, to;
  std::vector<double> keys;  // [kKeys, 2]
  RotarySpec old_spec, new_spec;
};
Search search(double gain, unsigned seed) {
  Search s;
  s.old_spec = s.new_spec =
      resolve(Rope{.head_dim = 2, .base = 10000, .pairing = Pairing::half_split});
  s.new_spec.blocks[0].spectrum.gain = gain;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> some(0, 1);
  std::uniform_int_distribution<Index> position(0, (1 << 20) - 1);
  for (Index i = 0; i < kKeys; ++i) {
    s.from.push_back(position(random)), s.to.push_back(position(random));
    const double angle = static_cast<double>(s.from.back() - s.to.back()) +
                         (i % 2 == 0 ? 0 : 0.6 * (some(random) - 0.5));
    // Just above a power of two a unit in the last place is largest beside its number.
    const double length = (1 + (i % 4 < 2 ? 1e-3 : 1) * some(random)) / gain;
    s.keys.push_back(length * std::cos(angle)), s.keys.push_back(length * std::sin(angle));
  }
  return s;
}

double read(double x) {
  return x;
}
double read(float x) {
  return static_cast<double>(x);
}
template <double (*kRead)(std::uint16_t)>
struct Half {
  std::uint16_t bits;
};
double from_f16(std::uint16_t x) {
  return static_cast<double>(f32_from_f16(x));
}
double from_bf16(std::uint16_t x) {
  return static_cast<double>(f32_from_bf16(x));
}
template <double (*kRead)(std::uint16_t)>
double read(Half<kRead> x) {
  return kRead(x.bits);
}

// Worst error beyond half a unit of `bits` binary digits of the result, over the pair's length.
template <class T>
double worst(const Search& s, std::vector<T> x, DType type, int bits) {
  const std::vector<T> before = x;
  const Index shape[] = {kKeys, 1, 2};
  rerotate(heads(tensor(static_cast<void*>(x.data()), type, shape), HeadsLayout::thd), s.old_spec,
           positions(s.from), s.new_spec, positions(s.to));
  const long double gain = s.new_spec.blocks[0].spectrum.gain;
  long double error = 0;
  for (std::size_t i = 0; i < s.from.size(); ++i) {
    const auto moved = static_cast<long double>(s.to[i] - s.from[i]);  // frequency 1
    const long double c = gain * std::cos(moved), d = gain * std::sin(moved);
    const long double a = read(before[2 * i]), b = read(before[2 * i + 1]);
    const long double want[] = {a * c - b * d, a * d + b * c};
    for (const std::size_t k : {0, 1}) {
      const long double half = bits == 0 ? 0 : std::ldexp(1.0L, std::ilogb(want[k]) - bits);
      const long double off = std::fabs(read(x[2 * i + k]) - want[k]) - half;
      error = std::max(error, off / (gain * std::hypot(a, b)));
    }
  }
  return static_cast<double>(error);
}

class RerotateBound : public ::testing::Test {
 protected:
  void TearDown() override { reset_isa(); }
};

TEST_F(RerotateBound, HoldsAndIsNearlyMet) {
  double f32 = 0, f64 = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    unsigned seed = 1;
    for (const double gain : {1.0, 1.05, 1.1386, 1.37, 1.41}) {
      const Search s = search(gain, seed++);
      std::vector<Half<from_f16>> h;
      std::vector<Half<from_bf16>> b;
      for (const double k : s.keys) h.push_back({f16_from(k)}), b.push_back({bf16_from(k)});
      f64 = std::max(f64, worst(s, s.keys, DType::f64, 0));
      f32 =
          std::max(f32, worst(s, std::vector<float>(s.keys.begin(), s.keys.end()), DType::f32, 0));
      EXPECT_LE(worst(s, h, DType::f16, 11), 1.8e-7) << isa_name(isa) << " " << gain;
      EXPECT_LE(worst(s, b, DType::bf16, 8), 1.8e-7) << isa_name(isa) << " " << gain;
    }
  }
  EXPECT_LE(f64, 5.5e-16);
  EXPECT_LE(f32, 1.8e-7);
  EXPECT_GE(f32, 1.4e-7) << "the search misses what the bound is for";
  std::printf("  rerotate: f32 %.3g, f64 %.3g of the turned pair's length\n", f32, f64);
}

}  // namespace
}  // namespace posenc
