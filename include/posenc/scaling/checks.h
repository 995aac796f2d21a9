// SPDX-License-Identifier: Apache-2.0
// Helpers of scalings: errors in the scaling's name, and changes that keep the three forms of a spectrum
// (frequencies, geometric law, ggml's arguments) consistent.
// Implementation: src/scaling/checks.cpp.
#pragma once
#include <string_view>
#include <vector>

#include "posenc/scaling/policy.h"

namespace posenc::inline v0::detail {

POSENC_API void need_positive(std::string_view who, std::string_view field, double value);
POSENC_API void need_positive(std::string_view who, std::string_view field, Index value);
POSENC_API void need_finite(std::string_view who, std::string_view field, double value);
POSENC_API void need_not_negative(std::string_view who, std::string_view field, double value);

// A list of one number a pair.
POSENC_API void need_length(std::string_view who, std::string_view field,
                            const std::vector<double>& list, Index pairs);
POSENC_API void need_positive_list(std::string_view who, std::string_view field,
                                   const std::vector<double>& list, Index pairs);

// frequency = f(pair, frequency), for every head and axis.
template <class F>
void change_frequencies(Spectrum& s, F&& f) {
  const Index pairs = s.pairs() < 1 ? 1 : s.pairs();
  for (std::size_t k = 0; k < s.frequency.size(); ++k)
    s.frequency[k] = f(static_cast<Index>(k) % pairs, s.frequency[k]);
}

POSENC_API void multiply_gain(Spectrum& s, double by);

// ggml divides the frequency of pair i by factors[i] before it scales: a divisor of the finished
// frequency is the same, the scaling being linear in the frequency.
POSENC_API void divide_ggml(Spectrum& s, const std::vector<double>& divisors);

// The same spectrum from another base; gain, logit factor and validity stay.
POSENC_API Spectrum with_base(Spectrum s, double base, std::string_view who);

// base * alpha^(d/(d-2)): the last pair is slowed by exactly alpha, the first not at all. bloc97.
POSENC_API Spectrum with_alpha(Spectrum s, double alpha, std::string_view who);

// g(s, m) of YaRN's authors and DeepSeek: 1 for s <= 1, else slope * m * ln s + 1; slope is 0.1.
POSENC_API double mscale_amplitude(double factor, double mscale, double slope = 0.1);

}  // namespace posenc::v0::detail
