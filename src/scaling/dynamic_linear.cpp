// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/dynamic_linear.h"

#include <utility>

namespace posenc::inline v0 {

Spectrum DynamicLinear::rescale(Spectrum s, Context context) const {
  detail::need_positive("dynamic_linear", "trained_length", trained_length);
  const Index n = detail::ruled_length("dynamic_linear", length_rule, declared_length, context);
  if (n <= trained_length) {
    detail::hold(s, length_rule, 0, trained_length);
    return s;
  }
  s = Linear{static_cast<double>(n) / static_cast<double>(trained_length)}.rescale(std::move(s),
                                                                                   context);
  detail::hold(s, length_rule, n, n);
  return s;
}

}  // namespace posenc::v0
