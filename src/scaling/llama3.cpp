// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/llama3.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace posenc::inline v0 {

Spectrum Llama3::rescale(Spectrum s, Context) const {
  detail::need_positive("llama3", "factor", factor);
  detail::need_positive("llama3", "low_freq_factor", low_freq_factor);
  detail::need_positive("llama3", "high_freq_factor", high_freq_factor);
  detail::need_positive("llama3", "original_context", original_context);
  std::vector<double> divisors(static_cast<std::size_t>(s.pairs()), 1.0);
  detail::change_frequencies(s, [&](Index i, double theta) {
    const double d = divisor(theta);
    divisors[static_cast<std::size_t>(i)] = d;
    return theta / d;
  });
  if (s.heads * s.axes == 1)
    detail::divide_ggml(s, divisors);
  else
    s.drop_ggml("llama3 over several heads or axes: its divisors are one a pair");
  if (factor != 1) s.geometric.reset();
  return s;
}

double Llama3::divisor(double theta) const {
  const double length = static_cast<double>(original_context);
  const double wavelength = 2 * std::numbers::pi / std::abs(theta);
  if (wavelength > length / low_freq_factor) return factor;
  if (wavelength < length / high_freq_factor || high_freq_factor < low_freq_factor) return 1;
  if (high_freq_factor == low_freq_factor) return factor;
  const double m = (length / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
  return 1 / ((1 - m) / factor + m);
}

}  // namespace posenc::v0
