// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/proportional.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Proportional::rescale(Spectrum s, Context) const {
  detail::need_positive("proportional", "factor", factor);
  if (!(fraction >= 0 && fraction <= 1))
    refuse_field("proportional", "fraction", "must be from 0 to 1", fraction);
  const Index turned =
      static_cast<Index>(std::floor(fraction * static_cast<double>(2 * s.pairs()) / 2));
  std::vector<double> divisors(static_cast<std::size_t>(s.pairs()), factor);
  std::fill(divisors.begin() + turned, divisors.end(), 1e30);
  detail::change_frequencies(s, [&](Index i, double f) { return i < turned ? f / factor : 0.0; });
  detail::divide_ggml(s, divisors);
  if (factor != 1 || turned != s.pairs()) s.geometric.reset();
  return s;
}

}  // namespace posenc::v0
