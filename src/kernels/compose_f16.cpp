// SPDX-License-Identifier: Apache-2.0
// Composition of f16 tensors with their rows, for every instruction set.
#include "core/isa_table.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compose_f16.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/compose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {

void ComposeF16(const ComposeCall& call, Index begin, Index end) {
  ComposeTokens<Float16>(call, begin, end);
}
void SumRowsF16(const void* at, const Index* offset, Index count, Index n, double gain,
                double* out) {
  SumRows<Float16>(at, offset, count, n, gain, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::detail {

HWY_EXPORT(ComposeF16);
HWY_EXPORT(SumRowsF16);
ComposeKernels compose_kernels_f16(Isa isa) {
  return {isa_entry(HWY_DISPATCH_TABLE(ComposeF16), isa),
          isa_entry(HWY_DISPATCH_TABLE(SumRowsF16), isa)};
}

}  // namespace posenc::detail
#endif
