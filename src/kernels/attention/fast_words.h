// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine, forward, for q, k and v of bfloat16, by instructions that multiply pairs of such numbers and
// add both products in float. A word is a pair: two neighbouring channels of q and k, the weights or the values of two
// neighbouring keys.
//
//   exponents  x_ij = f_i (q_i.k_j) + start_ij     products exact in float, f_i = scale * log2(e)
//   weights    p_ij = 2^x_ij                       sums of them in float, for the log-sum-exp
//              r_ij = bf16(p_ij)                   rounded once, at most 2^-8 of it; sums of them in float
//   values     o_i += sum_j r_ij v_j               in the end divided by sum_j r_ij
//
// So beside what float gives the result o is off by at most 2^-8 sum_j p_ij |v_j - o_i| / sum_j p_ij, and a row that sees
// one key gets its value. f stands outside of the product: q has no bits to spare. Numbers below 2^-126 count as 0, as these
// instructions have it.
// fast_strips.h has the same in float, docs/attention_engine.md the idea.
#pragma once
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {

// A block of packed keys and values, as FastBlock has it. A panel is 2 * lanes words wide.
struct WordBlock {
  const std::uint32_t* k = nullptr;  // [panels of keys][words of channels][panel]
  const std::uint32_t* v = nullptr;  // [panels of value channels][block_keys / 2][panel]
  Index words = 0, value_vectors = 0;
};

// Rows of one strip.
struct WordStrip {
  FastStrip rows;                    // without q; `weights` keeps scores
  const std::uint32_t* q = nullptr;  // [rows][words]
  const float* factors = nullptr;    // [rows]: f
  std::uint32_t* weights = nullptr;  // [rows][block_keys / 2]: r
  float* rounded = nullptr;          // [rows][lanes]: sums of r by lane
};

struct WordKernels {
  const char* products;  // what multiplies, for messages of tests
  // Rows of strips, and keys of a block; whole words of channels, and keys whose values are packed, zeros behind the last.
  Index lanes, rows, few_rows, block_keys, whole_words, whole_keys;
  // FastKernels::strip and rescale.
  bool (*strip[2][2])(const WordBlock&, const WordStrip&) noexcept;
  bool (*rescale[2][2])(const WordBlock&, const WordStrip&) noexcept;
  // Of bf16. False where a number is not finite or beyond kLargestValue.
  // Adjacent channels of `count` keys, null: 0. `words` and whole panels are filled up with 0.
  bool (*pack_keys)(std::uint32_t* to, const void* const* from, Index count, Index channels,
                    Index words) noexcept;
  // The same of values; channels up to a whole panel are 0.
  bool (*pack_values)(std::uint32_t* to, const void* const* from, Index count,
                      Index channels) noexcept;
  bool (*take_row)(std::uint32_t* to, const void* from, Index channels, Index words) noexcept;
  // Around the strips that one thread computes one after the other.
  void (*begin)() noexcept;
  void (*end)() noexcept;
};

// Those of the build that the machine can run beside an instruction set; null: none.
const WordKernels* usable_words(Isa, bool tiles) noexcept;
// The best of them: tiles before vectors.
const WordKernels* word_kernels(Isa) noexcept;
// Those of the build, without a question to the machine. null: this build has none.
const WordKernels* word_kernels_avx512_bf16() noexcept;
const WordKernels* word_kernels_amx_bf16() noexcept;
// Tests hand in kernels that stand for those of another machine. null: word_kernels decides again.
void replace_word_kernels(const WordKernels*) noexcept;

}  // namespace posenc::v0::detail
