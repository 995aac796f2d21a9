// SPDX-License-Identifier: Apache-2.0
// Composition of bf16 tensors with AVX512_BF16's conversion (compiled with its own flags: see
// kernels.cmake).
#include "kernels/compose.h"

#if defined(__AVX512BF16__)
// One instruction set, chosen by the flags, whatever the other kernels leave out.
#undef HWY_DISABLED_TARGETS
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#include "kernels/compose-inl.h"

static_assert(HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL);

namespace posenc::detail {
namespace {
void compose(const ComposeCall& call, Index begin, Index end) {
  HWY_NAMESPACE::ComposeTokens<NativeBFloat16>(call, begin, end);
}
}  // namespace

ComposeKernel compose_kernel_native_bf16() {
  return &compose;
}

}  // namespace posenc::detail
#else
namespace posenc::detail {
ComposeKernel compose_kernel_native_bf16();
ComposeKernel compose_kernel_native_bf16() {
  return nullptr;
}
}  // namespace posenc::detail
#endif
