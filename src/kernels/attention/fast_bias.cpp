// SPDX-License-Identifier: Apache-2.0
// Rows of a dense bias in the fast attention engine, for every instruction set.
#include "kernels/attention/fast_bias.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_bias.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

constexpr float kLog2E = 1.44269504f;

// Keys from `n` on, one by one: what is left after whole vectors.
HWY_INLINE bool LargestOfRest(const FastBiasRow& r, Index n, float most, float& largest) {
  bool bounded = true;
  for (; n < r.count; ++n) {
    if (r.hidden != nullptr && r.hidden[n] != 0) continue;
    bounded = bounded && r.bias[n] <= most;
    largest = r.bias[n] > largest ? r.bias[n] : largest;
  }
  return bounded;
}
HWY_INLINE void WriteRest(const FastBiasRow& r, Index n, float by, float least, float* to) {
  for (; n < r.count; ++n) {
    const float x = (r.bias[n] - by) * kLog2E;
    to[n] = (x > least ? x : least) + (r.line == nullptr ? 0 : r.line[n]);
    if (r.bias[n] == -HUGE_VALF || (r.hidden != nullptr && r.hidden[n] != 0)) to[n] = -HUGE_VALF;
  }
}

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR
bool Largest(const FastBiasRow& r, float most, float& largest) noexcept {
  largest = -HUGE_VALF;
  return LargestOfRest(r, 0, most, largest);
}
void Write(const FastBiasRow& r, float by, float least, float* to) noexcept {
  WriteRest(r, 0, by, least, to);
}
#else
template <bool kHidden>
HWY_INLINE F ShownOr(const FastBiasRow& r, Index n, F x, F hidden) {
  if constexpr (!kHidden) return x;
  return hn::IfThenElse(hn::Eq(LoadF(r.hidden + n), SetF(0)), x, hidden);
}
template <bool kHidden>
bool LargestOf(const FastBiasRow& r, float most, float& largest) {
  const F none = SetF(-HUGE_VALF), limit = SetF(most);
  F top[2] = {none, none};
  auto bounded = hn::Le(none, limit);
  Index n = 0;
  const auto take = [&](Index at, F& to) {
    const F x = ShownOr<kHidden>(r, at, LoadF(r.bias + at), none);
    bounded = hn::And(bounded, hn::Le(x, limit));
    to = MaxF(to, x);
  };
  for (; n + 2 * kLanes <= r.count; n += 2 * kLanes) take(n, top[0]), take(n + kLanes, top[1]);
  for (; n + kLanes <= r.count; n += kLanes) take(n, top[0]);
  largest = LargestF(MaxF(top[0], top[1]));
  const bool rest = LargestOfRest(r, n, most, largest);
  return rest && hn::AllTrue(FTag(), bounded);
}
template <bool kHidden, bool kLine>
void WriteOf(const FastBiasRow& r, float by, float least, float* to) {
  Index n = 0;
  for (; n + kLanes <= r.count; n += kLanes) {
    const F bias = LoadF(r.bias + n);
    F x = MaxF(MulF(AddF(bias, SetF(-by)), SetF(kLog2E)), SetF(least));
    if constexpr (kLine) x = AddF(x, LoadF(r.line + n));
    StoreF(to + n, ShownOr<kHidden>(r, n, HideF(x, bias), SetF(-HUGE_VALF)));
  }
  WriteRest(r, n, by, least, to);
}
bool Largest(const FastBiasRow& r, float most, float& largest) noexcept {
  return r.hidden == nullptr ? LargestOf<false>(r, most, largest)
                             : LargestOf<true>(r, most, largest);
}
void Write(const FastBiasRow& r, float by, float least, float* to) noexcept {
  if (r.hidden == nullptr)
    r.line == nullptr ? WriteOf<false, false>(r, by, least, to)
                      : WriteOf<false, true>(r, by, least, to);
  else
    r.line == nullptr ? WriteOf<true, false>(r, by, least, to)
                      : WriteOf<true, true>(r, by, least, to);
}
#endif

constexpr FastBiasKernels kBiasKernels{Largest, Write};

}  // namespace

const FastBiasKernels* table_of_fast_bias() {
  return &kBiasKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_bias);
const FastBiasKernels& fast_bias_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_bias), isa);
}
}  // namespace posenc::v0::detail
#endif
