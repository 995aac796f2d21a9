// SPDX-License-Identifier: Apache-2.0
// Llama-3.1's scaling (the reference code of meta-llama/llama-models). With lambda = 2 pi / theta:
//   lambda < L/hi  theta        lambda > L/lo  theta / s
//   else           theta ((1 - m)/s + m),   m = (L/lambda - lo) / (hi - lo)
// hi = lo is a pure step at L/lo (published Llama-4-Scout), hi < lo one too: as transformers runs.
// ggml has no such rule: its files carry the divisors (rope_freqs.weight).
// Implementation: src/scaling/llama3.cpp.
#pragma once
#include "posenc/scaling/checks.h"

namespace posenc::inline v0 {

struct Llama3 {
  static constexpr Card card{"llama3", "Llama-3.1 scaling", "meta-llama/llama-models", ""};
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  Index original_context = 0;

  POSENC_API Spectrum rescale(Spectrum s, Context) const;
  // What the frequency is divided by: 1, s, or between.
  POSENC_API double divisor(double theta) const;
  bool operator==(const Llama3&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("factor", s.factor, Field{.doc = "s", .min = 1e-300, .required = true});
    v("low_freq_factor", s.low_freq_factor,
      Field{.doc = "pairs of fewer rotations within L are divided by s",
            .unit = "turns",
            .min = 1e-300,
            .required = true});
    v("high_freq_factor", s.high_freq_factor,
      Field{.doc = "pairs of more rotations are unchanged",
            .unit = "turns",
            .min = 1e-300,
            .required = true});
    v("original_context", s.original_context,
      Field{.doc = "L, trained length", .unit = "tokens", .min = 1, .required = true});
  }
};

}  // namespace posenc::v0
