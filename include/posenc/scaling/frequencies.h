// SPDX-License-Identifier: Apache-2.0
// Numbers instead of a formula, one a pair:
//   frequencies      theta'_i = values_i        (what transformers calls inv_freq; learned ones)
//   divisors         theta'_i = theta_i / values_i, 0 where the divisor is 1e30 or more
//                    (GGUF's rope_freqs.weight, rope_factors_*.weight, ggml's freq_factors)
//   learned_stretch  theta'_i = theta_i exp(alpha_i)          (Mistral-Large-4 in transformers)
// attention_factor multiplies the gain, for files that carry it beside the list.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc {

struct Frequencies {
  static constexpr Card card{"frequencies", "given frequencies", "transformers inv_freq", ""};
  std::vector<double> values;
  double attention_factor = 1;

  Spectrum rescale(Spectrum s, Context) const {
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
    s.drop_ggml("frequencies: they stand for themselves (divisors could be told)");
    s.gain *= attention_factor;
    return s;
  }
  bool operator==(const Frequencies&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("values", s.values,
      Field{
          .doc = "one a pair, or [heads, axes, pairs]", .unit = "rad/position", .required = true});
    v("attention_factor", s.attention_factor, Field{.doc = "multiplies the gain", .min = 1e-300});
  }
};
static_assert(ScalingPolicy<Frequencies>);

struct Divisors {
  static constexpr Card card{"divisors", "given divisors", "ggml freq_factors", ""};
  std::vector<double> values;
  double attention_factor = 1;

  Spectrum rescale(Spectrum s, Context) const {
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
  bool operator==(const Divisors&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("values", s.values,
      Field{.doc = "one a pair; 1e30: the pair stands still", .min = 1e-300, .required = true});
    v("attention_factor", s.attention_factor, Field{.doc = "multiplies the gain", .min = 1e-300});
  }
};
static_assert(ScalingPolicy<Divisors>);

struct LearnedStretch {
  static constexpr Card card{"learned_stretch", "learned stretch of frequencies",
                             "transformers, mistral_large4", ""};
  std::vector<double> alpha;

  Spectrum rescale(Spectrum s, Context) const {
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
  bool operator==(const LearnedStretch&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("alpha", s.alpha, Field{.doc = "one a pair; frequency times exp(alpha)", .required = true});
  }
};
static_assert(ScalingPolicy<LearnedStretch>);

}  // namespace posenc
