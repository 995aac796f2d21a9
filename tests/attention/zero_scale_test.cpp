// SPDX-License-Identifier: Apache-2.0
// A scale of 0 is 0: the softmax of the terms alone. Weights are written out by hand, as in the case
// of pytorch/pytorch#185991 (a score_mod that does not read the score).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "posenc/attention/path.h"
#include "posenc/attention/plan.h"
#include "posenc/attention/selective.h"
#include "posenc/positions.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::HasSubstr;

constexpr Index kZeroTokens = 6, kZeroHeads = 2, kZeroDim = 4;

std::vector<double> zero_waves(Index n, double phase) {
  std::vector<double> x;
  for (Index i = 0; i < n; ++i) x.push_back(std::sin(1.7 * static_cast<double>(i) + phase));
  return x;
}

struct ZeroWorld {
  static constexpr Index kNumbers = kZeroTokens * kZeroHeads * kZeroDim;
  std::vector<double> q = zero_waves(kNumbers, 0.1), k = zero_waves(kNumbers, 1.3),
                      v = zero_waves(kNumbers, 2.9), out = std::vector<double>(kNumbers),
                      lse = std::vector<double>(kZeroHeads * kZeroTokens);
  OwnedPositions at = arange(0, kZeroTokens);

  ConstHeads read(const std::vector<double>& x) const {
    return heads(x.data(), kZeroTokens, kZeroHeads, kZeroDim);
  }
  AttentionArgs call() const {
    AttentionArgs a;
    a.q = read(q), a.k = read(k), a.v = read(v);
    a.query_positions = a.key_positions = at;
    a.mask.causal = true;
    return a;
  }
  AttentionResult result() {
    return {heads(out.data(), kZeroTokens, kZeroHeads, kZeroDim),
            tensor(lse.data(), {1, kZeroHeads, kZeroTokens})};
  }
  double value(Index j, Index h, Index c) const {
    return v[static_cast<std::size_t>((j * kZeroHeads + h) * kZeroDim + c)];
  }
  double got(Index i, Index h, Index c) const {
    return out[static_cast<std::size_t>((i * kZeroHeads + h) * kZeroDim + c)];
  }
  // weight(h, i, j) over the keys up to i.
  template <class F>
  void expect_weights(const F& weight) const {
    for (Index h = 0; h < kZeroHeads; ++h)
      for (Index i = 0; i < kZeroTokens; ++i)
        for (Index c = 0; c < kZeroDim; ++c) {
          double sum = 0, want = 0;
          for (Index j = 0; j <= i; ++j) sum += weight(h, i, j);
          for (Index j = 0; j <= i; ++j) want += weight(h, i, j) / sum * value(j, h, c);
          EXPECT_NEAR(got(i, h, c), want, 1e-14) << h << " " << i << " " << c;
        }
  }
};

const auto kUniform = [](Index, Index, Index) { return 1.0; };

TEST(ZeroScale, WithoutTermsWeightsAreUniform) {
  for (const double zero : {0.0, -0.0}) {
    ZeroWorld w;
    AttentionArgs a = w.call();
    a.scale = zero;
    attend(a, w.result());
    w.expect_weights(kUniform);
    for (Index i = 0; i < kZeroTokens; ++i)
      EXPECT_NEAR(w.lse[static_cast<std::size_t>(i)], std::log(static_cast<double>(i + 1)), 1e-15);
  }
}

TEST(ZeroScale, OfAPlanLeavesItsTerms) {
  // ALiBi's slopes of two heads are 2^-4 and 2^-8 (Press et al., section 3).
  const auto slope = [](Index h) { return h == 0 ? 0.0625 : 0.00390625; };
  ZeroWorld w;
  const AttentionPlan plan("alibi", {.heads = kZeroHeads, .head_dim = kZeroDim, .scale = 0});
  const LoweredAttention lowered = plan.lower({}, distance_ranges(w.at, w.at));
  EXPECT_EQ(lowered.scale(), 0);
  lowered.forward(w.call(), {}, w.result());
  w.expect_weights(
      [&](Index h, Index i, Index j) { return std::exp(-slope(h) * static_cast<double>(i - j)); });
}

// T5 asks for 1, which 0 overrides.
TEST(ZeroScale, OverridesWhatASchemeAsksFor) {
  const std::vector<double> table = zero_waves(8 * kZeroHeads, 0.7);
  const NamedArray parameter[] = {{"table", tensor(table.data(), {8, kZeroHeads})}};
  ZeroWorld w;
  const AttentionPlan plan("t5 bidirectional=false num_buckets=8 max_distance=40",
                           {.heads = kZeroHeads, .head_dim = kZeroDim, .scale = 0});
  const LoweredAttention lowered = plan.lower(parameter, distance_ranges(w.at, w.at));
  lowered.forward(w.call(), {}, w.result());
  w.expect_weights([&](Index h, Index i, Index j) {  // 4 exact buckets, then those of 4 and 5: 4
    return std::exp(table[static_cast<std::size_t>(std::min<Index>(i - j, 4) * kZeroHeads + h)]);
  });
}

