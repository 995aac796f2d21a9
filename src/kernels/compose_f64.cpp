// SPDX-License-Identifier: Apache-2.0
// Composition of f64 tensors with their rows, for every instruction set.
#include "core/isa_table.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compose_f64.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/compose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::detail {
namespace HWY_NAMESPACE {

void ComposeF64(const ComposeCall& call, Index begin, Index end) {
  ComposeTokens<double>(call, begin, end);
}
void SumRowsF64(const void* at, const Index* offset, Index count, Index n, double gain,
                double* out) {
  SumRows<double>(at, offset, count, n, gain, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::detail {

HWY_EXPORT(ComposeF64);
HWY_EXPORT(SumRowsF64);
ComposeKernels compose_kernels_f64(Isa isa) {
  return {isa_entry(HWY_DISPATCH_TABLE(ComposeF64), isa),
          isa_entry(HWY_DISPATCH_TABLE(SumRowsF64), isa)};
}

}  // namespace posenc::detail
#endif
