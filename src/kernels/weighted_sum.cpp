// SPDX-License-Identifier: Apache-2.0
#include "kernels/weighted_sum.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weighted_sum.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;

HWY_INLINE hn::Vec<D> load(const double* p) {
  return hn::LoadU(D(), p);
}
HWY_INLINE hn::Vec<D> load(const float* p) {
  return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<float, D>(), p));
}
template <class Half>
HWY_INLINE hn::Vec<D> load(const Half* p) {
  return hn::PromoteTo(D(), ReadVector(hn::Rebind<float, D>(), p));
}
HWY_INLINE void store(hn::Vec<D> v, double* p) {
  hn::StoreU(v, D(), p);
}
HWY_INLINE void store(hn::Vec<D> v, float* p) {
#if HWY_TARGET == HWY_SCALAR  // Highway's one lane makes the largest float of infinity
  *p = static_cast<float>(hn::GetLane(v));
#else
  const hn::Rebind<float, D> df;
  hn::StoreU(hn::DemoteTo(df, v), df, p);
#endif
}

// A vector of channels from c on.
template <class In, class Out>
HWY_INLINE void one_vector(const WeightedSum& w, Index c) {
  const D d;
  const auto row = [&](Index k) { return static_cast<const In*>(w.rows[k]) + c; };
  auto sum = hn::Mul(hn::Set(d, w.weight[0]), load(row(0)));
  for (Index k = 1; k < w.taps; ++k) sum = hn::MulAdd(hn::Set(d, w.weight[k]), load(row(k)), sum);
  store(sum, static_cast<Out*>(w.out) + c);
}

// Four at once hide the latency of the sums. (No array of them: vectors of SVE have no size here.)
template <class In, class Out>
HWY_INLINE void four_vectors(const WeightedSum& w, Index c) {
  const D d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto row = [&](Index k) { return static_cast<const In*>(w.rows[k]) + c; };
  const In* from = row(0);
  const auto first = hn::Set(d, w.weight[0]);
  auto a = hn::Mul(first, load(from)), b = hn::Mul(first, load(from + lanes));
  auto e = hn::Mul(first, load(from + 2 * lanes)), f = hn::Mul(first, load(from + 3 * lanes));
  for (Index k = 1; k < w.taps; ++k) {
    from = row(k);
    const auto weight = hn::Set(d, w.weight[k]);
    a = hn::MulAdd(weight, load(from), a);
    b = hn::MulAdd(weight, load(from + lanes), b);
    e = hn::MulAdd(weight, load(from + 2 * lanes), e);
    f = hn::MulAdd(weight, load(from + 3 * lanes), f);
  }
  Out* out = static_cast<Out*>(w.out) + c;
  store(a, out), store(b, out + lanes);
  store(e, out + 2 * lanes), store(f, out + 3 * lanes);
}

template <class In, class Out>
void weighted_sum(const WeightedSum& w) {
  Out* out = static_cast<Out*>(w.out);
  if (w.taps == 0) {
    for (Index c = 0; c < w.width; ++c) out[c] = 0;
    return;
  }
  const auto lanes = static_cast<Index>(hn::Lanes(D()));
  Index c = 0;
  for (; c + 4 * lanes <= w.width; c += 4 * lanes) four_vectors<In, Out>(w, c);
  for (; c + lanes <= w.width; c += lanes) one_vector<In, Out>(w, c);
  if (c == w.width) return;
  // The last few through a buffer of one vector, so that every channel is summed alike.
  HWY_ALIGN In part[hn::MaxLanes(D())] = {};
  HWY_ALIGN Out result[hn::MaxLanes(D())];
  const D d;
  auto sum = hn::Zero(d);
  for (Index k = 0; k < w.taps; ++k) {
    const In* row = static_cast<const In*>(w.rows[k]);
    for (Index i = 0; c + i < w.width; ++i) part[i] = row[c + i];
    const auto weight = hn::Set(d, w.weight[k]);
    sum = k == 0 ? hn::Mul(weight, load(part)) : hn::MulAdd(weight, load(part), sum);
  }
  store(sum, result);
  for (Index i = 0; c + i < w.width; ++i) out[c + i] = result[i];
}

constexpr WeightedSumKernels kKernels{
    weighted_sum<double, double>, weighted_sum<double, float>,   weighted_sum<float, double>,
    weighted_sum<float, float>,   weighted_sum<Float16, double>, weighted_sum<BFloat16, double>};
}  // namespace

const WeightedSumKernels* table_of_weighted_sum() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_weighted_sum);
const WeightedSumKernels& weighted_sum_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_weighted_sum), isa);
}
}  // namespace posenc::v0::detail
#endif
