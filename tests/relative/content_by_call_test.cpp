// SPDX-License-Identifier: Apache-2.0
// Segatron-XL and ProphetNet by their definitions, and the laws of their gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "posenc/relative/prophetnet.h"
#include "posenc/relative/segatron_xl.h"
#include "posenc/relative/t5.h"
#include "posenc/relative/transformer_xl.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> content_numbers(Index n, double phase) {
  std::vector<double> v;
  for (Index i = 0; i < n; ++i) v.push_back(std::sin(1.7 * static_cast<double>(i) + phase));
  return v;
}

// Scores of one head, one batch, with what the scheme adds.
std::vector<double> content_scores(const AnyRelativeScheme& scheme, Index tokens, Index dim,
                                   const Positions& at, std::span<const NamedArray> parameters,
                                   std::span<const NamedArray> inputs, const std::vector<double>& q,
                                   const std::vector<double>& k) {
  const AttentionPlan plan({scheme}, {.heads = 1, .head_dim = dim, .scale = 0.5});
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(at, at));
  AttentionArgs a;
  a.q = heads(q.data(), tokens, 1, dim);
  a.k = a.v = heads(k.data(), tokens, 1, dim);
  a.scale = 0.5;
  a.query_positions = a.key_positions = at;
  std::vector<double> scores(static_cast<std::size_t>(tokens * tokens));
  AttentionScores s;
  s.scores = tensor(scores.data(), {1, 1, tokens, tokens});
  lowered.scores(a, inputs, s);
  return scores;
}

// Sentences 0, 0, 1, 1 of two paragraphs: the distance of sentences is not that of tokens.
TEST(SegatronXl, IsItsFormula) {
  const SegatronXl scheme{.d_model = 8, .widths = {4, 2, 2}};
  const Index n = 4, dim = 3;
  const std::vector<std::vector<Index>> at{{0, 1, 0, 1}, {0, 0, 1, 1}, {0, 0, 0, 1}};
  std::vector<Index> all;
  for (const auto& axis : at) all.insert(all.end(), axis.begin(), axis.end());
  const OwnedPositions positions = explicit_positions(all, 1, 3);
  const std::vector<double> w = content_numbers(dim * 8, 0.3), u = content_numbers(dim, 1),
                            v = content_numbers(dim, 2), q = content_numbers(n * dim, 3),
                            k = content_numbers(n * dim, 4);
  const NamedArray p[] = {{"w_kr", tensor(w.data(), {dim, 8})},
                          {"u", tensor(u.data(), {1, dim})},
                          {"v_bias", tensor(v.data(), {1, dim})}};
  const std::vector<double> got = content_scores(scheme, n, dim, positions, p, {}, q, k);
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) {
      std::vector<double> r;
      for (std::size_t a = 0; a < 3; ++a) {
        const TransformerXl one{.d_model = a == 0 ? 4 : 2};
        const std::vector<double> row =
            one.sinusoid(at[a][static_cast<std::size_t>(i)] - at[a][static_cast<std::size_t>(j)]);
        r.insert(r.end(), row.begin(), row.end());
      }
      double sum = 0;
      for (Index c = 0; c < dim; ++c) {
        double projected = 0;
        for (Index m = 0; m < 8; ++m)
          projected += w[static_cast<std::size_t>(c * 8 + m)] * r[static_cast<std::size_t>(m)];
        const double qi = q[static_cast<std::size_t>(i * dim + c)];
        sum += (qi + u[static_cast<std::size_t>(c)]) * k[static_cast<std::size_t>(j * dim + c)] +
               (qi + v[static_cast<std::size_t>(c)]) * projected;
      }
      EXPECT_NEAR(got[static_cast<std::size_t>(i * n + j)], 0.5 * sum, 1e-14) << i << " " << j;
    }
}

// One axis alone is Transformer-XL.
TEST(SegatronXl, OneAxisIsTransformerXl) {
  const ScoreShape s{.heads = 2, .head_dim = 2, .distance = {{-2, 3}}};
  const std::vector<double> w = content_numbers(24, 0), b = content_numbers(4, 1);
  const ConstTensorView p[] = {tensor(w.data(), {4, 6}), tensor(b.data(), {2, 2}),
                               tensor(b.data(), {2, 2})};
  LoweredTerms one, xl;
  SegatronXl{.d_model = 6, .widths = {6}}.lower(s, p, one);
  TransformerXl{.d_model = 6}.lower(s, p, xl);
  ASSERT_EQ(one.terms.size(), xl.terms.size());
  for (std::size_t t = 1; t < 3; ++t)
    for (Index i = 0; i < term_arrays(xl.terms[t]).table.count(); ++i)
      EXPECT_EQ(data_of<double>(term_arrays(one.terms[t]).table)[i],
                data_of<double>(term_arrays(xl.terms[t]).table)[i]);
}

