// SPDX-License-Identifier: Apache-2.0
// Cosine and sine as other programs make them, in their float32 arithmetic
// (posenc/core/precision.h).
#pragma once
#include "posenc/core/precision.h"
#include "posenc/phase.h"

namespace posenc::inline v0::detail {

// Throws when this precision cannot be had of this spectrum: [ggml] without a GgmlForm, with heads
// of their own, with more than four axes or several axes in one pair. exact always can.
void check_compat(const Spectrum&, Precision);

// cos and sin of pairs [pair_begin, pair_end) of one head, gain included; position: one an axis.
// The spectrum has passed check_compat; precision is not exact.
void compat_phase(const Spectrum&, Precision, Index head, const double* position, Index pair_begin,
                  Index pair_end, float* cos, float* sin) noexcept;

// hf_float32 before its last roundings: the exact cosine of the float32 angle times the gain.
void hf_phase(const Spectrum&, Index head, const double* position, Index pair_begin, Index pair_end,
              double* cos, double* sin) noexcept;

}  // namespace posenc::v0::detail
