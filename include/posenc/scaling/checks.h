// SPDX-License-Identifier: Apache-2.0
// What every scaling needs: refusals in its own name, and changes that keep the three forms of a
// spectrum (frequencies, geometric law, ggml's arguments) telling the same.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/scaling/policy.h"

namespace posenc::detail {

inline void need_positive(std::string_view who, std::string_view field, double value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse(who, std::string(field) + " must be finite and positive", value);
}
inline void need_positive(std::string_view who, std::string_view field, Index value) {
  if (value <= 0) refuse(who, std::string(field) + " must be positive", value);
}
inline void need_finite(std::string_view who, std::string_view field, double value) {
  if (!std::isfinite(value)) refuse(who, std::string(field) + " must be finite", value);
}
inline void need_not_negative(std::string_view who, std::string_view field, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    refuse(who, std::string(field) + " must be finite and not negative", value);
}

// A list of one number a pair.
inline void need_length(std::string_view who, std::string_view field,
                        const std::vector<double>& list, Index pairs) {
  if (static_cast<Index>(list.size()) != pairs)
    refuse(who, std::string(field) + " must have " + std::to_string(pairs) + " numbers, one a pair",
           static_cast<Index>(list.size()));
}
inline void need_positive_list(std::string_view who, std::string_view field,
                               const std::vector<double>& list, Index pairs) {
  need_length(who, field, list, pairs);
  for (std::size_t i = 0; i < list.size(); ++i)
    need_positive(who, std::string(field) + "[" + std::to_string(i) + "]", list[i]);
}

// frequency = f(pair, frequency), for every head and axis.
template <class F>
void change_frequencies(Spectrum& s, F&& f) {
  const Index pairs = std::max<Index>(s.pairs(), 1);
  for (std::size_t k = 0; k < s.frequency.size(); ++k)
    s.frequency[k] = f(static_cast<Index>(k) % pairs, s.frequency[k]);
}

inline void multiply_gain(Spectrum& s, double by) {
  s.gain *= by;
  if (s.ggml) s.ggml->attn_factor *= by;
}

// ggml divides the frequency of pair i by factors[i] before it scales: a divisor of the finished
// frequency is the same, the scaling being linear in the frequency.
inline void divide_ggml(Spectrum& s, const std::vector<double>& divisors) {
  if (!s.ggml) return;
  std::vector<double>& f = s.ggml->factors;
  if (f.empty()) f.assign(divisors.size(), 1.0);
  if (f.size() != divisors.size())
    return s.drop_ggml("divisors of another number than those before them");
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = std::min(f[i] * divisors[i], 1e30);
}

// The same spectrum from another base; gain, logit factor and validity stay.
inline Spectrum with_base(Spectrum s, double base, std::string_view who) {
  const Geometric law = needs_geometric(s, who);
  if (!(base > 0) || !std::isfinite(base))
    refuse(who, "the changed base must be finite and positive", base);
  Spectrum fresh = geometric_spectrum(base, law.width, s.pairs());
  s.frequency = std::move(fresh.frequency);
  s.geometric = Geometric{base, law.width};
  if (s.ggml) s.ggml->base = base;
  return s;
}

// base * alpha^(d/(d-2)): the last pair is slowed by exactly alpha, the first not at all. bloc97.
inline Spectrum with_alpha(Spectrum s, double alpha, std::string_view who) {
  const Geometric law = needs_geometric(s, who);
  if (alpha == 1) return s;
  if (law.width <= 2) refuse(who, "the rotary width must be above 2", law.width);
  const double d = static_cast<double>(law.width);
  return with_base(std::move(s), law.base * std::pow(alpha, d / (d - 2)), who);
}

// g(s, m) of YaRN's authors and DeepSeek: 1 for s <= 1, else slope * m * ln s + 1; slope is 0.1.
inline double mscale_amplitude(double factor, double mscale, double slope = 0.1) {
  return factor <= 1 ? 1.0 : slope * mscale * std::log(factor) + 1.0;
}

}  // namespace posenc::detail
