// SPDX-License-Identifier: Apache-2.0
// Vectors of the exact attention engine's loops: at most eight doubles, kExactLanes of them; and the same operations on
// one double, for what is left at the end of a run. SVE's vectors have no size known here and can be no elements of an
// array, so there every vector is one double and the compiler makes vectors of the loops.
#include "posenc/core/dtype.h"

#if defined(POSENC_KERNELS_EXACT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_EXACT_LANES_INL_H_
#undef POSENC_KERNELS_EXACT_LANES_INL_H_
#else
#define POSENC_KERNELS_EXACT_LANES_INL_H_
#endif
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_HAVE_SCALABLE
using ExactVector = double;
inline constexpr Index kExactLanes = 1;
#else
using ExactTag = hn::CappedTag<double, 8>;
using ExactVector = hn::Vec<ExactTag>;
inline constexpr Index kExactLanes = static_cast<Index>(hn::MaxLanes(ExactTag()));

HWY_INLINE void LoadLanes(ExactVector& y, const double* x) {
  y = hn::LoadU(ExactTag(), x);
}
HWY_INLINE void StoreLanes(ExactVector x, double* y) {
  hn::StoreU(x, ExactTag(), y);
}
HWY_INLINE void SetLanes(ExactVector& y, double x) {
  y = hn::Set(ExactTag(), x);
}
HWY_INLINE ExactVector AddLanes(ExactVector x, ExactVector y) {
  return hn::Add(x, y);
}
HWY_INLINE ExactVector MulLanes(ExactVector x, ExactVector y) {
  return hn::Mul(x, y);
}
#endif

HWY_INLINE void LoadLanes(double& y, const double* x) {
  y = *x;
}
HWY_INLINE void StoreLanes(double x, double* y) {
  *y = x;
}
HWY_INLINE void SetLanes(double& y, double x) {
  y = x;
}
HWY_INLINE double AddLanes(double x, double y) {
  return x + y;
}
HWY_INLINE double MulLanes(double x, double y) {
  return x * y;
}

// z + x y, the product rounded.
template <class V>
HWY_INLINE V AddProduct(V x, V y, V z) {
  return AddLanes(MulLanes(x, y), z);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
