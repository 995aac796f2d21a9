// SPDX-License-Identifier: Apache-2.0
// Strips whose rows count gates, for every instruction set.
#include "kernels/attention/fast_gates.h"

#include <algorithm>
#include <cfloat>

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

// Levels of row r, from the last keys to the first; put(key, level). x: products of q.k.
template <class Put>
HWY_INLINE void LevelRow(const float* x, const float* z, const float* start, const FastGates& g,
                         int r, Index keys, const Put& put) {
  const RowGate gate(g, r, start);
  const F ratio = SetF(g.q == nullptr ? g.ratio : 1);
  if (g.q == nullptr) z = x;
  if (g.levels == nullptr) {
    float run = 0;
    for (Index key = keys - kLanes; key >= 0; key -= kLanes) {
      const F sum = AddBehindF<1>(gate(MulF(LoadF(z + key), ratio), key).value);
      put(key, MulF(AddF(sum, SetF(run)), SetF(g.rise)));
      run += FirstF(sum);
    }
    g.next[r] = g.count[r] + static_cast<double>(run);
    return;
  }
  const RowCount row(g, r, g.count[r]);
  float run = row.first;
  for (Index key = keys - kLanes; key >= 0; key -= kLanes) {
    const F sum = AddBehindF<1>(gate(MulF(LoadF(z + key), ratio), key).value);
    const F c = MinF(AddF(sum, SetF(run)), SetF(row.room));
    put(key, row.level(run, c).value);
    run += FirstF(sum);
  }
  g.next[r] = g.count[r] + (static_cast<double>(run) - static_cast<double>(row.first));
}

// Scores of row r, from the last keys to the first; put(key, score) relative to the base.
template <class Put>
HWY_INLINE void ScoreRow(const FastStrip& s, const FastGates& g, int r, Index keys,
                         const Put& put) {
  const float* x = s.weights + r * kBlockKeys;
  const float* start = s.start == nullptr ? nullptr : s.start[r];
  LevelRow(x, g.products + r * kBlockKeys, start, g, r, keys, [&](Index key, F level) {
    F score = AddF(LoadF(x + key), level);
    if (start != nullptr) score = AddF(score, LoadF(start + key));
    put(key, score);
  });
}

