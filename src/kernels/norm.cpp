// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm.h"

#include <cmath>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Eight doubles, one for each part of a sum: as many vectors as they take. Where the size of a
// vector is not known to the compiler, or is one lane, eight numbers.
inline constexpr Index kEight = 8;
#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
struct Eight {
  double v[kEight];
};
HWY_INLINE Eight fill(double x) {
  return {{x, x, x, x, x, x, x, x}};
}
HWY_INLINE Eight load(const double* p) {
  return {{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}};
}
HWY_INLINE void store(const Eight& x, double* p) {
  for (Index k = 0; k < kEight; ++k) p[k] = x.v[k];
}
HWY_INLINE void store(const Eight& x, float* p) {
  for (Index k = 0; k < kEight; ++k) p[k] = static_cast<float>(x.v[k]);
}
HWY_INLINE Eight operator+(Eight a, const Eight& b) {
  for (Index k = 0; k < kEight; ++k) a.v[k] += b.v[k];
  return a;
}
HWY_INLINE Eight operator-(Eight a, const Eight& b) {
  for (Index k = 0; k < kEight; ++k) a.v[k] -= b.v[k];
  return a;
}
HWY_INLINE Eight operator*(Eight a, const Eight& b) {
  for (Index k = 0; k < kEight; ++k) a.v[k] *= b.v[k];
  return a;
}
#else
using D = hn::CappedTag<double, kEight>;
inline constexpr Index kLanes = hn::MaxLanes(D()), kVectors = kEight / kLanes;
struct Eight {
  hn::Vec<D> v[kVectors];
};
HWY_INLINE Eight fill(double x) {
  Eight r;
  for (Index k = 0; k < kVectors; ++k) r.v[k] = hn::Set(D(), x);
  return r;
}
HWY_INLINE Eight load(const double* p) {
  Eight r;
  for (Index k = 0; k < kVectors; ++k) r.v[k] = hn::LoadU(D(), p + k * kLanes);
  return r;
}
HWY_INLINE void store(const Eight& x, double* p) {
  for (Index k = 0; k < kVectors; ++k) hn::StoreU(x.v[k], D(), p + k * kLanes);
}
HWY_INLINE void store(const Eight& x, float* p) {
  const hn::Rebind<float, D> df;
  for (Index k = 0; k < kVectors; ++k) hn::StoreU(hn::DemoteTo(df, x.v[k]), df, p + k * kLanes);
}
HWY_INLINE Eight operator+(Eight a, const Eight& b) {
  for (Index k = 0; k < kVectors; ++k) a.v[k] = hn::Add(a.v[k], b.v[k]);
  return a;
}
HWY_INLINE Eight operator-(Eight a, const Eight& b) {
  for (Index k = 0; k < kVectors; ++k) a.v[k] = hn::Sub(a.v[k], b.v[k]);
  return a;
}
HWY_INLINE Eight operator*(Eight a, const Eight& b) {
  for (Index k = 0; k < kVectors; ++k) a.v[k] = hn::Mul(a.v[k], b.v[k]);
  return a;
}
#endif

HWY_INLINE double total(const double* part) {
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

struct Moments {
  double mean, scale;  // scale: 1 / sqrt(variance + epsilon)
};
// Two passes over s, which stays as it is.
HWY_INLINE Moments moments(const double* HWY_RESTRICT s, Index n, double epsilon) {
  const auto count = static_cast<double>(n);
  HWY_ALIGN double part[kEight];
  Eight sum = fill(0);
  Index i = 0;
  for (; i + kEight <= n; i += kEight) sum = sum + load(s + i);
  store(sum, part);
  for (Index k = 0; i + k < n; ++k) part[k] += s[i + k];
  const double mean = total(part) / count;
  const Eight middle = fill(mean);
  sum = fill(0);
  for (i = 0; i + kEight <= n; i += kEight) {
    const Eight x = load(s + i) - middle;
    sum = sum + x * x;
  }
  store(sum, part);
  for (Index k = 0; i + k < n; ++k) part[k] += (s[i + k] - mean) * (s[i + k] - mean);
  return {mean, 1 / std::sqrt(total(part) / count + epsilon)};
}

template <class Out>
void forward(const double* s, Index n, double epsilon, const double* HWY_RESTRICT gamma,
             const double* HWY_RESTRICT beta, Out* out) {
  const Moments m = moments(s, n, epsilon);
  const Eight mean = fill(m.mean), scale = fill(m.scale);
  Index i = 0;
  for (; i + kEight <= n; i += kEight)
    store((load(s + i) - mean) * scale * load(gamma + i) + load(beta + i), out + i);
  for (; i < n; ++i) out[i] = static_cast<Out>((s[i] - m.mean) * m.scale * gamma[i] + beta[i]);
}

// With z the standardised s and g = d gamma: ds = (g - mean(g) - z mean(g z)) / deviation.
template <bool kParameters>
void backward(double* HWY_RESTRICT s, Index n, double epsilon, const double* HWY_RESTRICT gamma,
              double* HWY_RESTRICT d, double* HWY_RESTRICT d_gamma, double* HWY_RESTRICT d_beta) {
  const Moments m = moments(s, n, epsilon);
  const Eight mean = fill(m.mean), scale = fill(m.scale);
  HWY_ALIGN double part[kEight], along_part[kEight];
  Eight sum = fill(0), along = fill(0);
  Index i = 0;
  for (; i + kEight <= n; i += kEight) {
    const Eight z = (load(s + i) - mean) * scale, up = load(d + i);
    const Eight g = up * load(gamma + i);
    if constexpr (kParameters) {
      store(load(d_gamma + i) + up * z, d_gamma + i);
      store(load(d_beta + i) + up, d_beta + i);
    }
    store(z, s + i), store(g, d + i);
    sum = sum + g;
    along = along + g * z;
  }
  store(sum, part), store(along, along_part);
  for (Index k = 0; i + k < n; ++k) {
    const double z = (s[i + k] - m.mean) * m.scale, up = d[i + k];
    if constexpr (kParameters) d_gamma[i + k] += up * z, d_beta[i + k] += up;
    s[i + k] = z;
    d[i + k] = up * gamma[i + k];
    part[k] += d[i + k];
    along_part[k] += d[i + k] * z;
  }
  const double mean_g = total(part) / static_cast<double>(n);
  const double slope = total(along_part) / static_cast<double>(n);
  const Eight middle = fill(mean_g), steep = fill(slope);
  for (i = 0; i + kEight <= n; i += kEight)
    store(scale * (load(d + i) - middle - load(s + i) * steep), d + i);
  for (; i < n; ++i) d[i] = m.scale * (d[i] - mean_g - s[i] * slope);
}

void any_backward(double* s, Index n, double epsilon, const double* gamma, double* d,
                  double* d_gamma, double* d_beta) {
  (d_gamma == nullptr ? backward<false> : backward<true>)(s, n, epsilon, gamma, d, d_gamma, d_beta);
}

constexpr NormKernels kKernels{forward<double>, forward<float>, any_backward};
}  // namespace

const NormKernels* table_of_norm() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_norm);
const NormKernels& norm_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_norm), isa);
}
}  // namespace posenc::v0::detail
#endif
