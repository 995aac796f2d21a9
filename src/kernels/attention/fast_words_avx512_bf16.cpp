// SPDX-License-Identifier: Apache-2.0
// Strips of bfloat16 by AVX512_BF16: vdpbf16ps multiplies pairs. Compiled with flags of its own (kernels.cmake).
#include "kernels/attention/fast_words.h"

#if defined(__AVX512BF16__)
#undef HWY_DISABLED_TARGETS
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#include "kernels/attention/fast_native_words-inl.h"

namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

constexpr WordKernels kVectorWords =
    vector_word_kernels<NativeWords>("of bf16 by vectors (AVX512_BF16)");

}  // namespace
}  // namespace HWY_NAMESPACE

const WordKernels* word_kernels_avx512_bf16() noexcept {
  return &HWY_NAMESPACE::kVectorWords;
}

}  // namespace posenc::v0::detail
#else
namespace posenc::inline v0::detail {

const WordKernels* word_kernels_avx512_bf16() noexcept {
  return nullptr;
}

}  // namespace posenc::v0::detail
#endif
