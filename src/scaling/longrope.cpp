// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/longrope.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum LongRope::rescale(Spectrum s, Context context) const {
  detail::need_positive("longrope", "original_context", original_context);
  const bool uses_long = choose(context);
  // Only the list in use must be there; a list that is there must be whole.
  if (uses_long || !long_factor.empty())
    detail::need_positive_list("longrope", "long_factor", long_factor, s.pairs());
  if (!uses_long || !short_factor.empty())
    detail::need_positive_list("longrope", "short_factor", short_factor, s.pairs());
  const std::vector<double>& list = uses_long ? long_factor : short_factor;
  detail::change_frequencies(
      s, [&](Index i, double f) { return f / list[static_cast<std::size_t>(i)]; });
  detail::divide_ggml(s, list);
  detail::multiply_gain(s, gain(uses_long));
  if (std::any_of(list.begin(), list.end(), [](double f) { return f != 1; })) s.geometric.reset();
  if (switch_rule == LongRopeSwitch::per_call)
    narrow_validity(s, uses_long ? original_context + 1 : 0,
                    uses_long ? kUnbounded : original_context);
  return s;
}

bool LongRope::choose(Context context) const {
  const auto by = [&](LengthRule rule) {
    return detail::ruled_length("longrope", rule, declared_length, context) > original_context;
  };
  if (declared_length != 0 && switch_rule != LongRopeSwitch::declared)
    refuse_field("longrope", "declared_length", "belongs to switch_rule=declared", declared_length);
  switch (switch_rule) {
    case LongRopeSwitch::per_call:
      return by(LengthRule::per_call);
    case LongRopeSwitch::declared:
      return by(LengthRule::declared);
    case LongRopeSwitch::held:
      return by(LengthRule::held);
    case LongRopeSwitch::always_short:
      return false;
    case LongRopeSwitch::always_long:
      return true;
    case LongRopeSwitch::unset:
      break;
  }
  refuse_field("longrope", "switch_rule",
               "must be per_call, declared, held, always_short or always_long", "unset");
}

double LongRope::gain(bool uses_long) const {
  using namespace detail;
  if (attention_factor) {
    need_positive("longrope", "attention_factor", *attention_factor);
    return *attention_factor;
  }
  if (short_mscale.has_value() != long_mscale.has_value())
    refuse("longrope", "short_mscale and long_mscale must be given together");
  if (short_mscale) {
    need_positive("longrope", "short_mscale", *short_mscale);
    need_positive("longrope", "long_mscale", *long_mscale);
    return uses_long ? *long_mscale : *short_mscale;
  }
  if (!factor)
    refuse("longrope", "needs factor, attention_factor, or short_mscale and long_mscale");
  need_positive("longrope", "factor", *factor);
  if (*factor <= 1) return 1;
  if (magnitude == LongRopeMagnitude::yarn) return mscale_amplitude(*factor, 1);
  if (original_context <= 1)
    refuse_field("longrope", "original_context", "must be above 1 for the gain", original_context);
  return std::sqrt(1 + std::log(*factor) / std::log(static_cast<double>(original_context)));
}

}  // namespace posenc::v0
