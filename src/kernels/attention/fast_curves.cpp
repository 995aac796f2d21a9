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

#define POSENC_UNROLL _Pragma("GCC unroll 16")

// N vectors of a row, from the line of its first piece: at each knot, the line turns.
template <int N>
HWY_INLINE F CurveVectors(const FastCurve& c, const FastCurveRow& r, Index key, F most) {
  const F inverse = SetF(r.inverse), slope = SetF(c.slope[r.first]), level = SetF(c.level[r.first]);
  F x[N], y[N];
  POSENC_UNROLL for (int n = 0; n < N; ++n) {
    x[n] = MulF(LoadF(r.u + key + n * kLanes), inverse);
    y[n] = MulAddF(x[n], slope, level);
  }
  for (Index k = r.first; k < r.last; ++k) {
    const F less = SetF(-c.knot[k]), more = SetF(c.more[k]);
    POSENC_UNROLL for (int n = 0; n < N; ++n) y[n] =
        MulAddF(MaxF(AddF(x[n], less), SetF(0)), more, y[n]);
  }
  POSENC_UNROLL for (int n = 0; n < N; ++n) {
    StoreF(r.to + key + n * kLanes, y[n]);
    most = MaxF(most, AbsF(y[n]));
  }
  return most;
}
bool Rows(const FastCurve& c, const FastCurveRow* row, Index rows, Index keys,
          float limit) noexcept {
  F most = SetF(0);
  for (Index n = 0; n < rows; ++n) {
    Index key = 0;
    for (; key + 3 * kLanes < keys; key += 4 * kLanes) most = CurveVectors<4>(c, row[n], key, most);
    for (; key < keys; key += kLanes) most = CurveVectors<1>(c, row[n], key, most);
  }
  return AllAtMostF(most, limit);
}

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

#undef POSENC_UNROLL

constexpr FastCurveKernels kCurveKernels{Rows, Sums};

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
