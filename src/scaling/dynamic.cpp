// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/dynamic.h"

#include <utility>

namespace posenc::inline v0 {

Spectrum Dynamic::rescale(Spectrum s, Context context) const {
  detail::need_positive("dynamic", "factor", factor);
  detail::need_positive("dynamic", "trained_length", trained_length);
  const Index n = detail::ruled_length("dynamic", length_rule, declared_length, context);
  (void)needs_geometric(s, "dynamic");
  if (n <= trained_length) {
    detail::hold(s, length_rule, 0, trained_length);
    return s;
  }
  const double ratio = static_cast<double>(n) / static_cast<double>(trained_length);
  s = detail::with_alpha(std::move(s), factor * ratio - (factor - 1), "dynamic");
  detail::hold(s, length_rule, n, n);
  return s;
}

}  // namespace posenc::v0
