// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine for scores with a soft cap, cap tanh(x / cap): the sums of a product are
// stored, and the next loop caps them and makes weights. fast_strips.h and fast_tiles.h have the rest.
#pragma once
#include "kernels/attention/fast_decode.h"
#include "kernels/attention/fast_strips.h"
#include "kernels/attention/fast_tiles.h"

namespace posenc::inline v0::detail {

struct FastCap {
  float cap = 0;        // times log2(e), like the scores
  bool starts = false;  // start values, but -inf, are under the cap
};

// `slope` of each pair, what the cap leaves of a gradient; [rows][tile_stride].
struct FastCapRows {
  FastTileRows rows;
  const double *base = nullptr, *reference = nullptr;  // [rows]; their difference is rows.shift
  float* slope = nullptr;
};

struct FastCapKernels {
  // FastKernels::strip and rescale, by number of rows; with or without start values.
  bool (*strip[2])(const FastBlock&, const FastStrip&, const FastCap&) noexcept;
  bool (*rescale[2])(const FastBlock&, const FastStrip&, const FastCap&) noexcept;
  // FastTileKernels::slopes. s is the gradient of what is not under the cap.
  void (*slopes[2])(const FastTileKeys&, const FastCapRows&, const FastCap&, Index stride) noexcept;
  // Products of one row of few queries become capped scores. Where start values are under the cap, they are part of
  // these: `hidden` [kDecodeKeys] then hides what they hid. False: a product that is not hidden is not finite.
  bool (*decoded)(FastDecodeRow&, float* hidden, const FastCap&) noexcept;
  // s[i][j] *= slope[i][j], up to a whole vector.
  void (*multiply)(float* s, const float* slope, Index rows, Index keys, Index stride) noexcept;
};
const FastCapKernels& fast_cap_kernels(Isa);

}  // namespace posenc::v0::detail
