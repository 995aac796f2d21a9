// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/correction.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace posenc::inline v0 {

double correction_pair(const Geometric& law, double length, double turns) {
  return static_cast<double>(law.width) * std::log(length / (2 * std::numbers::pi * turns)) /
         (2 * std::log(law.base));
}

CorrectionRange correction_range(const Geometric& law, double length, double fast, double slow,
                                 bool truncate) {
  CorrectionRange r{correction_pair(law, length, fast), correction_pair(law, length, slow)};
  if (truncate) r = {std::floor(r.low), std::ceil(r.high)};
  return {std::max(r.low, 0.0), std::min(r.high, static_cast<double>(law.width) - 1)};
}

double correction_ramp(CorrectionRange r, double pair, ReversedRange reversed) {
  double width = r.high - r.low;
  if (reversed == ReversedRange::step) width = std::max(width, 0.001);
  if (width == 0) width = 0.001;
  return std::clamp((pair - r.low) / width, 0.0, 1.0);
}

double rotations_weight(double frequency, double length, double fast, double slow) {
  const double turns = length * frequency / (2 * std::numbers::pi);
  if (fast == slow) return turns >= fast ? 1.0 : 0.0;
  return std::clamp((turns - slow) / (fast - slow), 0.0, 1.0);
}

}  // namespace posenc::v0
