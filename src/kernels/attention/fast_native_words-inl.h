// SPDX-License-Identifier: Apache-2.0
// Words of bfloat16 by AVX512_BF16, of which Highway has no word. In a namespace of each file: the linker must never take
// a function compiled with these flags for one compiled without.
#include "kernels/attention/fast_words-inl.h"

static_assert(HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL);

namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

struct NativeWords {
  static HWY_INLINE F Dot(F sum, W a, W b) {
    return F{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw),
                              reinterpret_cast<__m512bh>(b.raw))};
  }
  static HWY_INLINE W Pair(F first, F second) {
    return W{reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second.raw, first.raw))};
  }
  static HWY_INLINE W Join(F low, F high) {
    // Half 2n is half n of the pair, half 2n + 1 half 16 + n.
    alignas(64) static constexpr std::uint16_t kHalves[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return W{_mm512_permutexvar_epi16(_mm512_load_si512(kHalves), Pair(low, high).raw)};
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