bool GateDecoded(float* x, Index keys, const float* start, const FastGates& g) noexcept {
  const float* z = g.q == nullptr ? x : g.products;
  for (Index key = 0; key < keys; key += kLanes) {
    F product = LoadF(z + key);
    if (start != nullptr) product = ShownF(product, LoadF(start + key));
    if (!AllBelowF(product, FLT_MAX)) return false;
  }
  LevelRow(x, z, start, g, 0, keys,
           [&](Index key, F level) { StoreF(x + key, AddF(LoadF(x + key), level)); });
  return true;
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

// Products of a tile; returns its keys in whole vectors.
template <int R>
HWY_INLINE Index StoreTileProducts(const FastTileKeys& t, const FastTileRows& s,
                                   const FastGateTile& g) {
  const float zeros[R] = {};
  FastTileRows products = s;
  FastTileKeys keys = t;
  products.shift = zeros;
  if (g.gates.q != nullptr) {
    products.q = g.gates.q;
    keys.k = g.gates.k, keys.channels = g.gates.channels, keys.q_width = g.q_width;
  }
  return StoreTiles<R, false>(keys, products, g.start, g.stride);
}

// Sums of gates from the last key of a tile to each key of row r, which put(key, sums, slopes) gets; returns that of all.
template <class Put>
HWY_INLINE float SumRow(const FastTileRows& s, const FastGateTile& g, int r, Index keys,
                        const Put& put) {
  const RowGate gate(g.gates, r, s.start == nullptr ? nullptr : s.start[r]);
  const float* z = g.start + r * g.stride;
  const F ratio = SetF(g.gates.ratio);
  float run = 0;
  for (Index key = keys - kLanes; key >= 0; key -= kLanes) {
    const Gate2 open = gate(MulF(LoadF(z + key), ratio), key);
    const F sum = AddBehindF<1>(open.value);
    put(key, AddF(sum, SetF(run)), open.slope);
    run += FirstF(sum);
  }
  return run;
}

template <int R>
HWY_NOINLINE void AddCounts(const FastTileKeys& t, const FastTileRows& s,
                            const FastGateTile& g) noexcept {
  const Index keys = StoreTileProducts<R>(t, s, g);
  for (int r = 0; r < R; ++r)
    g.count[r] += static_cast<double>(SumRow(s, g, r, keys, [](Index, F, F) {}));
}

// Without levels: start values of row r from its sums.
HWY_INLINE void RiseRow(const FastTileRows& s, const FastGateTile& g, int r, Index keys) {
  const Index line = r * g.stride;
  const F rise = SetF(g.gates.rise);
  for (Index key = 0; key < keys; key += kLanes) {
    const F given = s.start == nullptr ? SetF(0) : LoadF(s.start[r] + key);
    StoreF(g.start + line + key, MulAddF(rise, LoadF(g.at + line + key), given));
    StoreF(g.rise + line + key, rise);
  }
}

template <int R>
HWY_NOINLINE void OpenTile(const FastTileKeys& t, const FastTileRows& s,
                           const FastGateTile& g) noexcept {
  const Index keys = StoreTileProducts<R>(t, s, g);
  for (int r = 0; r < R; ++r) {
    const Index line = r * g.stride;
    float* start = g.start + line;
    g.count[r] -= static_cast<double>(SumRow(s, g, r, keys, [&](Index key, F sums, F slope) {
      StoreF(g.at + line + key, sums);
      StoreF(g.slope + line + key, slope);
    }));
    if (g.gates.levels == nullptr) {
      RiseRow(s, g, r, keys);
      continue;
    }
    const RowCount row(g.gates, r, std::max(0.0, g.count[r]));
    g.whole[r] = row.whole;
    float run = row.first;
    for (Index key = keys - kLanes; key >= 0; key -= kLanes) {
      const F c = MinF(AddF(LoadF(g.at + line + key), SetF(row.first)), SetF(row.room));
      const Level level = row.level(run, c);
      const F given = s.start == nullptr ? SetF(0) : LoadF(s.start[r] + key);
      StoreF(start + key, AddF(given, level.value));
      StoreF(g.rise + line + key, level.rise);
      StoreF(g.at + line + key, c);
      run = FirstF(c);
    }
  }
}

double Pull(float* s, const FastGateTile& g, Index row, Index keys, double running,
            float* d_levels) noexcept {
  const Index line = row * g.stride;
  const float* at = g.at + line;
  for (Index key = 0; g.gates.levels != nullptr && key < keys; ++key) {
    const auto low = static_cast<Index>(at[key]);
    const float high = s[key] * (at[key] - static_cast<float>(low));
    d_levels[low] += s[key] - high;
    d_levels[low + 1] += high;
  }
  const F ratio = SetF(0.693147181f * g.gates.ratio), before = SetF(static_cast<float>(running));
  float run = 0;
  for (Index key = 0; key < keys; key += kLanes) {
    const F x = LoadF(s + key), d = MulF(x, LoadF(g.rise + line + key));
    const F passed = AddF(AddF(AddBeforeF<1>(d), SetF(run)), before);
    const F slope = LoadF(g.slope + line + key);
    if (g.product == nullptr)
      StoreF(s + key, MulAddF(MulF(passed, ratio), slope, x));
    else
      StoreF(g.product + line + key, MulF(MulF(passed, ratio), slope));
    run += SumF(d);
  }
  return running + static_cast<double>(run);
}

constexpr FastGateKernels kGateKernels{{GatedStrip<kStripRows>, GatedStrip<kFewRows>},
                                       {GatedRescale<kStripRows>, GatedRescale<kFewRows>},
                                       GateDecoded,
                                       {AddCounts<kStripRows>, AddCounts<kFewRows>},
                                       {OpenTile<kStripRows>, OpenTile<kFewRows>},
                                       Pull};

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
