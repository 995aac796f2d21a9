// SPDX-License-Identifier: Apache-2.0
// The stated bounds of cosine and sine, against MPFR, at the positions of the bound.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/core/isa.h"
#include "posenc/rotary/plan.h"

namespace posenc {
namespace {

const Index kPositions[] = {0,       1,           -1,          4095,           131071,
                            1048575, 2147483647,  -2147483648, Index{1} << 37, -(Index{1} << 37),
                            999983,  123456789012};

// cos and sin of position * frequency, the double of the spectrum taken as it is.
void exact(double frequency, double position, long double* c, long double* s) {
  mpfr_t a, b, sine, cosine;
  mpfr_inits2(400, a, b, sine, cosine, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_d(a, frequency, MPFR_RNDN);
  mpfr_set_d(b, position, MPFR_RNDN);
  mpfr_mul(a, a, b, MPFR_RNDN);
  mpfr_sin_cos(sine, cosine, a, MPFR_RNDN);
  *c = mpfr_get_ld(cosine, MPFR_RNDN), *s = mpfr_get_ld(sine, MPFR_RNDN);
  mpfr_clears(a, b, sine, cosine, static_cast<mpfr_ptr>(nullptr));
}

RotarySpec spec_of(const Spectrum& s) {
  RotarySpec spec;
  spec.head_dim = 2 * s.pairs();
  RotaryBlock b;
  b.pairing = Pairing::half_split;
  b.spectrum = s;
  spec.blocks.push_back(b);
  return spec;
}

// Turning (1, 0) gives cosine and sine themselves.
template <class T, class P>
long double worst(const RotarySpec& spec, const std::vector<P>& at) {
  const Index n = spec.head_dim / 2, tokens = static_cast<Index>(at.size());
  std::vector<T> x(static_cast<std::size_t>(tokens * 2 * n), T{0});
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < n; ++i) x[static_cast<std::size_t>(t * 2 * n + i)] = 1;
  RotaryPlan(spec, dtype_of<T>)
      .apply({heads(x.data(), tokens, 1, 2 * n), {}}, positions(std::span<const P>(at)));
  long double most = 0;
  for (Index t = 0; t < tokens; ++t)
    for (Index i = 0; i < n; ++i) {
      long double c, s;
      exact(spec.blocks[0].spectrum.frequency[static_cast<std::size_t>(i)],
            static_cast<double>(at[static_cast<std::size_t>(t)]), &c, &s);
      const auto* row = x.data() + t * 2 * n;
      most = std::max({most, fabsl(static_cast<long double>(row[i]) - c),
                       fabsl(static_cast<long double>(row[n + i]) - s)});
    }
  return most;
}

class Accuracy : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { reset_isa(); }
  double bound() const {
    const bool fused =
        GetParam() != Isa::scalar && GetParam() != Isa::ssse3 && GetParam() != Isa::sse4;
    return fused ? 1.0e-7 : 1.1e-7;
  }
};

std::vector<Index> sampled() {
  std::vector<Index> at;
  for (const Index p : kPositions)
    for (Index i = 0; i < 12; ++i) at.push_back(p >= 4095 ? p - 7919 * i % p : p);
  return at;
}

TEST_P(Accuracy, Float) {
  for (const double base : {1e4, 5e5, 1e6})
    EXPECT_LE(static_cast<double>(worst<float>(spec_of(geometric_spectrum(base, 128)), sampled())),
              bound())
        << base;
}

TEST_P(Accuracy, Double) {
  for (const double base : {1e4, 5e5})
    EXPECT_LE(static_cast<double>(worst<double>(spec_of(geometric_spectrum(base, 128)), sampled())),
              3e-16)
        << base;
}

TEST_P(Accuracy, RealPositions) {
  std::vector<double> at{0.5, -0.25, 0.1, -1e-9, 3.75, 4095.123, -131071.7, 1048575.5};
  for (int i = 0; i < 40; ++i) at.push_back(std::sin(i) * 1000);
  const Spectrum s = geometric_spectrum(100, 66);
  EXPECT_LE(static_cast<double>(worst<float>(spec_of(s), at)), bound());
  EXPECT_LE(static_cast<double>(worst<double>(spec_of(s), at)), 6e-16);
}

TEST_P(Accuracy, ThirtyTwoBitPositions) {
  const std::vector<std::int32_t> at{0, 1, -1, 2147483647, -2147483647 - 1, 77};
  EXPECT_LE(static_cast<double>(worst<float>(spec_of(geometric_spectrum(1e4, 128)), at)), bound());
}

// Large frequencies turn many times a position.
TEST_P(Accuracy, FastFrequencies) {
  Spectrum s;
  for (int i = 0; i < 32; ++i) s.frequency.push_back(1000.0 / (i + 1) * (i % 2 ? -1 : 1));
  EXPECT_LE(static_cast<double>(worst<float>(spec_of(s), sampled())), bound());
  EXPECT_LE(static_cast<double>(worst<double>(spec_of(s), sampled())), 3e-16);
}

INSTANTIATE_TEST_SUITE_P(All, Accuracy, ::testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

}  // namespace
}  // namespace posenc
