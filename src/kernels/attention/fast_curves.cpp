// SPDX-License-Identifier: Apache-2.0
// Functions of the distance in the fast attention engine, for every instruction set.
#include "kernels/attention/fast_curves.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_curves.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
void Sums(const float* s, const float* u, const float* v, Index n, float* to) noexcept {
  float sum[3] = {0, 0, 0};
  for (Index j = 0; j < n; ++j) sum[0] += s[j], sum[1] += s[j] * u[j], sum[2] += s[j] * v[j];
  for (int k = 0; k < 3; ++k) to[k] = sum[k];
}
#else
void Sums(const float* s, const float* u, const float* v, Index n, float* to) noexcept {
  F sum[3] = {SetF(0), SetF(0), SetF(0)};
  const auto add = [&](F x, F y, F z) {
    sum[0] = AddF(sum[0], x), sum[1] = MulAddF(x, y, sum[1]), sum[2] = MulAddF(x, z, sum[2]);
  };
  Index j = 0;
  for (; j + kLanes <= n; j += kLanes) add(LoadF(s + j), LoadF(u + j), LoadF(v + j));
  if (j < n) {
    const FTag d;
    const auto rest = hn::FirstN(d, static_cast<std::size_t>(n - j));
    add(hn::IfThenElseZero(rest, LoadF(s + j)), hn::IfThenElseZero(rest, LoadF(u + j)),
        hn::IfThenElseZero(rest, LoadF(v + j)));
  }
  for (int k = 0; k < 3; ++k) to[k] = SumF(sum[k]);
}
#endif

constexpr FastCurveKernels kCurveKernels{Sums};

}  // namespace

const FastCurveKernels* table_of_fast_curves() {
  return &kCurveKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_curves);
const FastCurveKernels& fast_curve_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_curves), isa);
}
}  // namespace posenc::v0::detail
#endif
