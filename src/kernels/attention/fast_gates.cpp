// SPDX-License-Identifier: Apache-2.0
// Strips whose rows count gates, for every instruction set.
#include "kernels/attention/fast_gates.h"

#include <algorithm>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_gates.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

// Products of q and k to `weights`, and those of the gates to their memory; returns the keys in whole vectors.
template <int R>
HWY_INLINE Index StoreProducts(const FastBlock& b, const FastStrip& s, const FastGates& g) {
  if (g.q != nullptr) {
    FastBlock keys;
    keys.k = g.k, keys.channels = g.channels;
    FastStrip rows;
    rows.q = g.q, rows.weights = g.products, rows.keys = s.keys;
    StoreScores<R, false>(keys, rows);
  }
  return StoreScores<R, false>(b, s);
}

// Scores of row r, from the last keys to the first; put(key, score) relative to the base.
template <class Put>
HWY_INLINE void ScoreRow(const FastStrip& s, const FastGates& g, int r, Index keys,
                         const Put& put) {
  RowGates gates(g, r);
  const float* x = s.weights + r * kBlockKeys;
  const float* z = g.q == nullptr ? x : g.products + r * kBlockKeys;
  const float* start = s.start == nullptr ? nullptr : s.start[r];
  const F ratio = SetF(g.q == nullptr ? g.ratio : 1);
  for (Index key = keys - kLanes; key >= 0; key -= kLanes) {
    F score = AddF(LoadF(x + key), gates(MulF(LoadF(z + key), ratio), key, start));
    if (start != nullptr) score = AddF(score, LoadF(start + key));
    put(key, score);
  }
  g.next[r] = gates.count(g.count[r]);
}

template <int R>
HWY_NOINLINE bool GatedStrip(const FastBlock& b, const FastStrip& s, const FastGates& g) noexcept {
  const Index keys = StoreProducts<R>(b, s, g);
  F largest = SetF(-127.0f), sums[R];
  for (int r = 0; r < R; ++r) {
    const F shift = SetF(s.shift[r]);
    F sum = LoadF(s.sums + r * kLanes);
    ScoreRow(s, g, r, keys, [&](Index key, F score) {
      const F exponent = AddF(score, shift), p = Exp2F(exponent);
      largest = MaxF(largest, exponent);
      StoreF(s.weights + r * kBlockKeys + key, p);
      sum = AddF(sum, p);
    });
    sums[r] = sum;
  }
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestExponent))) return false;
  for (int r = 0; r < R; ++r) StoreF(s.sums + r * kLanes, sums[r]);
  AddValues<R>(b, s);
  return true;
}

template <int R>
HWY_NOINLINE bool GatedRescale(const FastBlock& b, const FastStrip& s,
                               const FastGates& g) noexcept {
  const Index keys = StoreProducts<R>(b, s, g);
  bool usable = true;
  for (int r = 0; r < R; ++r) {
    ScoreRow(s, g, r, keys,
             [&](Index key, F score) { StoreF(s.weights + r * kBlockKeys + key, score); });
    usable = RescaleRow<R>(b, s, r, keys) && usable;
  }
  AddValues<R>(b, s);
  return usable;
}

constexpr FastGateKernels kGateKernels{{GatedStrip<kStripRows>, GatedStrip<kFewRows>},
                                       {GatedRescale<kStripRows>, GatedRescale<kFewRows>}};

}  // namespace

const FastGateKernels* table_of_fast_gates() {
  return &kGateKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_gates);
const FastGateKernels& fast_gate_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_gates), isa);
}
}  // namespace posenc::v0::detail
#endif
