// SPDX-License-Identifier: Apache-2.0
// Rows of sines at consecutive positions by recurrence from exact ones, channel by channel.
#include <type_traits>

#include "kernels/compose_recurrence_plain-inl.h"
#include "kernels/compose_recurrence_vectors-inl.h"

#if defined(POSENC_KERNELS_COMPOSE_WALK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_COMPOSE_WALK_INL_H_
#undef POSENC_KERNELS_COMPOSE_WALK_INL_H_
#else
#define POSENC_KERNELS_COMPOSE_WALK_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
template <class T>
using RecurrenceOf = std::conditional_t<sizeof(T) == 4, DoubleRecurrence, FloatRecurrence>;

// Whether the plan has prepared a phase for the recurrence.
template <class T>
HWY_INLINE bool HasRecurrence(const ComposeSource& s) {
  return RotationOf<typename RecurrenceOf<T>::Start>(s).by_one.cosine != nullptr;
}
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();
#endif
