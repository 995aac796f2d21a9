// SPDX-License-Identifier: Apache-2.0
// Numbers instead of a formula, one a pair:
//   frequencies      theta'_i = values_i        (what transformers calls inv_freq; learned ones)
//   divisors         theta'_i = theta_i / values_i, 0 where the divisor is 1e30 or more
//                    (GGUF's rope_freqs.weight, rope_factors_*.weight, ggml's freq_factors)
//   learned_stretch  theta'_i = theta_i exp(alpha_i)          (Mistral-Large-4 in transformers)
// attention_factor multiplies the gain, for files that contain it besides the list.
// Implementation: src/scaling/frequencies.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct Frequencies {
  static constexpr Card card{"frequencies", "given frequencies", "transformers inv_freq", ""};
  std::vector<double> values;
  double attention_factor = 1;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const Frequencies&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("values", s.values,
      Field{.doc = "one for each pair, or [heads, axes, pairs]",
            .unit = "rad/position",
            .required = true});
    v("attention_factor", s.attention_factor, Field{.doc = "multiplies the gain", .min = 1e-300});
  }
};

struct Divisors {
  static constexpr Card card{"divisors", "given divisors", "ggml freq_factors", ""};
  std::vector<double> values;
  double attention_factor = 1;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const Divisors&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("values", s.values,
      Field{.doc = "one for each pair; 1e30: the pair does not rotate",
            .min = 1e-300,
            .required = true});
    v("attention_factor", s.attention_factor, Field{.doc = "multiplies the gain", .min = 1e-300});
  }
};

struct LearnedStretch {
  static constexpr Card card{"learned_stretch", "learned stretch of frequencies",
                             "transformers, mistral_large4", ""};
  std::vector<double> alpha;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  bool operator==(const LearnedStretch&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("alpha", s.alpha,
      Field{.doc = "one for each pair; the frequency is multiplied by exp(alpha)",
            .required = true});
  }
};

}  // namespace posenc::v0
