// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "posenc/registry.h"

namespace posenc::test {

inline void expect_frequencies(const std::vector<double>& got, const std::vector<double>& want,
                               double relative) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], relative * std::abs(want[i])) << "pair " << i;
}

// Llama-2: what the published numbers start from.
inline constexpr double kPi = std::numbers::pi;

inline Spectrum llama2() {
  return geometric_spectrum(10000, 128);
}

inline Ntk ntk(double factor, NtkFormula formula) {
  Ntk n;
  n.factor = factor;
  n.formula = formula;
  return n;
}

inline Yarn yarn(double factor, Index original) {
  Yarn y;
  y.factor = factor;
  y.original_context = original;
  return y;
}

inline NtkByParts parts(double factor, Index original, PartsForm form) {
  NtkByParts p;
  p.factor = factor;
  p.original_context = original;
  p.form = form;
  return p;
}

inline Dynamic dynamic(double factor, Index trained, LengthRule rule, Index declared = 0) {
  Dynamic d;
  d.factor = factor;
  d.trained_length = trained;
  d.length_rule = rule;
  d.declared_length = declared;
  return d;
}

inline std::vector<double> ratios(const Spectrum& scaled, const Spectrum& plain) {
  std::vector<double> r;
  for (std::size_t i = 0; i < plain.frequency.size(); ++i)
    r.push_back(scaled.frequency[i] / plain.frequency[i]);
  return r;
}

}  // namespace posenc::test
