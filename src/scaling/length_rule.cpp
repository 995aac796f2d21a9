// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/length_rule.h"

#include <string_view>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

namespace detail {

Index known_length(std::string_view who, Context context) {
  if (context.length < 0) refuse(who, "the length must not be negative", context.length);
  if (context.length == 0)
    refuse(who, "depends on the length, which is not known: give the context length");
  return context.length;
}

Index ruled_length(std::string_view who, LengthRule rule, Index declared, Context context) {
  if (rule == LengthRule::unset)
    refuse_field(who, "length_rule", "must be per_call, declared or held", "unset");
  if (rule == LengthRule::declared) {
    need_positive(who, "declared_length", declared);
    return declared;
  }
  if (declared != 0)
    refuse_field(who, "declared_length", "belongs to length_rule=declared", declared);
  return known_length(who, context);
}

void hold(Spectrum& s, LengthRule rule, Index from, Index to) {
  if (rule == LengthRule::per_call) narrow_validity(s, from, to);
}

}  // namespace detail

}  // namespace posenc::v0
