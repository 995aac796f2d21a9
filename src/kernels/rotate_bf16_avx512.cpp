// SPDX-License-Identifier: Apache-2.0
// Rotation of bf16 tensors with AVX512_BF16's conversion (compiled with its own flags: see
// kernels.cmake). 25 us against 48 for 64 tokens in cache.
#include "kernels/rotate.h"

#if defined(__AVX512BF16__)
// One instruction set, chosen by the flags, whatever the other kernels leave out.
#undef HWY_DISABLED_TARGETS
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#include "kernels/rotate-inl.h"

static_assert(HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL);

namespace posenc::detail {
namespace {
void rotate(const RotateCall& call, Index begin, Index end) {
  HWY_NAMESPACE::RotateTokens<NativeBFloat16>(call, begin, end);
}
}  // namespace

RotateKernel rotate_kernel_native_bf16() {
  return &rotate;
}

}  // namespace posenc::detail
#else
namespace posenc::detail {
RotateKernel rotate_kernel_native_bf16();
RotateKernel rotate_kernel_native_bf16() {
  return nullptr;
}
}  // namespace posenc::detail
#endif
