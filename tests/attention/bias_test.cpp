// SPDX-License-Identifier: Apache-2.0
// Gradients of scores, the bias of a plan's schemes, and attention by distance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/locality.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Index kBiasTokens = 5, kBiasHeads = 2, kBiasDim = 4;

std::vector<double> bias_waves(Index n, double phase) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(0.7 * static_cast<double>(i * i) + phase);
  return v;
}

// A call whose scores read everything: content, a soft cap, a table, q, and a dense bias.
struct ScoreWorld {
  std::vector<double> q = bias_waves(kBiasTokens * kBiasHeads * kBiasDim, 1),
                      k = bias_waves(kBiasTokens * kBiasHeads * kBiasDim, 2),
                      table = bias_waves(8 * kBiasHeads, 3), shaw = bias_waves(4 * kBiasDim, 4),
                      bias = bias_waves(kBiasTokens * kBiasTokens, 5),
                      d = bias_waves(kBiasHeads * kBiasTokens * kBiasTokens, 6);
  OwnedPositions at = arange(0, kBiasTokens);
  AttentionPlan plan{
      {"t5 bidirectional=false num_buckets=8 max_distance=16", "shaw left=2 right=1 values=none"},
      {.heads = kBiasHeads, .head_dim = kBiasDim, .scale = 0.5}};

  AttentionArgs call() const {
    AttentionArgs a;
    a.q = heads(q.data(), kBiasTokens, kBiasHeads, kBiasDim);
    a.k = a.v = heads(k.data(), kBiasTokens, kBiasHeads, kBiasDim);
    a.query_positions = a.key_positions = at;
    a.mask.causal = true;
    a.softcap = 1.5;
    a.mask.bias = tensor(bias.data(), {kBiasTokens, kBiasTokens});
    return a;
  }
  LoweredAttention lowered() const {
    const NamedArray named[] = {{"0.table", tensor(table.data(), {8, kBiasHeads})},
                                {"1.table", tensor(shaw.data(), {4, kBiasDim})}};
    const std::vector<Parameter> list = plan.parameters();
    std::vector<NamedArray> given;
    for (const Parameter& p : list)
      given.push_back({p.name, p.shape[0] == 8 ? named[0].array : named[1].array});
    return plan.lower(given, distance_ranges(at, at));
  }
  // sum over visible pairs of scores x d.
  double value() {
    std::vector<double> scores(d.size());
    AttentionScores s;
    s.scores = tensor(scores.data(), {1, kBiasHeads, kBiasTokens, kBiasTokens});
    lowered().scores(call(), {}, s);
    double sum = 0;
    for (std::size_t i = 0; i < d.size(); ++i)
      if (std::isfinite(scores[i])) sum += scores[i] * d[i];
    return sum;
  }
  void expect_slope(std::vector<double>& x, const std::vector<double>& got, const char* what) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double before = x[i], step = 1e-6;
      x[i] = before + step;
      const double up = value();
      x[i] = before - step;
      const double down = value();
      x[i] = before;
      EXPECT_NEAR(got[i], (up - down) / (2 * step), 2e-9) << what << " " << i;
    }
  }
};

TEST(ScoresBackward, IsTheSlopeOfEveryScore) {
  ScoreWorld w;
  std::vector<double> d_q(w.q.size()), d_k(w.k.size()), d_table(w.table.size()),
      d_shaw(w.shaw.size()), d_bias(w.bias.size());
  AttentionGradients g;
  g.q = heads(d_q.data(), kBiasTokens, kBiasHeads, kBiasDim);
  g.k = heads(d_k.data(), kBiasTokens, kBiasHeads, kBiasDim);
  g.bias = tensor(d_bias.data(), {kBiasTokens, kBiasTokens});
  const AttentionArgs call = w.call();
  std::vector<NamedGradient> named;
  const std::vector<Parameter> list = w.plan.parameters();
  for (const Parameter& p : list)
    named.push_back({p.name, p.shape[0] == 8 ? tensor(d_table.data(), {8, kBiasHeads})
                                             : tensor(d_shaw.data(), {4, kBiasDim})});
  w.lowered().scores_backward(
      call, {}, tensor(std::as_const(w.d).data(), {1, kBiasHeads, kBiasTokens, kBiasTokens}), g,
      named);
  w.expect_slope(w.q, d_q, "q");
  w.expect_slope(w.k, d_k, "k");
  w.expect_slope(w.table, d_table, "table");
  w.expect_slope(w.shaw, d_shaw, "table_k");
  w.expect_slope(w.bias, d_bias, "bias");
}

