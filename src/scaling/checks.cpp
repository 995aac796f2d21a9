// SPDX-License-Identifier: Apache-2.0
#include "posenc/scaling/checks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

namespace detail {

void need_positive(std::string_view who, std::string_view field, double value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse_field(who, field, "must be finite and positive", value);
}

void need_positive(std::string_view who, std::string_view field, Index value) {
  if (value <= 0) refuse_field(who, field, "must be positive", value);
}

void need_finite(std::string_view who, std::string_view field, double value) {
  if (!std::isfinite(value)) refuse_field(who, field, "must be finite", value);
}

void need_not_negative(std::string_view who, std::string_view field, double value) {
  if (!(value >= 0) || !std::isfinite(value))
    refuse_field(who, field, "must be finite and not negative", value);
}

void need_length(std::string_view who, std::string_view field, const std::vector<double>& list,
                 Index pairs) {
  if (static_cast<Index>(list.size()) != pairs)
    refuse_field(who, field, "must have " + std::to_string(pairs) + " numbers, one a pair",
                 static_cast<Index>(list.size()));
}

void need_positive_list(std::string_view who, std::string_view field,
                        const std::vector<double>& list, Index pairs) {
  need_length(who, field, list, pairs);
  for (std::size_t i = 0; i < list.size(); ++i)
    need_positive(who, std::string(field) + "[" + std::to_string(i) + "]", list[i]);
}

void multiply_gain(Spectrum& s, double by) {
  s.gain *= by;
  if (s.ggml) s.ggml->attn_factor *= by;
}

void divide_ggml(Spectrum& s, const std::vector<double>& divisors) {
  if (!s.ggml) return;
  std::vector<double>& f = s.ggml->factors;
  if (f.empty()) f.assign(divisors.size(), 1.0);
  if (f.size() != divisors.size())
    return s.drop_ggml("divisors of another number than those before them");
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = std::min(f[i] * divisors[i], 1e30);
}

Spectrum with_base(Spectrum s, double base, std::string_view who) {
  const Geometric law = needs_geometric(s, who);
  if (!(base > 0) || !std::isfinite(base))
    refuse(who, "the changed base must be finite and positive", base);
  Spectrum fresh = geometric_spectrum(base, law.width, s.pairs());
  s.frequency = std::move(fresh.frequency);
  s.geometric = Geometric{base, law.width};
  if (s.ggml) s.ggml->base = base;
  return s;
}

Spectrum with_alpha(Spectrum s, double alpha, std::string_view who) {
  const Geometric law = needs_geometric(s, who);
  if (alpha == 1) return s;
  if (law.width <= 2) refuse(who, "the rotary width must be above 2", law.width);
  const double d = static_cast<double>(law.width);
  return with_base(std::move(s), law.base * std::pow(alpha, d / (d - 2)), who);
}

double mscale_amplitude(double factor, double mscale, double slope) {
  return factor <= 1 ? 1.0 : slope * mscale * std::log(factor) + 1.0;
}

}  // namespace detail

}  // namespace posenc::v0
