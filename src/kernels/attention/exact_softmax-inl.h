// SPDX-License-Identifier: Apache-2.0
// Loops over the keys of one row. Sums are made in eight parts of fixed order, so the width of the vectors changes no bit.
#include <algorithm>

#include "kernels/attention/exact_rows.h"

#if defined(POSENC_KERNELS_EXACT_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_EXACT_SOFTMAX_INL_H_
#undef POSENC_KERNELS_EXACT_SOFTMAX_INL_H_
#else
#define POSENC_KERNELS_EXACT_SOFTMAX_INL_H_
#endif
#include <hwy/highway.h>

#include "kernels/attention/exact_lanes-inl.h"
#include "kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

inline constexpr Index kSumParts = 8;
inline constexpr Index kSumVectors = kSumParts / kExactLanes;

HWY_INLINE void LoadEight(ExactVector* v, const double* x) {
  for (Index n = 0; n < kSumVectors; ++n) LoadLanes(v[n], x + n * kExactLanes);
}
HWY_INLINE void StoreEight(const ExactVector* v, double* x) {
  for (Index n = 0; n < kSumVectors; ++n) StoreLanes(v[n], x + n * kExactLanes);
}
HWY_INLINE void SetEight(ExactVector* v, double x) {
  for (Index n = 0; n < kSumVectors; ++n) SetLanes(v[n], x);
}
HWY_INLINE double TotalOf(const double* part) {
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

// e^(x - top), at most 1; NaN stays.
HWY_INLINE ExactVector ExponentialOf(ExactVector x, double top) {
#if HWY_HAVE_SCALABLE
  const hn::CappedTag<double, 1> d;
  return hn::GetLane(ExpMinusSameBits(d, hn::Set(d, top - x)));
#else
  const ExactTag d;
  return ExpMinusSameBits(d, hn::Sub(hn::Set(d, top), x));
#endif
}

inline double Largest(const double* x, double least, Runs runs) noexcept {
  ExactVector top[kSumVectors], v[kSumVectors];
  double part[kSumParts];
  SetEight(top, least);
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kSumParts <= run.end; j += kSumParts) {
      LoadEight(v, x + j);
      for (Index n = 0; n < kSumVectors; ++n) {
#if HWY_HAVE_SCALABLE
        top[n] = v[n] > top[n] ? v[n] : top[n];
#else
        top[n] = hn::IfThenElse(hn::Gt(v[n], top[n]), v[n], top[n]);
#endif
      }
    }
    for (; j < run.end; ++j) least = std::max(least, x[j]);
  }
  StoreEight(top, part);
  for (const double t : part) least = std::max(least, t);
  return least;
}

inline double Exponentials(double* y, const double* x, double top, Runs runs) noexcept {
  ExactVector sum[kSumVectors], v[kSumVectors];
  double part[kSumParts], rest[kSumParts] = {}, left[kSumParts];
  SetEight(sum, 0);
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kSumParts <= run.end; j += kSumParts) {
      LoadEight(v, x + j);
      for (Index n = 0; n < kSumVectors; ++n) {
        v[n] = ExponentialOf(v[n], top);
        sum[n] = AddLanes(sum[n], v[n]);
      }
      StoreEight(v, y + j);
    }
    if (j == run.end) continue;
    const Index count = run.end - j;
    for (Index n = 0; n < kSumParts; ++n) left[n] = n < count ? x[j + n] : top;
    LoadEight(v, left);
    for (Index n = 0; n < kSumVectors; ++n) v[n] = ExponentialOf(v[n], top);
    StoreEight(v, left);
    for (Index n = 0; n < count; ++n) y[j + n] = left[n], rest[n] += left[n];
  }
  StoreEight(sum, part);
  for (Index n = 0; n < kSumParts; ++n) part[n] += rest[n];
  return TotalOf(part);
}

inline double Dot(const double* x, const double* y, Runs runs) noexcept {
  ExactVector sum[kSumVectors], a[kSumVectors], b[kSumVectors];
  double part[kSumParts], rest[kSumParts] = {};
  SetEight(sum, 0);
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kSumParts <= run.end; j += kSumParts) {
      LoadEight(a, x + j), LoadEight(b, y + j);
      for (Index n = 0; n < kSumVectors; ++n) sum[n] = AddProduct(a[n], b[n], sum[n]);
    }
    for (Index n = 0; j < run.end; ++j, ++n) rest[n] += x[j] * y[j];
  }
  StoreEight(sum, part);
  for (Index n = 0; n < kSumParts; ++n) part[n] += rest[n];
  return TotalOf(part);
}

// Loops without sums: fn.template operator()<V>(j) for a vector V of keys from j on, or one double.
template <class F>
HWY_INLINE void EachLane(Runs runs, const F& fn) {
  for (const Run& run : runs) {
    Index j = run.begin;
    for (; j + kExactLanes <= run.end; j += kExactLanes) fn.template operator()<ExactVector>(j);
    for (; j < run.end; ++j) fn.template operator()<double>(j);
  }
}
inline void Scale(double* y, double s, const double* x, Runs runs) noexcept {
  EachLane(runs, [&]<class V>(Index j) HWY_ATTR {
    V a, factor;
    LoadLanes(a, x + j), SetLanes(factor, s);
    StoreLanes(MulLanes(a, factor), y + j);
  });
}
inline void ScaleAdd(double* y, double s, const double* x, const double* z, Runs runs) noexcept {
  EachLane(runs, [&]<class V>(Index j) HWY_ATTR {
    V a, b, factor;
    LoadLanes(a, x + j), LoadLanes(b, z + j), SetLanes(factor, s);
    StoreLanes(AddProduct(factor, a, b), y + j);
  });
}
inline void Add(double* y, const double* x, Runs runs) noexcept {
  EachLane(runs, [&]<class V>(Index j) HWY_ATTR {
    V a, b;
    LoadLanes(a, x + j), LoadLanes(b, y + j);
    StoreLanes(AddLanes(b, a), y + j);
  });
}
inline void SoftmaxBackward(double* y, const double* p, const double* d, double shift,
                            Runs runs) noexcept {
  EachLane(runs, [&]<class V>(Index j) HWY_ATTR {
    V a, b, s;
    LoadLanes(a, p + j), LoadLanes(b, d + j), SetLanes(s, shift);
    StoreLanes(MulLanes(a, AddLanes(b, s)), y + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
