// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/frequencies.h"

#include <cmath>
#include <vector>

namespace posenc::inline v0 {

Spectrum Frequencies::rescale(Spectrum s, Context) const {
  detail::need_positive("frequencies", "attention_factor", attention_factor);
  if (values.size() != s.frequency.size())
    detail::need_length("frequencies", "values", values, s.pairs());
  for (const double f : values) detail::need_finite("frequencies", "values", f);
  if (values.size() == s.frequency.size())
    s.frequency = values;
  else
    detail::change_frequencies(
        s, [&](Index i, double) { return values[static_cast<std::size_t>(i)]; });
  s.geometric.reset();
  s.drop_ggml("frequencies: they have no formula (divisors can be expressed)");
  s.gain *= attention_factor;
  return s;
}

Spectrum Divisors::rescale(Spectrum s, Context) const {
  detail::need_positive("divisors", "attention_factor", attention_factor);
  detail::need_positive_list("divisors", "values", values, s.pairs());
  bool ones = true;
  detail::change_frequencies(s, [&](Index i, double f) {
    const double by = values[static_cast<std::size_t>(i)];
    ones = ones && by == 1;
    return by >= 1e30 ? 0.0 : f / by;
  });
  if (!ones) s.geometric.reset();
  detail::divide_ggml(s, values);
  detail::multiply_gain(s, attention_factor);
  return s;
}

Spectrum LearnedStretch::rescale(Spectrum s, Context) const {
  detail::need_length("learned_stretch", "alpha", alpha, s.pairs());
  std::vector<double> divisors(alpha.size());
  bool ones = true;
  for (std::size_t i = 0; i < alpha.size(); ++i) {
    detail::need_finite("learned_stretch", "alpha", alpha[i]);
    divisors[i] = std::exp(-alpha[i]);
    detail::need_positive("learned_stretch", "exp(-alpha)", divisors[i]);
    ones = ones && alpha[i] == 0;
  }
  detail::change_frequencies(
      s, [&](Index i, double f) { return f * std::exp(alpha[static_cast<std::size_t>(i)]); });
  if (!ones) s.geometric.reset();
  detail::divide_ggml(s, divisors);
  return s;
}

}  // namespace posenc::v0
