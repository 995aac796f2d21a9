// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/dynamic_longrope.h"

#include <utility>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum DynamicLongRope::rescale(Spectrum s, Context context) const {
  detail::need_positive("dynamic_longrope", "original_context", original_context);
  detail::need_positive("dynamic_longrope", "factor", factor);
  if (factor <= 1) refuse_field("dynamic_longrope", "factor", "must be above 1", factor);
  detail::need_positive_list("dynamic_longrope", "long_factor", long_factor, s.pairs());
  const Index n = detail::ruled_length("dynamic_longrope", length_rule, declared_length, context);
  if (n <= original_context) {
    detail::hold(s, length_rule, 0, original_context);
    return s;
  }
  const double stretch = static_cast<double>(n) / static_cast<double>(original_context);
  LongRope at;
  at.long_factor = long_factor;
  for (double& f : at.long_factor) f = 1 + (f - 1) * (stretch - 1) / (factor - 1);
  at.original_context = original_context;
  at.switch_rule = LongRopeSwitch::always_long;
  at.factor = gain_of == LongRopeGainOf::factor ? factor : stretch;
  at.magnitude = magnitude;
  s = at.rescale(std::move(s), context);
  detail::hold(s, length_rule, n, n);
  return s;
}

}  // namespace posenc::v0
