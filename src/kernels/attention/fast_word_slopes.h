// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine backward, for q, k, v and the gradient g of the output in bfloat16: the products of
// fast_tiles.h by instructions that multiply pairs of such numbers (fast_words.h).
//
//   x_ij = f_i (q_i.k_j) + start_ij    f_i = scale * log2(e)
//   p_ij = 2^x_ij                      rounded once to bfloat16, words of two rows
//   s_ij = p_ij (g_i.v_j - d_i)        from unrounded p, rounded once: words of two keys; f_i s_ij: words of two rows
//   dv_j += sum_i p_ij g_i,  dk_j += sum_i f_i s_ij q_i,  dq_i += sum_j s_ij k_j
//
// The pairs lie along what is summed. Products are exact, sums are in float, so beside what float gives dv_j is off by at
// most 2^-8 sum_i p_ij |g_i|, dq_i by 2^-8 sum_j |s_ij k_j|, dk_j by 2^-8 sum_i |f_i s_ij q_i|. Numbers below 2^-126 count
// as 0.
#pragma once
#include "kernels/attention/fast_tiles.h"
#include "kernels/attention/fast_words.h"

namespace posenc::inline v0::detail {

// Keys of a tile. A panel is 2 * lanes words wide.
struct WordTileKeys {
  const std::uint32_t* k = nullptr;    // [panels of keys][words of channels][panel]
  const std::uint32_t* v = nullptr;    // the same of values
  Index q_words = 0, value_words = 0;  // of channels
};

// `rows` or `few_rows` rows of a tile.
struct WordTileRows {
  const std::uint32_t* q = nullptr;     // [rows][q_words]
  const std::uint32_t* g = nullptr;     // [rows][value_words]
  const float* factors = nullptr;       // [rows]: f
  const float* const* start = nullptr;  // [rows]: start value of each key, -inf hides it; null: 0
  const float* shift = nullptr;         // [rows]: added to the start values
  const float* less = nullptr;          // [rows]: d
  float* s = nullptr;                   // [rows][tile_stride]; null: not wanted
  std::uint32_t* p_pairs = nullptr;     // [rows / 2][tile_stride]: p of two rows
  std::uint32_t* s_pairs = nullptr;     // the same: f s
  std::uint32_t* s_keys = nullptr;      // [rows][tile_stride / 2]: s of two keys
  Index keys = 0;  // of the tile, that are read; the rest of their vector is written too
};

struct WordSlopeKernels {
  const char* products;  // what multiplies, for messages of tests
  Index lanes, rows, few_rows;
  Index tile_rows, tile_keys, tile_stride;  // those of FastTileKernels
  // FastTileKernels::slopes.
  void (*slopes[2][2])(const WordTileKeys&, const WordTileRows&) noexcept;
  // to[j] += sum over pairs n of rows of both products of a[n][j] b[n], j of keys. to: [][width], whole vectors; b: [][panels].
  // Writes up to rows - 1 rows of `to` behind the last.
  void (*add_outer)(float* to, const std::uint32_t* a, const std::uint32_t* b, Index pairs,
                    Index keys, Index width) noexcept;
  // to[i] += sum over pairs n of keys of both products of a[i][n] b[n], i of rows. a: [][tile_stride / 2]. The same.
  void (*add_rows)(float* to, const std::uint32_t* a, const std::uint32_t* b, Index rows,
                   Index pairs, Index width) noexcept;
  // WordKernels::pack_keys and take_row.
  bool (*pack_keys)(std::uint32_t* to, const void* const* from, Index count, Index channels,
                    Index words) noexcept;
  bool (*take_row)(std::uint32_t* to, const void* from, Index channels, Index words) noexcept;
  // Words of two neighbouring rows of `count`, null: 0, [][panels]; channels up to a whole panel are 0.
  bool (*pack_pairs)(std::uint32_t* to, const void* const* from, Index count,
                     Index channels) noexcept;
};

// Those of the build that the machine can run beside an instruction set; null: none.
const WordSlopeKernels* usable_word_slopes(Isa) noexcept;
// The same, or what tests hand in.
const WordSlopeKernels* word_slope_kernels(Isa) noexcept;
// Without a question to the machine. null: this build has none.
const WordSlopeKernels* word_slope_kernels_avx512_bf16() noexcept;
// Kernels that stand for those of another machine. null: word_slope_kernels decides again.
void replace_word_slopes(const WordSlopeKernels*) noexcept;

}  // namespace posenc::v0::detail