TEST(ScoresBackward, RefusesOtherShapesAndItsOwnMemory) {
  ScoreWorld w;
  const AttentionArgs call = w.call();
  const auto of = [&](const ConstTensorView& d, const AttentionGradients& g = {}) {
    return refusal([&] { w.lowered().scores_backward(call, {}, d, g, {}); });
  };
  EXPECT_THAT(of(tensor(std::as_const(w.d).data(), {kBiasHeads, kBiasTokens, kBiasTokens})),
              HasSubstr("the gradient of the scores must be [batch, heads, queries, keys]"));
  std::vector<std::int32_t> whole(w.d.size());
  EXPECT_THAT(of(tensor(std::as_const(whole).data(), {1, kBiasHeads, kBiasTokens, kBiasTokens})),
              HasSubstr("must be f64 or f32"));
  AttentionGradients g;
  g.q = heads(w.d.data(), kBiasTokens, kBiasHeads, kBiasDim);
  EXPECT_THAT(of(tensor(std::as_const(w.d).data(), {1, kBiasHeads, kBiasTokens, kBiasTokens}), g),
              HasSubstr("overlap"));
}

// T5's table by hand: four causal tokens have four pairs at distance 0 and six later keys, which read
// row 0 too, then three, two and one pairs.
TEST(Bias, OfT5AndItsGradient) {
  const AttentionPlan plan("t5 bidirectional=false", {.heads = 1, .head_dim = 8});
  std::vector<double> table(32), d_table(32), bias(16), ones(16, 1.0);
  for (std::size_t r = 0; r < table.size(); ++r) table[r] = static_cast<double>(r * r);
  const OwnedPositions at = arange(0, 4);
  const NamedArray p[] = {{"table", tensor(std::as_const(table).data(), {32, 1})}};
  const LoweredAttention lowered = plan.lower(p, distance_ranges(at, at));
  lowered.bias(at, at, {}, tensor(bias.data(), {1, 1, 4, 4}));
  EXPECT_THAT(bias, ElementsAre(0, 0, 0, 0, 1, 0, 0, 0, 4, 1, 0, 0, 9, 4, 1, 0));
  const NamedGradient g[] = {{"table", tensor(d_table.data(), {32, 1})}};
  lowered.bias_backward(at, at, {}, tensor(std::as_const(ones).data(), {1, 1, 4, 4}), g);
  EXPECT_EQ(std::vector<double>(d_table.begin(), d_table.begin() + 5),
            (std::vector<double>{10, 3, 2, 1, 0}));
}

TEST(Bias, SidesAndRefusals) {
  const AttentionPlan half("alibi future=half_heads", {.heads = 2, .head_dim = 8});
  const OwnedPositions at = arange(0, 2);
  const LoweredAttention lowered_half = half.lower({}, distance_ranges(at, at));
  std::vector<double> bias(8);
  lowered_half.bias(at, at, {}, tensor(bias.data(), {1, 2, 2, 2}));
  EXPECT_TRUE(std::isinf(bias[1]) != std::isinf(bias[2]));  // head 0 sees one side
  EXPECT_TRUE(std::isinf(bias[5]) != std::isinf(bias[6]));
  const AttentionPlan shaw("shaw left=2 values=none", {.heads = 2, .head_dim = 8});
  const std::vector<double> table(3 * 8);
  const NamedArray p[] = {{"table", tensor(table.data(), {3, 8})}};
  const LoweredAttention lowered_shaw = shaw.lower(p, distance_ranges(at, at));
  EXPECT_THAT(refusal([&] {
                lowered_shaw.bias(at, at, {}, tensor(bias.data(), {1, 2, 2, 2}));
              }),
              HasSubstr("must not read q, k or v"));
  const OwnedPositions two{std::vector<Index>{0, 1, 0, 1}, 1, 2};
  EXPECT_THAT(refusal([&] {
                lowered_half.bias(two, at, {}, tensor(bias.data(), {1, 2, 2, 2}));
              }),
              HasSubstr("query positions of a bias must be those of one sequence"));
}

TEST(Locality, IsTheMeanOverTheQueriesThatSee) {
  // Three queries of one head; the first sees nothing.
  const std::vector<double> p{0, 0, 0, 0.25, 0.75, 0, 0.5, 0.25, 0.25};
  const OwnedPositions at = explicit_positions(std::vector<Index>{0, 1, 3});
  const Locality l = locality(tensor(p.data(), {1, 1, 3, 3}), at, at);
  EXPECT_THAT(l.distance, ElementsAre(-3, -2, -1, 0, 1, 2, 3));
  EXPECT_THAT(l.mass, ElementsAre(0, 0, 0, DoubleEq(0.5), DoubleEq(0.125), DoubleEq(0.125),
                                  DoubleEq(0.25)));
  EXPECT_THAT(refusal([&] {
                locality(tensor(p.data(), {3, 3}), at, at);
              }),
              HasSubstr("probabilities must be [batch, heads, queries, keys]"));
  EXPECT_THAT(refusal([&] {
                locality(tensor(p.data(), {1, 1, 3, 3}), arange(0, 2), at);
              }),
              HasSubstr("query positions must be as many as the tokens"));
  const OwnedPositions far = explicit_positions(std::vector<Index>{0, 1, Index{1} << 25});
  EXPECT_THAT(refusal([&] {
                locality(tensor(p.data(), {1, 1, 3, 3}), far, at);
              }),
              HasSubstr("at most 16777216"));
}

}  // namespace
}  // namespace posenc
