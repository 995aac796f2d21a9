// SPDX-License-Identifier: Apache-2.0
// Tiles of the backward pass whose q, k, v and gradient of the output are bfloat16, on machines that multiply pairs of
// such numbers (kernels/attention/fast_word_slopes.h): what takes the place of packed floats, p and s.
#pragma once
#include <span>

#include "attention/call/ready_call.h"
#include "attention/fast/row_blocks.h"
#include "kernels/attention/fast_word_slopes.h"

namespace posenc::inline v0::detail {

struct FastCall;
struct BackwardCall;
struct BackwardWork;
struct BackwardTile;

// What multiplies the gradients of a call: pairs of bfloat16 or, null, floats.
const WordSlopeKernels* word_slopes_of(const FastCall&, const FastTileKernels&,
                                       const ConstHeads& d_out) noexcept;

// Memory of one thread. Pairs of rows or keys are whole panels of channels wide.
struct WordSlopeWork {
  WordSlopeWork() = default;
  WordSlopeWork(const BackwardCall&, Index rows, CallArena&);

  Index q_words = 0, value_words = 0;         // of channels
  std::span<std::uint32_t> q, g;              // [rows][words of channels]
  std::span<std::uint32_t> q_pairs, g_pairs;  // [rows / 2][panels]
  std::span<float> factors;                   // [rows]
  std::span<std::uint32_t> keys, values;      // of a tile, packed
  std::span<std::uint32_t> key_pairs;         // [tile_keys / 2][panels]
  std::span<std::uint32_t> p_pairs, s_pairs;  // of a tile, [rows / 2][tile_stride]
  std::span<std::uint32_t> s_keys;            // [rows][tile_stride / 2]
};

// q, its factors, and the gradients of the output of all rows of a head. Those of rows that see no key are 0.
void take_word_rows(const BackwardCall&, const ConstHeads& d_out, Index b, Index h,
                    BackwardWork&) noexcept;
// Keys and values of a tile, of which the work has `tokens`.
void take_word_keys(const BackwardCall&, Index count, BackwardWork&) noexcept;
void take_word_values(const BackwardCall&, Index count, BackwardWork&) noexcept;
// p and s of all groups of a tile, and the products with q, g and k. dk and dv: of the first key of the tile, dq of row 0.
// What a group does not see is 0, in float too where that is wanted.
void add_word_tile(const BackwardCall&, const BackwardTile&, float* dq, float* dk, float* dv,
                   BackwardWork&) noexcept;

}  // namespace posenc::v0::detail
