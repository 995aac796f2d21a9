// SPDX-License-Identifier: Apache-2.0
// Gates of a vector of keys, and levels between two neighbours (fast_gates.h).
#include "kernels/attention/fast_gates.h"

#if defined(POSENC_KERNELS_FAST_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_GATES_INL_H_
#undef POSENC_KERNELS_FAST_GATES_INL_H_
#else
#define POSENC_KERNELS_FAST_GATES_INL_H_
#endif
#include "kernels/attention/fast_scans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

// 1 / (1 + 2^-x) and its slope by x / log2(e); gates below 2^-64 count as that.
struct Gate2 {
  F value, slope;
};
HWY_INLINE Gate2 SigmoidF(F x) {
  const F one = SetF(1.0f), shut = Exp2F(MinF(MulF(x, SetF(-1.0f)), SetF(64.0f)));
  const F value = DivF(one, AddF(one, shut));
  return {value, MulF(MulF(shut, value), value)};
}

// log2 of that, and the slope by x / log2(e).
HWY_INLINE Gate2 LogSigmoidF(F x) {
  const F shut = MulF(x, SetF(-1.0f));
  return {MulF(LeaveF(shut), SetF(-1.0f)), MulF(SigmoidF(shut).value, SetF(1.44269504f))};
}

// Levels at c, which lies between `low` and low + lanes + 1: from two vectors of levels and of what follows them. `rise`
// to the next level; 0 at a whole c, where both are one.
struct Level {
  F value, rise;
};
HWY_INLINE Level LevelF(const float* levels, Index low, F c) {
  if constexpr (kLanes == 1) {
    const float at = FirstF(c);
    const auto n = static_cast<Index>(at);
    const float rest = at - static_cast<float>(n), rise = levels[n + 1] - levels[n];
    return {SetF(levels[n] + rest * rise), SetF(rest == 0 ? 0 : rise)};
  } else {
#if !HWY_HAVE_SCALABLE
    const hn::RebindToSigned<FTag> di;
    const auto floor = hn::ConvertTo(di, c), n = hn::Sub(floor, hn::Set(di, static_cast<int>(low)));
    const auto last_lane = hn::Set(di, static_cast<int>(kLanes - 1));
    const auto index = hn::IndicesFromVec(FTag(), hn::And(n, last_lane));
    const float* from = levels + low;
    F level = hn::TableLookupLanes(LoadF(from), index);
    F next = hn::TableLookupLanes(LoadF(from + 1), index);
    const auto second = hn::RebindMask(FTag(), hn::Gt(n, last_lane));
    if (HWY_UNLIKELY(!hn::AllFalse(FTag(), second))) {
      level = hn::IfThenElse(second, hn::TableLookupLanes(LoadF(from + kLanes), index), level);
      next = hn::IfThenElse(second, hn::TableLookupLanes(LoadF(from + kLanes + 1), index), next);
    }
    const F rest = hn::Sub(c, hn::ConvertTo(FTag(), floor));
    const F rise = hn::IfThenZeroElse(hn::Eq(rest, SetF(0)), hn::Sub(next, level));
    return {MulAddF(rest, rise, level), rise};
#endif
  }
}

// Gates of one row, of a vector of keys. start null: none is hidden.
struct RowGate {
  RowGate(const FastGates& g, int r, const float* start_values)
      : start(start_values), own(g.own == nullptr ? -1 : g.own[r]), logarithm(g.logarithm) {}
  HWY_INLINE Gate2 operator()(F z, Index key) const {
    Gate2 gate = logarithm ? LogSigmoidF(z) : SigmoidF(z);
    if (start != nullptr) {
      const F y = LoadF(start + key);
      gate = {ShownF(gate.value, y), ShownF(gate.slope, y)};
    }
    if (HWY_UNLIKELY(own >= key && own < key + kLanes))
      gate = {WithoutLaneF(gate.value, own - key), WithoutLaneF(gate.slope, own - key)};
    return gate;
  }
  const float* start;
  Index own;
  bool logarithm;
};

// Where a row stands on its levels, if it has any. Counts are taken relative to the whole number below that of the keys
// behind.
struct RowCount {
  RowCount(const FastGates& g, int r, double count) {
    const double behind = std::min(count, static_cast<double>(g.last));
    whole = static_cast<Index>(behind);
    first = static_cast<float>(behind - static_cast<double>(whole));
    room = static_cast<float>(g.last - whole);
    levels = g.levels + r * g.level_stride + whole;
  }
  // `from`: beyond `whole`, no more than any c.
  HWY_INLINE Level level(float from, F c) const {
    return LevelF(levels, static_cast<Index>(std::min(from, room)), c);
  }
  Index whole;
  float first, room;
  const float* levels;
};

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
