// SPDX-License-Identifier: Apache-2.0
// Strips of bfloat16 by AMX: tdpbf16ps multiplies tiles of 16 rows and 16 columns. Compiled with flags of its own
// (kernels.cmake).
#include "kernels/attention/fast_words.h"

#if defined(__AVX512BF16__) && defined(__AMX_BF16__) && defined(__AMX_TILE__)
#undef HWY_DISABLED_TARGETS
#define HWY_COMPILE_ONLY_STATIC 1
#include <hwy/highway.h>

#include "kernels/attention/fast_native_words-inl.h"
#include "kernels/attention/fast_word_tiles-inl.h"

namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

// All eight tiles are 16 rows of 64 bytes.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileShapes) == 64);
// In memory of the program: gcc's _tile_loadconfig tells the compiler of the first eight bytes alone.
constexpr TileShapes kTileShapes;

// Tiles 0 to 3 are sums: rows, then columns. 4 and 5 are rows of a, 6 and 7 columns of b.
struct NativeTiles {
  template <int kRows, int kColumns>
  static HWY_INLINE void Multiply(const TileProduct& t) {
    const Index c_bytes = t.c_width * 4, a_bytes = t.a_width * 4, b_bytes = kPanel * 4;
    const Index lower = kTileSize * t.c_width;
    // gcc's _tile_loadd does not tell the compiler that it reads memory.
    __asm__ volatile("" ::: "memory");
    if (t.adds) {
      _tile_loadd(0, t.c, c_bytes);
      if constexpr (kColumns == 2) _tile_loadd(1, t.c_next, c_bytes);
      if constexpr (kRows == 2) _tile_loadd(2, t.c + lower, c_bytes);
      if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, t.c_next + lower, c_bytes);
    } else {
      _tile_zero(0);
      if constexpr (kColumns == 2) _tile_zero(1);
      if constexpr (kRows == 2) _tile_zero(2);
      if constexpr (kRows == 2 && kColumns == 2) _tile_zero(3);
    }
    for (Index k = 0; k < t.words; k += kTileSize) {
      _tile_loadd(4, t.a + k, a_bytes);
      _tile_loadd(6, t.b + k * kPanel, b_bytes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kColumns == 2) {
        _tile_loadd(7, t.b_next + k * kPanel, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (kRows == 2) {
        _tile_loadd(5, t.a + kTileSize * t.a_width + k, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        if constexpr (kColumns == 2) _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, t.c, c_bytes);
    if constexpr (kColumns == 2) _tile_stored(1, t.c_next, c_bytes);
    if constexpr (kRows == 2) _tile_stored(2, t.c + lower, c_bytes);
    if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, t.c_next + lower, c_bytes);
  }
  static void Begin() noexcept { _tile_loadconfig(&kTileShapes); }
  // A thread that holds tiles makes the system keep them, and the core run slower.
  static void End() noexcept { _tile_release(); }
};

constexpr WordKernels kTileWords =
    tile_word_kernels<NativeTiles, NativeWords>("of bf16 by tiles (AMX_BF16)");

}  // namespace
}  // namespace HWY_NAMESPACE

const WordKernels* word_kernels_amx_bf16() noexcept {
  return &HWY_NAMESPACE::kTileWords;
}

}  // namespace posenc::v0::detail
#else
namespace posenc::inline v0::detail {

const WordKernels* word_kernels_amx_bf16() noexcept {
  return nullptr;
}

}  // namespace posenc::v0::detail
#endif
