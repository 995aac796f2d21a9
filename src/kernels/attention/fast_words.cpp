// SPDX-License-Identifier: Apache-2.0
// Which machine multiplies pairs of bfloat16, and by what.
#include "kernels/attention/fast_word_slopes.h"

#include <atomic>

#include "core/isa_table.h"

namespace posenc::inline v0::detail {
namespace {

std::atomic<const WordKernels*> replacement{nullptr};
std::atomic<const WordSlopeKernels*> slopes_replacement{nullptr};

}  // namespace

const WordKernels* usable_words(Isa isa, bool tiles) noexcept {
  const CpuFeatures usable = usable_features(isa);
  if (!usable.include({CpuFeature::avx512_bf16})) return nullptr;
  if (!tiles) return word_kernels_avx512_bf16();
  return usable.include({CpuFeature::amx_bf16}) && may_use_tiles() ? word_kernels_amx_bf16()
                                                                   : nullptr;
}

const WordKernels* word_kernels(Isa isa) noexcept {
  if (const WordKernels* k = replacement.load(std::memory_order_relaxed)) return k;
  const WordKernels* tiles = usable_words(isa, true);
  return tiles != nullptr ? tiles : usable_words(isa, false);
}

const WordSlopeKernels* usable_word_slopes(Isa isa) noexcept {
  return usable_features(isa).include({CpuFeature::avx512_bf16}) ? word_slope_kernels_avx512_bf16()
                                                                 : nullptr;
}
const WordSlopeKernels* word_slope_kernels(Isa isa) noexcept {
  const WordSlopeKernels* k = slopes_replacement.load(std::memory_order_relaxed);
  return k != nullptr ? k : usable_word_slopes(isa);
}

void replace_word_kernels(const WordKernels* k) noexcept {
  replacement.store(k, std::memory_order_relaxed);
}
void replace_word_slopes(const WordSlopeKernels* k) noexcept {
  slopes_replacement.store(k, std::memory_order_relaxed);
}

}  // namespace posenc::v0::detail
