// SPDX-License-Identifier: Apache-2.0
// Composition of f32 tensors with their rows, for every instruction set.
#include "core/isa_table.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compose_f32.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/compose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {

void ComposeF32(const ComposeCall& call, Index begin, Index end) {
  ComposeTokens<float>(call, begin, end);
}
void SumRowsF32(const void* at, const Index* offset, Index count, Index n, double gain,
                double* out) {
  SumRows<float>(at, offset, count, n, gain, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::detail {

HWY_EXPORT(ComposeF32);
HWY_EXPORT(SumRowsF32);
ComposeKernels compose_kernels_f32(Isa isa) {
  return {isa_entry(HWY_DISPATCH_TABLE(ComposeF32), isa),
          isa_entry(HWY_DISPATCH_TABLE(SumRowsF32), isa)};
}

}  // namespace posenc::detail
#endif
