// SPDX-License-Identifier: Apache-2.0
// Rotation of f64 tensors, for every instruction set.
#include "core/isa_table.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotate_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {

void RotateF64(const RotateCall& call, Index begin, Index end) {
  RotateTokens<double>(call, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::detail {

HWY_EXPORT(RotateF64);
RotateKernel rotate_kernel_f64(Isa isa) {
  return isa_entry(HWY_DISPATCH_TABLE(RotateF64), isa);
}

}  // namespace posenc::detail
#endif