TEST(SegatronXl, WidthsOfTheAxes) {
  EXPECT_THAT((SegatronXl{.d_model = 410}.axis_widths()), ElementsAre(136, 136, 138));
  EXPECT_THAT((SegatronXl{.d_model = 1024}.axis_widths()), ElementsAre(342, 342, 340));
  EXPECT_THAT((SegatronXl{.d_model = 6, .widths = {4, 2}}.axis_widths()), ElementsAre(4, 2));
}

// (W x_i + c)[bucket(i - j), h], unscaled, beside 0.5 q.k.
TEST(ProphetNet, IsItsFormula) {
  const ProphetNet scheme{.d_model = 3, .num_buckets = 6, .max_distance = 10};
  const Index n = 14, dim = 2;
  const std::vector<double> w = content_numbers(6 * 3, 0.1), c = content_numbers(6, 1),
                            x = content_numbers(n * 3, 2), q = content_numbers(n * dim, 3),
                            k = content_numbers(n * dim, 4);
  const NamedArray p[] = {{"bias_weight", tensor(w.data(), {6, 3})},
                          {"bias_bias", tensor(c.data(), {6})}};
  const NamedArray inputs[] = {{"hidden", tensor(x.data(), {1, n, 3})}};
  const OwnedPositions at = arange(0, n);
  const std::vector<double> got = content_scores(scheme, n, dim, at, p, inputs, q, k);
  const T5 rule{.bidirectional = false, .num_buckets = 6, .max_distance = 10};
  for (Index i = 0; i < n; ++i)
    for (Index j = 0; j < n; ++j) {
      const Index bucket = rule.bucket(i - j);
      double want = c[static_cast<std::size_t>(bucket)];
      for (Index m = 0; m < 3; ++m)
        want +=
            w[static_cast<std::size_t>(bucket * 3 + m)] * x[static_cast<std::size_t>(i * 3 + m)];
      for (Index m = 0; m < dim; ++m)
        want += 0.5 * q[static_cast<std::size_t>(i * dim + m)] *
                k[static_cast<std::size_t>(j * dim + m)];
      EXPECT_NEAR(got[static_cast<std::size_t>(i * n + j)], want, 1e-14) << i << " " << j;
    }
}

TEST(SegatronXl, Laws) {
  check_scheme_laws(SegatronXl{.d_model = 6});
  check_scheme_laws(SegatronXl{.d_model = 10, .widths = {4, 6}});
}
TEST(ProphetNet, Laws) {
  check_scheme_laws(ProphetNet{.d_model = 5, .num_buckets = 6, .max_distance = 5});
  check_scheme_laws(ProphetNet{.d_model = 2, .num_buckets = 2, .max_distance = 2},
                    {.causal = true});
}

TEST(SegatronXl, Refusals) {
  const ScoreShape s{.heads = 1, .head_dim = 2, .distance = {{0, 3}, {0, 1}}};
  const auto says = [&](const auto& x) { return refusal([&] { x.parameters(s); }); };
  EXPECT_THAT(says(SegatronXl{}), HasSubstr("[segatron_xl] d_model must be at least 6"));
  EXPECT_THAT(says(SegatronXl{.d_model = 7}), HasSubstr("[segatron_xl] the width of an axis"));
  EXPECT_THAT(says(SegatronXl{.d_model = 8, .widths = {4, 2}}),
              HasSubstr("[segatron_xl] the widths must add up to d_model, which is 8, got 6"));
  EXPECT_THAT(says(SegatronXl{.d_model = 6, .init = -1}), HasSubstr("[segatron_xl] init"));
  const std::vector<double> w(12), b(2);
  const ConstTensorView p[] = {tensor(w.data(), {2, 6}), tensor(b.data(), {1, 2}),
                               tensor(b.data(), {1, 2})};
  LoweredTerms out;
  EXPECT_THAT(refusal([&] { SegatronXl{.d_model = 6}.lower(s, p, out); }), HasSubstr("[shape]"));
}
TEST(ProphetNet, Refusals) {
  const ScoreShape s{.heads = 1, .head_dim = 2, .distance = {{0, 3}}};
  const auto says = [&](const auto& x) { return refusal([&] { x.parameters(s); }); };
  EXPECT_THAT(says(ProphetNet{}), HasSubstr("[prophetnet] d_model"));
  EXPECT_THAT(says(ProphetNet{.d_model = 1, .num_buckets = 1}),
              HasSubstr("[prophetnet] num_buckets"));
  EXPECT_THAT(says(ProphetNet{.d_model = 1, .num_buckets = 8, .max_distance = 4}),
              HasSubstr("[prophetnet] max_distance"));
  EXPECT_THAT(says(ProphetNet{.d_model = 1, .init = -1}), HasSubstr("[prophetnet] init"));
}

}  // namespace
}  // namespace posenc::test
