// SPDX-License-Identifier: Apache-2.0
// Composition of bf16 tensors with their rows, for every instruction set.
#include "core/isa_table.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compose_bf16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/compose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {

void ComposeBF16(const ComposeCall& call, Index begin, Index end) {
  ComposeTokens<BFloat16>(call, begin, end);
}
void SumRowsBF16(const void* at, const Index* offset, Index count, Index n, double gain,
                 double* out) {
  SumRows<BFloat16>(at, offset, count, n, gain, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::detail {

HWY_EXPORT(ComposeBF16);
HWY_EXPORT(SumRowsBF16);
ComposeKernels compose_kernels_bf16(Isa isa) {
  return {isa_entry(HWY_DISPATCH_TABLE(ComposeBF16), isa),
          isa_entry(HWY_DISPATCH_TABLE(SumRowsBF16), isa)};
}

}  // namespace posenc::detail
#endif
