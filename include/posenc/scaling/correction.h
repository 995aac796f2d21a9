// SPDX-License-Identifier: Apache-2.0
// The range of pairs over which NTK-by-parts and YaRN change from "unscaled" to "divided by s".
// Peng et al., arXiv:2309.00071, section 3.2; the code of its authors.
// Implementation: src/scaling/correction.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

// index      linear in the pair index between two correction dimensions: every code, hence models
// rotations  linear in the number of turns within the trained length: as in the paper
enum class Ramp : std::uint8_t { index, rotations };
template <>
struct EnumNames<Ramp> {
  static constexpr std::array<std::string_view, 2> value{"index", "rotations"};
};

// What to do with a reversed range (high < low).
//   formula  the ramp as written, clamped: transformers and vLLM (a range below pair 0 changes no
//            frequency)
//   step     at least 0.001 wide, so a step at low: ggml
enum class ReversedRange : std::uint8_t { formula, step };
template <>
struct EnumNames<ReversedRange> {
  static constexpr std::array<std::string_view, 2> value{"formula", "step"};
};

struct CorrectionRange {
  double low = 0, high = 0;  // pair indices
};

// The pair that makes `turns` turns within `length` positions, as a real number:
//   d ln(L / (2 pi turns)) / (2 ln base)
POSENC_API double correction_pair(const Geometric& law, double length, double turns);

// low from `fast` turns, high from `slow`; rounded outwards when truncate; clamped to [0, d - 1]
// (d, not the number of pairs, as in every code).
POSENC_API CorrectionRange correction_range(const Geometric& law, double length, double fast,
                                            double slow, bool truncate);

// 0 below low (unscaled), 1 above high (divided).
POSENC_API double correction_ramp(CorrectionRange r, double pair, ReversedRange reversed);

// The paper's gamma: 1 at `fast` turns within the trained length and more, 0 at `slow` and less.
POSENC_API double rotations_weight(double frequency, double length, double fast, double slow);

}  // namespace posenc::v0
