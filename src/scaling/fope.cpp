// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/fope.h"

#include <numbers>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Fope::rescale(Spectrum s, Context) const {
  if ((trained_length != 0) == keep.has_value())
    refuse("fope", "needs trained_length or keep, and not both");
  if (keep && (*keep < 0 || *keep > s.pairs()))
    refuse_field("fope", "keep", "must be from 0 to the number of pairs", *keep);
  if (!keep) detail::need_positive("fope", "trained_length", trained_length);
  const double floor = keep ? 0 : 2 * std::numbers::pi / static_cast<double>(trained_length);
  std::vector<double> divisors(static_cast<std::size_t>(s.pairs()), 1.0);
  bool all = true;
  detail::change_frequencies(s, [&](Index i, double f) {
    if (keep ? i < *keep : f > floor) return f;
    divisors[static_cast<std::size_t>(i)] = 1e30;
    all = false;
    return 0.0;
  });
  if (all) return s;
  s.geometric.reset();
  if (s.heads * s.axes == 1)
    detail::divide_ggml(s, divisors);
  else
    s.drop_ggml("fope over several heads or axes: its divisors are one a pair");
  return s;
}

}  // namespace posenc::v0
