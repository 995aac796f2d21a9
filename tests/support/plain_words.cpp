// SPDX-License-Identifier: Apache-2.0
// Compiled for one target, AVX2 or NEON (tests/CMakeLists.txt). Panels of NEON are narrower than a tile.
#include "support/plain_words.h"

#include <algorithm>

#undef HWY_DISABLED_TARGETS
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
#if HWY_TARGET == HWY_AVX2
#include "kernels/attention/fast_word_tiles-inl.h"
#endif
#include "kernels/attention/fast_word_slopes-inl.h"

namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

constexpr WordKernels kPlainVectors = vector_word_kernels<PlainWords>("of bf16 by vectors (plain)");
constexpr WordSlopeKernels kPlainSlopes =
    vector_word_slopes<PlainWords>("of bf16 by vectors (plain)");
#if HWY_TARGET == HWY_AVX2
constexpr WordKernels kPlainTiles =
    tile_word_kernels<PlainTiles, PlainWords>("of bf16 by tiles (plain)");
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail

namespace posenc::test {

Isa isa_of_plain_words() noexcept {
  return HWY_TARGET == HWY_AVX2 ? Isa::avx2 : Isa::neon;
}
namespace {
template <class Kernels>
const Kernels* where_they_run(const Kernels& k) noexcept {
  const std::vector<Isa> all = supported_isas();
  return std::find(all.begin(), all.end(), isa_of_plain_words()) == all.end() ? nullptr : &k;
}
}  // namespace
const detail::WordKernels* plain_words_of_vectors() noexcept {
  return where_they_run(detail::HWY_NAMESPACE::kPlainVectors);
}
const detail::WordSlopeKernels* plain_word_slopes() noexcept {
  return where_they_run(detail::HWY_NAMESPACE::kPlainSlopes);
}
const detail::WordKernels* plain_words_of_tiles() noexcept {
#if HWY_TARGET == HWY_AVX2
  return where_they_run(detail::HWY_NAMESPACE::kPlainTiles);
#else
  return nullptr;
#endif
}

}  // namespace posenc::test
#else
namespace posenc::test {

Isa isa_of_plain_words() noexcept {
  return Isa::scalar;
}
const detail::WordKernels* plain_words_of_vectors() noexcept {
  return nullptr;
}
const detail::WordKernels* plain_words_of_tiles() noexcept {
  return nullptr;
}
const detail::WordSlopeKernels* plain_word_slopes() noexcept {
  return nullptr;
}

}  // namespace posenc::test
#endif
