// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for few queries: keys and values are read as they lie, since packing them
// would cost more than reading. While keys are read, values of what follows are loaded to the first cache, and the
// reverse. The formulas are those of fast_strips.h.
#pragma once
#include "kernels/attention/args.h"
#include "posenc/core/isa.h"

namespace posenc::inline v0::detail {

inline constexpr Index kDecodeKeys = 32;  // of a block

// Tokens of a block to load to the cache, `bytes` of each; null: none.
struct FastPrefetch {
  const void* const* tokens = nullptr;  // [kDecodeKeys]
  Index bytes = 0;
};

// One row against a block of keys.
struct FastDecodeRow {
  float* x = nullptr;            // [kDecodeKeys]: products q.k, then weights; 0 behind `keys`
  const float* start = nullptr;  // start value of each key, -inf hides it; null: 0
  double base = 0;               // added to the start values
  double* reference = nullptr;   // a whole number: what the exponents are relative to
  float* sums = nullptr;         // [lanes]: sums of weights by lane
  Index keys = 0;                // that are read
};

// Rows of vectors are whole vectors. Where their channels are none, the last vector holds the last `lanes` channels:
// of q those that an earlier vector holds are 0. A token has at least `lanes` channels.
struct FastDecodeKernels {
  Index lanes;
  // x[r][j] = q_r.k_j of the keys of a block, of 1, 2 or 4 rows. x: [rows][kDecodeKeys], q: [rows][width].
  void (*scores[3][4])(float* x, const float* q, Index width, const void* const* k, Index channels,
                       const FastPrefetch&) noexcept;
  // x[j] = rows[j].k_j of all keys, of these channels, fewer than those of a token if it has but one vector. Rows are floats
  // and have a whole vector at least.
  void (*pair_scores[4])(float* x, const float* const* rows, const void* const* k,
                         Index channels) noexcept;
  // Weights of scores. False: an exponent or score is too large or none, and nothing has changed.
  bool (*weights)(const FastDecodeRow&) noexcept;
  // The same, and the reference becomes at least the largest score; `out` has `vectors`. False: a score that is not
  // hidden is beyond kLargestScore or no number, and the row cannot be used.
  bool (*rescale)(const FastDecodeRow&, float* out, Index vectors) noexcept;
  // out[r] += sum_j p[r][j] v_j over `keys` keys. out: [rows][width], p: [rows][kDecodeKeys].
  void (*values[3][4])(float* out, Index width, const float* p, const void* const* v, Index keys,
                       Index channels, const FastPrefetch&) noexcept;
};
// Index of `scores` and `values`.
inline constexpr Index kDecodeRows[] = {1, 2, 4};
const FastDecodeKernels& fast_decode_kernels(Isa);

}  // namespace posenc::v0::detail
