// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/ntk_by_parts.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum NtkByParts::rescale(Spectrum s, Context) const {
  return rescale_as("ntk_by_parts", std::move(s));
}

Spectrum NtkByParts::rescale_as(std::string_view who, Spectrum s) const {
  detail::need_positive(who, "factor", factor);
  detail::need_positive(who, "original_context", original_context);
  detail::need_positive(who, "beta_fast", beta_fast);
  detail::need_positive(who, "beta_slow", beta_slow);
  detail::need_not_negative(who, "ntk_factor", ntk_factor);
  detail::need_not_negative(who, "extrapolation", extrapolation);
  if (form == PartsForm::two_ramps) return two_ramps(who, std::move(s));
  if (ntk_factor != 1) refuse_field(who, "ntk_factor", "belongs to form=two_ramps", ntk_factor);
  Yarn yarn;
  yarn.factor = factor;
  yarn.original_context = original_context;
  yarn.ramp = ramp;
  yarn.beta_fast = beta_fast;
  yarn.beta_slow = beta_slow;
  yarn.extrapolation = extrapolation;
  yarn.apply_scale = false;
  return yarn.rescale_as(who, std::move(s));
}

Spectrum NtkByParts::two_ramps(std::string_view who, Spectrum s) const {
  if (ramp != Ramp::index || beta_fast != 32 || beta_slow != 1)
    refuse(who, "ramp and betas belong to form=one_ramp");
  const Geometric law = needs_geometric(s, who);
  if (law.base == 1) refuse(who, "the base must not be 1", law.base);
  const double length = static_cast<double>(original_context);
  const CorrectionRange first = correction_range(law, length, 1.25, 0.75, true);
  const CorrectionRange second = correction_range(law, length, 16, 2, true);
  const Spectrum ntk = detail::with_alpha(s, factor, who);
  const std::vector<double> plain = s.frequency;
  const Index pairs = std::max<Index>(s.pairs(), 1);
  for (std::size_t k = 0; k < plain.size(); ++k) {
    const double i = static_cast<double>(static_cast<Index>(k) % pairs);
    const double m1 = (1 - correction_ramp(first, i, ReversedRange::formula)) * ntk_factor;
    const double m2 = (1 - correction_ramp(second, i, ReversedRange::formula)) * extrapolation;
    const double f = plain[k] / factor * (1 - m1) + ntk.frequency[k] * m1;
    s.frequency[k] = f * (1 - m2) + plain[k] * m2;
  }
  if (factor != 1) {
    s.geometric.reset();
    s.drop_ggml("ntk_by_parts form=two_ramps");
  }
  return s;
}

}  // namespace posenc::v0