// Transformer-XL multiplies its own terms by the content's scale too.
TEST(ZeroScale, ReachesTermsThatUseTheScaleOfTheContent) {
  const std::vector<double> w1 = zero_waves(64, 0.2), u = zero_waves(8, 0.4),
                            bias = zero_waves(8, 2);
  const NamedArray parameters[] = {{"r_net", tensor(w1.data(), {8, 8})},
                                   {"r_w_bias", tensor(u.data(), {2, 4})},
                                   {"r_r_bias", tensor(bias.data(), {2, 4})}};
  const AttentionPlan plan("transformer_xl d_model=8",
                           {.heads = kZeroHeads, .head_dim = kZeroDim, .scale = 0});
  std::vector<NamedArray> named;
  const std::vector<Parameter> wanted = plan.parameters();
  ASSERT_EQ(wanted.size(), 3u);
  for (std::size_t n = 0; n < 3; ++n) named.push_back({wanted[n].name, parameters[n].array});
  ZeroWorld w;
  const LoweredAttention lowered = plan.lower(named, distance_ranges(w.at, w.at));
  lowered.forward(w.call(), {}, w.result());
  w.expect_weights(kUniform);
}

// Enformer's u and v have no scale: their terms are what a scale near 0 leaves.
TEST(ZeroScale, LeavesTermsWithoutAScale) {
  const std::vector<double> rows = zero_waves(8 * 6, 0.2), u = zero_waves(8, 0.4),
                            bias = zero_waves(8, 2);
  const NamedArray parameters[] = {{"w_r", tensor(rows.data(), {8, 6})},
                                   {"u", tensor(u.data(), {2, 4})},
                                   {"v_bias", tensor(bias.data(), {2, 4})}};
  std::vector<double> out[2];
  for (const bool tiny : {false, true}) {
    const AttentionPlan plan(
        "enformer length=8 features=6",
        {.heads = kZeroHeads, .head_dim = kZeroDim, .scale = tiny ? 1e-12 : 0.0});
    ZeroWorld w;
    plan.lower(parameters, distance_ranges(w.at, w.at)).forward(w.call(), {}, w.result());
    out[tiny ? 1 : 0] = w.out;
  }
  for (std::size_t n = 0; n < out[0].size(); ++n) EXPECT_NEAR(out[0][n], out[1][n], 1e-10) << n;
}

TEST(ZeroScale, GivesNoGradientToQueriesAndKeys) {
  ZeroWorld w;
  AttentionArgs a = w.call();
  a.scale = 0;
  attend(a, w.result());
  std::vector<double> d[3];
  for (std::vector<double>& x : d) x.assign(ZeroWorld::kNumbers, 0.0);
  AttentionGradients g;
  const auto view = [](std::vector<double>& x) {
    return Heads(heads(x.data(), kZeroTokens, kZeroHeads, kZeroDim));
  };
  g.q = view(d[0]), g.k = view(d[1]), g.v = view(d[2]);
  attend_backward(a, w.result(), {w.read(w.q), {}}, g);
  const std::vector<double> nothing(ZeroWorld::kNumbers, 0.0);
  EXPECT_EQ(d[0], nothing);
  EXPECT_EQ(d[1], nothing);
  // The last value meets the last query alone, with weight 1 / 6.
  const std::size_t last = d[2].size() - 1;
  EXPECT_NEAR(d[2][last], w.q[last] / 6, 1e-16);
}

TEST(ZeroScale, OfACallMustBeThatOfThePlan) {
  ZeroWorld w;
  const AttentionPlan usual("nope", {.heads = kZeroHeads, .head_dim = kZeroDim});
  const LoweredAttention lowered_usual = usual.lower({});
  EXPECT_EQ(lowered_usual.scale(), 0.5);
  AttentionArgs a = w.call();
  a.scale = 0;
  EXPECT_THAT(refusal([&] { lowered_usual.forward(a, {}, w.result()); }),
              HasSubstr("scale of the call must be absent or that of the plan"));
  const AttentionPlan none("nope", {.heads = kZeroHeads, .head_dim = kZeroDim, .scale = 0});
  const LoweredAttention lowered_none = none.lower({});
  EXPECT_NO_THROW(lowered_none.forward(a, {}, w.result()));
  w.expect_weights(kUniform);
}

// The scores of the head that masks are 0, so that it masks nothing.
TEST(ZeroScale, OfSelectiveAttention) {
  ZeroWorld w;
  AttentionArgs a = w.call();
  a.scale = 0;
  attend_selective(a, w.result());
  w.expect_weights(kUniform);
}

TEST(ZeroScale, OfPath) {
  ZeroWorld w;
  const std::vector<double> beta(kZeroTokens, 1.0), w1 = zero_waves(kZeroTokens * kZeroDim, 4);
  PathArgs a;
  a.q = w.read(w.q), a.k = w.read(w.k), a.v = w.read(w.v);
  a.w = heads(w1.data(), kZeroTokens, 1, kZeroDim);
  a.beta = heads(beta.data(), kZeroTokens, 1, 1);
  attend_path(a, w.result());
  const std::vector<double> usual = w.out;
  a.scale = 0.5;  // 4^-1/2
  attend_path(a, w.result());
  EXPECT_EQ(w.out, usual);
  a.scale = 0;
  attend_path(a, w.result());
  w.expect_weights(kUniform);
}

}  // namespace
}  // namespace posenc
