// SPDX-License-Identifier: Apache-2.0
// Compiled with flags of its own (CMakeLists.txt).
#include "multiply_words.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include <cstdint>
#endif

namespace posenc::bench {

#if defined(__AVX512BF16__)
namespace {

// 16 sums: fewer do not cover the latency.
double vectors(std::size_t n) {
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3c003c00));
  __m512 c[16];
  for (int i = 0; i < 16; ++i) c[i] = _mm512_set1_ps(static_cast<float>(i));
  for (std::size_t done = 0; done < n; done += 16 * 32) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      c[i] = _mm512_dpbf16_ps(c[i], a, a);
      __asm__ volatile("" : "+v"(c[i]));
    }
  }
  __m512 sum = c[0];
  for (int i = 1; i < 16; ++i) sum = _mm512_add_ps(sum, c[i]);
  float all[16];
  _mm512_storeu_ps(all, sum);
  return static_cast<double>(all[7]);
}

}  // namespace
double (*multiply_words_by_vectors())(std::size_t n) {
  return vectors;
}
#else
double (*multiply_words_by_vectors())(std::size_t) {
  return nullptr;
}
#endif

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
namespace {

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileShapes kTileShapes;  // gcc's _tile_loadconfig reads eight bytes of other variables
double tiles(std::size_t n) {
  _tile_loadconfig(&kTileShapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::size_t done = 0; done < n; done += 4 * 16 * 16 * 32) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[256];
  _tile_stored(0, sums, 64);
  _tile_release();
  return static_cast<double>(sums[17]);
}

}  // namespace
double (*multiply_words_by_tiles())(std::size_t n) {
  return tiles;
}
#else
double (*multiply_words_by_tiles())(std::size_t) {
  return nullptr;
}
#endif

}  // namespace posenc::bench
