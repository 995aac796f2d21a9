// SPDX-License-Identifier: Apache-2.0
// The band of pairs between which NTK-by-parts and YaRN pass from "leave it" to "divide it by s".
// Peng et al., arXiv:2309.00071, section 3.2; the code of its authors.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc {

// index      linear in the pair index between two correction dimensions: every code, hence models
// rotations  linear in the number of turns within the trained length: what the paper writes
enum class Ramp : std::uint8_t { index, rotations };
template <>
struct EnumNames<Ramp> {
  static constexpr std::array<std::string_view, 2> value{"index", "rotations"};
};

// What to do when the band is upside down (high < low).
//   formula  the ramp as written, clamped: transformers and vLLM (a band wholly below pair 0 leaves
//            every frequency alone)
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
inline double correction_pair(const Geometric& law, double length, double turns) {
  return static_cast<double>(law.width) * std::log(length / (2 * std::numbers::pi * turns)) /
         (2 * std::log(law.base));
}

// low from `fast` turns, high from `slow`; rounded outwards when truncate; clamped to [0, d - 1]
// (d, not the number of pairs: as every code has it).
inline CorrectionRange correction_range(const Geometric& law, double length, double fast,
                                        double slow, bool truncate) {
  CorrectionRange r{correction_pair(law, length, fast), correction_pair(law, length, slow)};
  if (truncate) r = {std::floor(r.low), std::ceil(r.high)};
  return {std::max(r.low, 0.0), std::min(r.high, static_cast<double>(law.width) - 1)};
}

// 0 below low (leave the frequency alone), 1 above high (divide it).
inline double correction_ramp(CorrectionRange r, double pair, ReversedRange reversed) {
  double width = r.high - r.low;
  if (reversed == ReversedRange::step) width = std::max(width, 0.001);
  if (width == 0) width = 0.001;
  return std::clamp((pair - r.low) / width, 0.0, 1.0);
}

// The paper's gamma: 1 at `fast` turns within the trained length and more, 0 at `slow` and less.
inline double rotations_weight(double frequency, double length, double fast, double slow) {
  const double turns = length * frequency / (2 * std::numbers::pi);
  if (fast == slow) return turns >= fast ? 1.0 : 0.0;
  return std::clamp((turns - slow) / (fast - slow), 0.0, 1.0);
}

}  // namespace posenc
