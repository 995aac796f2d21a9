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
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
