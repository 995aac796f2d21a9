// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/ntk.h"

#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Ntk::rescale(Spectrum s, Context) const {
  detail::need_positive("ntk", "factor", factor);
  if (mixed_b != 0 && formula != NtkFormula::mixed)
    refuse_field("ntk", "mixed_b", "belongs to formula=mixed", mixed_b);
  if (original_context != 0 && formula != NtkFormula::theta_scale)
    refuse_field("ntk", "original_context", "belongs to formula=theta_scale", original_context);
  switch (formula) {
    case NtkFormula::alpha:
      return detail::with_alpha(std::move(s), factor, "ntk");
    case NtkFormula::fixed:
      return fixed(std::move(s));
    case NtkFormula::mixed:
      return mixed(std::move(s));
    case NtkFormula::theta_scale:
      return theta_scale(std::move(s));
    case NtkFormula::unset:
      break;
  }
  refuse_field("ntk", "formula", "must be alpha, fixed, mixed or theta_scale", "unset");
}

Spectrum Ntk::fixed(Spectrum s) const {
  const Geometric law = needs_geometric(s, "ntk");
  s = detail::with_base(std::move(s), law.base * factor, "ntk");
  const double divisor = std::pow(factor, 2.0 / static_cast<double>(law.width));
  for (double& f : s.frequency) f /= divisor;
  if (factor != 1) s.geometric.reset();
  if (s.ggml && s.ggml->ext_factor != 0) s.drop_ggml("ntk after YaRN");
  if (s.ggml) s.ggml->freq_scale /= divisor;
  return s;
}

Spectrum Ntk::mixed(Spectrum s) const {
  detail::need_positive("ntk", "mixed_b", mixed_b);
  const Geometric law = needs_geometric(s, "ntk");
  const double a = std::log(factor) / std::pow(static_cast<double>(law.width) / 2, mixed_b);
  std::vector<double> divisors(static_cast<std::size_t>(s.pairs()));
  for (std::size_t i = 0; i < divisors.size(); ++i)
    divisors[i] = std::exp(a * std::pow(static_cast<double>(i) + 1, mixed_b));
  detail::change_frequencies(
      s, [&](Index i, double f) { return f / divisors[static_cast<std::size_t>(i)]; });
  detail::divide_ggml(s, divisors);
  if (factor != 1) s.geometric.reset();
  return s;
}

Spectrum Ntk::theta_scale(Spectrum s) const {
  detail::need_positive("ntk", "original_context", original_context);
  const Geometric law = needs_geometric(s, "ntk");
  const double turns = static_cast<double>(original_context) / (2 * std::numbers::pi);
  if (!(turns > 1) || !(turns * factor > 1))
    refuse("ntk", "original_context and its multiple must be above 2 pi", original_context);
  const double power = std::log(turns * factor) / std::log(turns);
  return detail::with_base(std::move(s), std::pow(law.base, power), "ntk");
}

}  // namespace posenc::v0
