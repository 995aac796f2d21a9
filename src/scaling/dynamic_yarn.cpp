// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/dynamic_yarn.h"

#include <string_view>
#include <utility>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

namespace {

// s for the length that the rule goes by; 0: leave the spectrum alone.
struct GrowingFactor {
  double factor = 0;
  Index from = 0, to = 0;
};

GrowingFactor growing_factor(std::string_view who, Index original, Index max_context,
                             bool finetuned, Index n) {
  detail::need_positive(who, "original_context", original);
  if (max_context < 0) refuse_field(who, "max_context", "must not be negative", max_context);
  const Index limit = max_context == 0 ? original : max_context;
  if (n <= limit)
    return {finetuned ? static_cast<double>(limit) / static_cast<double>(original) : 0.0, 0, limit};
  return {static_cast<double>(n) / static_cast<double>(original), n, n};
}

}  // namespace

template <class Base>
Spectrum DynamicOf<Base>::rescale(Spectrum s, Context context) const {
  const Index n = detail::ruled_length(card.name, length_rule, declared_length, context);
  const auto now = growing_factor(card.name, scaling.original_context, max_context, finetuned, n);
  if (now.factor > 0) {
    Base at = scaling;
    at.factor = now.factor;
    s = at.rescale_as(card.name, std::move(s));
  }
  detail::hold(s, length_rule, now.from, now.to);
  return s;
}

template POSENC_API Spectrum DynamicOf<Yarn>::rescale(Spectrum, Context) const;
template POSENC_API Spectrum DynamicOf<NtkByParts>::rescale(Spectrum, Context) const;

}  // namespace posenc::v0
