// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for few queries: keys and values are read as they lie, since packing them
// would cost more than reading. All heads of some tokens are read before the next tokens, so that memory is read in its
// order where the heads of a token are adjacent. The formulas are those of fast_strips.h.
#pragma once
#include "core/access_pattern.h"
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

inline constexpr Index kDecodeKeys = 32;  // of a block

// One row against a block of keys.
struct FastDecodeRow {
  float* x = nullptr;            // [kDecodeKeys]: products q.k, then weights; 0 behind `keys`
  const float* start = nullptr;  // start value of each key, -inf hides it; null: 0
  double base = 0;               // added to the start values
  double* reference = nullptr;   // a whole number: what the exponents are relative to
  float* sums = nullptr;         // [lanes]: sums of weights by lane
  Index keys = 0;                // that are read
};

// A head of a block of keys. Its rows of queries follow each other.
struct FastDecodeHead {
  const void* const* k = nullptr;  // [kDecodeKeys]: tokens
  const void* const* v = nullptr;
  const float* q = nullptr;  // [rows][width]
  float* x = nullptr;        // [rows][kDecodeKeys]: products q.k, later weights
  float* out = nullptr;      // [rows][width]
  Index keys = 0;            // that have a weight, from the first on
};
// A rotation of keys while they are read, the same of all heads: pair k of a key (posenc/rotary/spec.h) times the complex
// number cos + i sin.
struct FastTurns {
  // [kDecodeKeys][stride]: the cosines of pairs, then as many sines; interleaved: each twice. Null: keys stay.
  const float* rows = nullptr;
  Index stride = 0;
  Index offset = 0, pairs = 0;  // of the window; whole vectors, as all channels of a key
  bool interleaved = false;
};
// Heads whose tokens are read together. Rows: of each head.
struct FastDecodeHeads {
  const FastDecodeHead* first = nullptr;
  Index count = 0, rows = 0;
  Index width = 0, channels = 0;  // of a row, and of a token
  float* sums = nullptr;          // of scores: [count][rows][lanes][lanes]
  AccessPattern access = AccessPattern::sequential;
  FastTurns turns{};  // of scores
};

// Rows of vectors are whole vectors. Where their channels are none, the last vector holds the last `lanes` channels:
// of q those that an earlier vector holds are 0. A token has at least `lanes` channels.
struct FastDecodeKernels {
  Index lanes;
  // By type of k (fast_type). x[r][j] = q_r.k_j of all keys and heads.
  void (*scores[4])(const FastDecodeHeads&) noexcept;
  // Rows 1 to count - 1 behind the first one of FastTurns::rows: the first one times the complex numbers of `steps`.
  void (*turn_rows)(float* rows, const float* steps, Index stride, Index count) noexcept;
  // x[j] = rows[j].k_j of all keys, of these channels, fewer than those of a token if it has but one vector. Rows are floats
  // and have a whole vector at least.
  void (*pair_scores[4])(float* x, const float* const* rows, const void* const* k,
                         Index channels) noexcept;
  // Weights of scores. False: an exponent or score is too large or none, and nothing has changed.
  bool (*weights)(const FastDecodeRow&) noexcept;
  // The same, and the reference becomes at least the largest score; `out` has `vectors`. False: a score that is not
  // hidden is beyond kLargestScore or no number, and the row cannot be used.
  bool (*rescale)(const FastDecodeRow&, float* out, Index vectors) noexcept;
  // By type of v. out[r] += sum_j x[r][j] v_j of all heads.
  void (*values[4])(const FastDecodeHeads&) noexcept;
};
const FastDecodeKernels& fast_decode_kernels(Isa);

}  // namespace posenc::v0::detail
