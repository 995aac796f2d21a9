// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine: a few query rows against a block of keys, in float.
//
//   x_rj = start_rj + q_r.k_j        in the registers of the product
//   p_rj = 2^x_rj                    in the same registers; stored once
//   out_r += sum_j p_rj v_j,  sums_r += sum_j p_rj
//
// q comes multiplied by scale * log2(e). The start value holds every position term and minus the reference
// of the row, so neither a bias nor a subtraction costs a pass. Nobody looks for a maximum unless an exponent
// exceeds kLargestExponent: then the strip is done again by `rescale`, which moves the references of its rows.
// docs/attention_engine.md, "The fast engine".
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

// Weights of exponents and numbers of q, k and v up to these stay finite in float: sums of 2^27 keys, products of
// 1024 channels.
inline constexpr float kLargestExponent = 40, kLargestValue = 0x1p58f;
// Weights of smaller exponents are 0.
inline constexpr float kSmallestExponent = -87;
// Beyond this a score has no digits behind the point.
inline constexpr float kLargestScore = 0x1p22f;

// Rows of a strip and lanes of a vector of every instruction set, at most.
inline constexpr Index kMostStripRows = 32, kMostLanes = 16;

// What does not change while strips of a block of keys are computed. A panel is 2 * lanes numbers wide.
struct FastBlock {
  const float* k = nullptr;               // [panels of keys][channels][panel]
  const float* v = nullptr;               // [panels of value channels][block_keys][panel]
  Index channels = 0, value_vectors = 0;  // value channels in vectors, rounded up
};

// Rows of one strip: `rows` or `few_rows` of the kernels.
struct FastStrip {
  const float* q = nullptr;             // [rows][channels]
  float* out = nullptr;                 // [panels of value channels][rows][panel]
  float* sums = nullptr;                // [rows][lanes]: sums of p by lane
  double* reference = nullptr;          // [rows], whole numbers: what the exponents are relative to
  const float* const* start = nullptr;  // [rows]: start value of each key, -inf hides it; null: 0
  const double* base = nullptr;         // [rows]: added to the start values
  const float* shift = nullptr;         // [rows]: base - reference
  float* weights = nullptr;             // [rows][block_keys]: p
  Index keys = 0;                       // of the block, that are read
  bool first = false;                   // `sums` are 0, and `out` is not initialised
};

struct FastKernels {
  Index lanes, rows, few_rows, block_keys;
  // False: an exponent is too large, and nothing has changed but `weights`. By number of rows (0: rows, 1:
  // few_rows) and by what starts (0: null, 1: given).
  bool (*strip[2][2])(const FastBlock&, const FastStrip&) noexcept;
  // The same, and the reference of each row becomes at least its largest score. False: a score is beyond
  // kLargestScore, and the rows cannot be used.
  bool (*rescale[2][2])(const FastBlock&, const FastStrip&) noexcept;

  // These return false where a number is not finite or beyond kLargestValue.
  // Adjacent channels of `count` keys, null: 0. To the panels that FastBlock reads, of panel_channels, up to a whole
  // panel.
  bool (*pack_keys[4])(float* to, const void* const* from, Index count, Index channels,
                       Index panel_channels) noexcept;
  // The same of values; channels up to a whole vector are 0.
  bool (*pack_values[4])(float* to, const void* const* from, Index count, Index channels) noexcept;
  // to[c] = factor * from[c]
  bool (*take_row[4])(float* to, const void* from, Index channels, float factor) noexcept;
  // The same of `count` rows, written `width` apart. from[n] null: 0; factors null: 1.
  bool (*take_rows[4])(float* to, Index width, const void* const* from, Index count, Index channels,
                       const float* factors) noexcept;
  // Rows that lie `stride` elements apart, of blocks bytes. Whether that holds for factor * from[n][c]; whether it does for a and b, of
  // which sums[n] becomes the product.
  bool (*are_bounded[4])(const void* from, Index stride, Index count, Index channels,
                         float factor) noexcept;
  bool (*dot_rows[4])(const void* a, Index a_stride, const void* b, Index b_stride, Index count,
                      Index channels, float* sums) noexcept;

  // x[n] = 2^x[n], relative error below 3e-7; 0 below kSmallestExponent. n: whole vectors. The loop that limits a strip.
  void (*exponentials)(float* x, Index n) noexcept;
  // to[n] = max(from[n] - by, least)
  void (*narrow)(float* to, const double* from, Index count, double by, double least) noexcept;
  // to[r] = sum of sums[r], as FastStrip has them
  void (*add_lanes)(float* to, const float* sums, Index rows) noexcept;
  // to[n][c] += factor * from[n][c], rows `stride` and `width` apart
  void (*add_rows)(float* to, Index stride, const float* from, Index width, Index count,
                   Index channels, float factor) noexcept;
  // The same, without what `to` was before.
  void (*write_rows)(float* to, Index stride, const float* from, Index width, Index count,
                     Index channels, float factor) noexcept;
  // Of a log2 sum of weights: the whole number nearest to it, 2^(that - sum), and that times `less`. Infinite: 0.
  void (*split_sums)(const double* sums, const double* less, Index count, double* reference,
                     float* rest, float* less_rest) noexcept;
  // Of a sum of weights: its natural logarithm with that of 2^reference; -inf of none.
  void (*finish_sums)(const float* sums, const double* reference, Index count,
                      double* logarithms) noexcept;
  // The first `count` rows of `out` of a strip of `rows`, times factors, rounded once. to[r] null: not written.
  void (*put_rows[3])(void* const* to, const float* out, Index count, Index rows, Index channels,
                      const float* factors) noexcept;
};
// Of f32, f16, bf16 and q8_0 blocks: the index into the arrays above.
inline std::size_t fast_type(DType type) noexcept {
  return type == DType::f32 ? 0 : type == DType::f16 ? 1 : type == DType::bf16 ? 2 : 3;
}
const FastKernels& fast_kernels(Isa);

}  // namespace posenc::v0::detail
