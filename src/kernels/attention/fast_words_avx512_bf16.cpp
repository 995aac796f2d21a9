// SPDX-License-Identifier: Apache-2.0
// Strips and tiles of bfloat16 by AVX512_BF16: vdpbf16ps multiplies pairs. Compiled with flags of its own (kernels.cmake).
#include "kernels/attention/fast_word_slopes.h"

#if defined(__AVX512BF16__)
#undef HWY_DISABLED_TARGETS
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#include "kernels/attention/fast_native_words-inl.h"
#include "kernels/attention/fast_word_slopes-inl.h"

namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

constexpr WordKernels kVectorWords =
    vector_word_kernels<NativeWords>("of bf16 by vectors (AVX512_BF16)");
constexpr WordSlopeKernels kVectorSlopes =
    vector_word_slopes<NativeWords>("of bf16 by vectors (AVX512_BF16)");

}  // namespace
}  // namespace HWY_NAMESPACE

const WordKernels* word_kernels_avx512_bf16() noexcept {
  return &HWY_NAMESPACE::kVectorWords;
}
const WordSlopeKernels* word_slope_kernels_avx512_bf16() noexcept {
  return &HWY_NAMESPACE::kVectorSlopes;
}

}  // namespace posenc::v0::detail
#else
namespace posenc::inline v0::detail {

const WordKernels* word_kernels_avx512_bf16() noexcept {
  return nullptr;
}
const WordSlopeKernels* word_slope_kernels_avx512_bf16() noexcept {
  return nullptr;
}

}  // namespace posenc::v0::detail
#endif
