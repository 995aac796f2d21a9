// SPDX-License-Identifier: Apache-2.0
// Gates of a vector of keys, their sums from right to left, and levels between two neighbours (fast_gates.h).
#include "kernels/attention/fast_products-inl.h"

#if defined(POSENC_KERNELS_FAST_GATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_FAST_GATES_INL_H_
#undef POSENC_KERNELS_FAST_GATES_INL_H_
#else
#define POSENC_KERNELS_FAST_GATES_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {

#if HWY_HAVE_SCALABLE
HWY_INLINE F MinF(F a, F b) {
  return a < b ? a : b;
}
HWY_INLINE F DivF(F a, F b) {
  return a / b;
}
// x where the start value does not hide the key, else 0.
HWY_INLINE F ShownF(F x, F start) {
  return start == -HUGE_VALF ? 0 : x;
}
HWY_INLINE F WithoutLaneF(F, Index) {
  return 0;
}
HWY_INLINE float FirstF(F x) {
  return x;
}
#else
HWY_INLINE F MinF(F a, F b) {
  return hn::Min(a, b);
}
HWY_INLINE F DivF(F a, F b) {
  return hn::Div(a, b);
}
HWY_INLINE F ShownF(F x, F start) {
  return hn::IfThenZeroElse(hn::Eq(start, SetF(-HUGE_VALF)), x);
}
// x with 0 in one lane.
HWY_INLINE F WithoutLaneF(F x, Index lane) {
  return hn::IfThenZeroElse(hn::Eq(hn::Iota(FTag(), 0.0f), SetF(static_cast<float>(lane))), x);
}
HWY_INLINE float FirstF(F x) {
  return hn::GetLane(x);
}
#endif

// 1 / (1 + 2^-x); gates below 2^-64 count as that.
HWY_INLINE F SigmoidF(F x) {
  const F one = SetF(1.0f);
  return DivF(one, AddF(one, Exp2F(MinF(MulF(x, SetF(-1.0f)), SetF(64.0f)))));
}

// y_n = x_n + x_{n + 1} + ...
template <int kStep>
HWY_INLINE F AddBehindF(F x) {
#if !HWY_HAVE_SCALABLE
  if constexpr (kStep < kLanes) {
    const hn::RebindToSigned<FTag> di;
    const auto lane = hn::And(hn::Iota(di, kStep), hn::Set(di, static_cast<int>(kLanes - 1)));
    const F moved = hn::TableLookupLanes(x, hn::IndicesFromVec(FTag(), lane));
    const auto inside = hn::FirstN(FTag(), static_cast<std::size_t>(kLanes - kStep));
    return AddBehindF<2 * kStep>(AddF(x, hn::IfThenElseZero(inside, moved)));
  }
#endif
  return x;
}

// Levels at c, which lies between `low` and low + lanes + 1: from two vectors of levels and of what follows them.
HWY_INLINE F LevelF(const float* levels, Index low, F c) {
  if constexpr (kLanes == 1) {
    const float at = FirstF(c);
    const auto n = static_cast<Index>(at);
    return SetF(levels[n] + (at - static_cast<float>(n)) * (levels[n + 1] - levels[n]));
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
    return MulAddF(rest, hn::Sub(next, level), level);
#endif
  }
}

// What gates add to the scores of one row. Counts are taken relative to the whole number below that of the keys behind.
class RowGates {
 public:
  RowGates(const FastGates& g, int r)
      : behind_(std::min(g.count[r], static_cast<double>(g.last))),
        whole_(static_cast<Index>(behind_)),
        run_(static_cast<float>(behind_ - static_cast<double>(whole_))),
        levels_(g.levels + r * g.level_stride + whole_),
        room_(static_cast<float>(g.last - whole_)),
        first_(run_),
        own_(g.own == nullptr ? -1 : g.own[r]) {}

  // Of the gates z of a vector of keys, from the last one to the first; start null: 0.
  HWY_INLINE F operator()(F z, Index key, const float* start) {
    F gate = SigmoidF(z);
    if (start != nullptr) gate = ShownF(gate, LoadF(start + key));
    if (HWY_UNLIKELY(own_ >= key && own_ < key + kLanes)) gate = WithoutLaneF(gate, own_ - key);
    const F sum = AddBehindF<1>(gate);
    const auto low = static_cast<Index>(std::min(run_, room_));
    const F level = LevelF(levels_, low, MinF(AddF(sum, SetF(run_)), SetF(room_)));
    run_ += FirstF(sum);
    return level;
  }
  double count(double behind) const {
    return behind + (static_cast<double>(run_) - static_cast<double>(first_));
  }

 private:
  double behind_;
  Index whole_;
  float run_;
  const float* levels_;
  float room_, first_;
  Index own_;
};

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
