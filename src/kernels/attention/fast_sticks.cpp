// SPDX-License-Identifier: Apache-2.0
// Strips of stick-breaking, for every instruction set.
#include "kernels/attention/fast_sticks.h"

#include <algorithm>

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_sticks.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_scans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

// Sums of y from each key on, of one row, without what is left behind the block; put(key, x, sums). Returns that of all.
template <class Put>
HWY_INLINE float SumRow(const float* x, Index keys, F& largest, const Put& put) {
  float run = 0;
  for (Index key = keys - kLanes; key >= 0; key -= kLanes) {
    const F score = LoadF(x + key);
    largest = MaxF(largest, score);
    const F sum = AddBehindF<1>(LeaveF(score));
    put(key, score, AddF(sum, SetF(run)));
    run += FirstF(sum);
  }
  return run;
}

template <int R, bool kStart, bool kValues>
HWY_NOINLINE bool StickStrip(const FastBlock& b, const FastStrip& s, const FastStick& t) noexcept {
  const Index keys = StoreExponents<R, kStart>(b, s);
  F largest = SetF(-HUGE_VALF);
  float sums[R];
  for (int r = 0; r < R; ++r) {
    float* x = s.weights + r * kBlockKeys;
    const F left = SetF(static_cast<float>(std::max(t.left[r], -1000.0)));
    sums[r] = SumRow(x, keys, largest, [&](Index key, F score, F sum) {
      // The score minus its own y is at most 0.
      if constexpr (kValues)
        StoreF(x + key, Exp2F(AddF(AddF(score, MulF(sum, SetF(-1.0f))), left)));
    });
  }
  if (HWY_UNLIKELY(!AllAtMostF(largest, kLargestScore))) return false;
  for (int r = 0; r < R; ++r) t.left[r] -= static_cast<double>(sums[r]);
  if constexpr (kValues) AddValues<R>(b, s);
  return true;
}

bool StickDecoded(const FastDecodeRow& r, double& left) noexcept {
  const F base = SetF(static_cast<float>(r.base));
  bool usable = true;
  Index end = 0;
  for (; end < r.keys; end += kLanes) {
    F score = AddF(LoadF(r.x + end), base);
    if (r.start != nullptr) {
      const F start = LoadF(r.start + end);
      score = AddF(score, start);
      usable = usable && AllBelowF(ShownF(score, start), kLargestScore);
      score = HideF(score, start);
    } else {
      usable = usable && AllBelowF(score, kLargestScore);
    }
    StoreF(r.x + end, score);
  }
  if (!usable) return false;
  F largest = SetF(-HUGE_VALF);
  const F behind = SetF(static_cast<float>(std::max(left, -1000.0)));
  left -= static_cast<double>(SumRow(r.x, end, largest, [&](Index key, F score, F sum) {
    StoreF(r.x + key, Exp2F(AddF(AddF(score, MulF(sum, SetF(-1.0f))), behind)));
  }));
  std::fill(r.x + end, r.x + kDecodeKeys, 0.0f);
  return true;
}

// Scores of a tile; returns its keys in whole vectors.
template <int R>
HWY_INLINE Index StoreTileScores(const FastTileKeys& t, const FastTileRows& s,
                                 const FastStickTile& to) {
  return s.start == nullptr ? StoreTiles<R, false>(t, s, to.start, to.stride)
                            : StoreTiles<R, true>(t, s, to.start, to.stride);
}

template <int R>
HWY_NOINLINE void AddLeft(const FastTileKeys& t, const FastTileRows& s,
                          const FastStickTile& to) noexcept {
  const Index keys = StoreTileScores<R>(t, s, to);
  F largest = SetF(0);
  for (int r = 0; r < R; ++r)
    to.left[r] -=
        static_cast<double>(SumRow(to.start + r * to.stride, keys, largest, [](Index, F, F) {}));
}

template <int R>
HWY_NOINLINE void OpenTile(const FastTileKeys& t, const FastTileRows& s,
                           const FastStickTile& to) noexcept {
  const Index keys = StoreTileScores<R>(t, s, to);
  F largest = SetF(0);
  for (int r = 0; r < R; ++r) {
    float* start = to.start + r * to.stride;
    to.left[r] += static_cast<double>(SumRow(start, keys, largest, [&](Index key, F x, F sum) {
      StoreF(to.share + r * to.stride + key, Exp2F(AddF(x, MulF(LeaveF(x), SetF(-1.0f)))));
      StoreF(start + key, sum);
    }));
    const F left = SetF(static_cast<float>(std::clamp(to.left[r], -1000.0, 0.0)));
    const F shift = SetF(s.shift[r]);
    for (Index key = 0; key < keys; key += kLanes) {
      const F given = s.start == nullptr ? shift : AddF(LoadF(s.start[r] + key), shift);
      StoreF(start + key, AddF(given, AddF(left, MulF(LoadF(start + key), SetF(-1.0f)))));
    }
  }
}

double Pull(float* s, const float* share, Index keys, double running) noexcept {
  const F before = SetF(static_cast<float>(running));
  float run = 0;
  for (Index key = 0; key < keys; key += kLanes) {
    const F x = LoadF(s + key);
    const F sum = AddF(AddF(AddBeforeF<1>(x), SetF(run)), before);
    StoreF(s + key, MulAddF(MulF(sum, SetF(-1.0f)), LoadF(share + key), x));
    run += SumF(x);
  }
  return running + static_cast<double>(run);
}

constexpr FastStickKernels kStickKernels{
    {{StickStrip<kStripRows, false, true>, StickStrip<kStripRows, true, true>},
     {StickStrip<kFewRows, false, true>, StickStrip<kFewRows, true, true>}},
    {{StickStrip<kStripRows, false, false>, StickStrip<kStripRows, true, false>},
     {StickStrip<kFewRows, false, false>, StickStrip<kFewRows, true, false>}},
    StickDecoded,
    {AddLeft<kStripRows>, AddLeft<kFewRows>},
    {OpenTile<kStripRows>, OpenTile<kFewRows>},
    Pull};

}  // namespace

const FastStickKernels* table_of_fast_sticks() {
  return &kStickKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast_sticks);
const FastStickKernels& fast_stick_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast_sticks), isa);
}
}  // namespace posenc::v0::detail
#endif
