// SPDX-License-Identifier: Apache-2.0
// Loops over the keys of one row, eight at a time in vectors of a width W: the bits do not depend on
// it. Sums are made in eight parts of fixed order.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/attention/lanes_products.h"
#include "kernels/math-inl.h"  // kExpF64

namespace posenc::inline v0::detail {

inline constexpr Index kPartSums = 8;

struct TwoWide {
  using Double [[gnu::vector_size(16)]] = double;
  using Bits [[gnu::vector_size(16)]] = std::uint64_t;
};
struct FourWide {
  using Double [[gnu::vector_size(32)]] = double;
  using Bits [[gnu::vector_size(32)]] = std::uint64_t;
};
struct EightWide {
  using Double [[gnu::vector_size(64)]] = double;
  using Bits [[gnu::vector_size(64)]] = std::uint64_t;
};

// Vectors that hold eight doubles.
template <class W>
inline constexpr Index kVectors = kPartSums* static_cast<Index>(sizeof(double)) /
                                  static_cast<Index>(sizeof(typename W::Double));
template <class W>
[[gnu::always_inline]] inline void load_eight(typename W::Double* v, const double* x) noexcept {
  for (Index n = 0; n < kVectors<W>; ++n) load_lanes(v[n], x + n * kLanes<typename W::Double>);
}
template <class W>
[[gnu::always_inline]] inline void store_eight(const typename W::Double* v, double* x) noexcept {
  for (Index n = 0; n < kVectors<W>; ++n) store_lanes(v[n], x + n * kLanes<typename W::Double>);
}

[[gnu::always_inline]] inline double total_of(const double* part) noexcept {
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// x becomes e^x; x at most 0. 2^-m e^r with r = x + m ln 2; 2^-m in two steps, so that what is below
// the smallest normal number is rounded once.
template <class W>
[[gnu::always_inline]] inline void exponential(typename W::Double& x) noexcept {
  using Double = typename W::Double;
  using Bits = typename W::Bits;
  constexpr double kMagic = 0x1.8p52;
  x = x < -1000.0 ? Double{} - 1000.0 : x;  // NaN stays
  const Double shifted = kMagic - x * 0x1.71547652b82fep+0;
  const Double m = shifted - kMagic;
  // ln 2 in two parts, the first so short that m times it is exact
  const Double r = (x + m * 0x1.62e42feep-1) + m * 0x1.a39ef35793c76p-33;
  Double q = Double{} + kExpF64[0];
  for (std::size_t n = 1; n < std::size(kExpF64); ++n) q = q * r + kExpF64[n];
  const Double y = 1.0 + (r + r * r * q);
  Bits steps;
  std::memcpy(&steps, &shifted, sizeof steps);
  steps &= 0x7ff;
  const Bits half = steps >> 1;
  const Bits low = (1023 - half) << 52, high = (1023 + half - steps) << 52;
  Double first, second;
  std::memcpy(&first, &low, sizeof first);
  std::memcpy(&second, &high, sizeof second);
  x = y * first * second;
}

template <class W>
[[gnu::always_inline]] inline double largest_of(const double* x, double least, Runs runs) noexcept {
  typename W::Double top[kVectors<W>], v[kVectors<W>];
  for (auto& t : top) t = typename W::Double{} + least;
  double part[kPartSums];
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kPartSums <= run.end; j += kPartSums) {
      load_eight<W>(v, x + j);
      for (Index n = 0; n < kVectors<W>; ++n) top[n] = v[n] > top[n] ? v[n] : top[n];
    }
    for (; j < run.end; ++j) least = std::max(least, x[j]);
  }
  store_eight<W>(top, part);
  for (const double t : part) least = std::max(least, t);
  return least;
}

template <class W>
[[gnu::always_inline]] inline double exponentials_of(double* y, const double* x, double top,
                                                     Runs runs) noexcept {
  typename W::Double sum[kVectors<W>] = {}, v[kVectors<W>];
  double part[kPartSums], rest[kPartSums] = {}, left[kPartSums];
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kPartSums <= run.end; j += kPartSums) {
      load_eight<W>(v, x + j);
      for (Index n = 0; n < kVectors<W>; ++n) {
        v[n] -= top;
        exponential<W>(v[n]);
        sum[n] += v[n];
      }
      store_eight<W>(v, y + j);
    }
    if (j == run.end) continue;
    const Index count = run.end - j;
    for (Index n = 0; n < kPartSums; ++n) left[n] = n < count ? x[j + n] : top;
    load_eight<W>(v, left);
    for (Index n = 0; n < kVectors<W>; ++n) {
      v[n] -= top;
      exponential<W>(v[n]);
    }
    store_eight<W>(v, left);
    for (Index n = 0; n < count; ++n) y[j + n] = left[n], rest[n] += left[n];
  }
  store_eight<W>(sum, part);
  for (Index n = 0; n < kPartSums; ++n) part[n] += rest[n];
  return total_of(part);
}

template <class W>
[[gnu::always_inline]] inline double dot_of(const double* x, const double* y, Runs runs) noexcept {
  typename W::Double sum[kVectors<W>] = {}, a[kVectors<W>], b[kVectors<W>];
  double part[kPartSums], rest[kPartSums] = {};
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kPartSums <= run.end; j += kPartSums) {
      load_eight<W>(a, x + j), load_eight<W>(b, y + j);
      for (Index n = 0; n < kVectors<W>; ++n) sum[n] += a[n] * b[n];
    }
    for (Index n = 0; j < run.end; ++j, ++n) rest[n] += x[j] * y[j];
  }
  store_eight<W>(sum, part);
  for (Index n = 0; n < kPartSums; ++n) part[n] += rest[n];
  return total_of(part);
}

// Loops without sums: fn.template operator()<V>(j) for a vector V of keys from j on, or one double.
template <class W, class F>
[[gnu::always_inline]] inline void each_lane(Runs runs, const F& fn) noexcept {
  using V = typename W::Double;
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kLanes<V> <= run.end; j += kLanes<V>) fn.template operator()<V>(j);
    for (; j < run.end; ++j) fn.template operator()<double>(j);
  }
}
template <class W>
[[gnu::always_inline]] inline void scale_of(double* y, double s, const double* x,
                                            Runs runs) noexcept {
  each_lane<W>(
      runs, [&]<class V>(Index j) __attribute__((always_inline)) {
        V a;
        load_lanes(a, x + j);
        a *= s;
        store_lanes(a, y + j);
      });
}
template <class W>
[[gnu::always_inline]] inline void scale_add_of(double* y, double s, const double* x,
                                                const double* z, Runs runs) noexcept {
  each_lane<W>(
      runs, [&]<class V>(Index j) __attribute__((always_inline)) {
        V a, b;
        load_lanes(a, x + j), load_lanes(b, z + j);
        a = s * a + b;
        store_lanes(a, y + j);
      });
}
template <class W>
[[gnu::always_inline]] inline void add_of(double* y, const double* x, Runs runs) noexcept {
  each_lane<W>(
      runs, [&]<class V>(Index j) __attribute__((always_inline)) {
        V a, b;
        load_lanes(a, x + j), load_lanes(b, y + j);
        b += a;
        store_lanes(b, y + j);
      });
}
template <class W>
[[gnu::always_inline]] inline void weigh_of(double* y, const double* p, const double* d,
                                            double shift, Runs runs) noexcept {
  each_lane<W>(
      runs, [&]<class V>(Index j) __attribute__((always_inline)) {
        V a, b;
        load_lanes(a, p + j), load_lanes(b, d + j);
        a *= b + shift;
        store_lanes(a, y + j);
      });
}

}  // namespace posenc::v0::detail
