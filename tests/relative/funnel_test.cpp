// SPDX-License-Identifier: Apache-2.0
// Funnel-Transformer by XLNet's terms with a class token, and Inkling's logarithmic growth of a
// projected bias: numbers of transformers 5.23, run in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"
#include "posenc/registry.h"
#include "support/refusal.h"
#include "support/scheme_laws.h"

namespace posenc {
namespace {

using test::check_scheme_laws;
using test::LawCall;
using test::refusal;
using ::testing::HasSubstr;

const XlNet kFunnel{.d_model = 4,
                    .segments = 3,
                    .class_token = true,
                    .segment_rows = XlNetSegmentRows::differs_first,
                    .shared_segment = 2};

// Number i is 0.4 sin(7 i + 3 + which).
std::vector<double> made_up(int which, std::size_t count) {
  std::vector<double> v;
  for (std::size_t i = 0; i < count; ++i) v.push_back(0.4 * std::sin(7.0 * double(i) + 3 + which));
  return v;
}

struct FunnelCall {
  std::vector<Index> query_at, key_at, query_segment, key_segment;
  int q = 6, k = 7;
};

// Two heads of two channels, [heads, queries, keys].
std::vector<double> funnel_scores(const FunnelCall& f) {
  const auto w = made_up(3, 16), u = made_up(1, 4), v = made_up(2, 4), b = made_up(4, 4),
             e = made_up(5, 8);
  const NamedArray parameters[] = {{"w_kr", tensor(w.data(), {4, 2, 2})},
                                   {"u", tensor(u.data(), {2, 2})},
                                   {"v_bias", tensor(v.data(), {2, 2})},
                                   {"s_bias", tensor(b.data(), {2, 2})},
                                   {"seg_embed", tensor(e.data(), {2, 2, 2})}};
  const AttentionPlan plan({kFunnel}, {.heads = 2, .head_dim = 2});
  const OwnedPositions query = explicit_positions(f.query_at, 1, 1),
                       key = explicit_positions(f.key_at, 1, 1);
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(query, key));
  const Index n = query.count(), m = key.count();
  const auto q = made_up(f.q, std::size_t(n) * 4), k = made_up(f.k, std::size_t(m) * 4);
  AttentionArgs a;
  a.q = heads(q.data(), n, 2, 2);
  a.k = a.v = heads(k.data(), m, 2, 2);
  a.query_positions = query;
  a.key_positions = key;
  const auto numbers = [](const std::vector<Index>& x) {
    return tensor(static_cast<const void*>(x.data()), DType::i64, {1, Index(x.size())});
  };
  const NamedArray inputs[] = {{"query_segment", numbers(f.query_segment)},
                               {"key_segment", numbers(f.key_segment)}};
  std::vector<double> scores(std::size_t(2 * n * m));
  AttentionScores s;
  s.scores = tensor(scores.data(), {1, 2, n, m});
  lowered.scores(a, inputs, s);
  return scores;
}

struct ScoreAt {
  std::size_t head, query, key;
  double score;
};
void expect_scores(const FunnelCall& f, std::span<const ScoreAt> want) {
  const std::vector<double> got = funnel_scores(f);
  const std::size_t n = f.query_at.size(), m = f.key_at.size();
  for (const ScoreAt& w : want)
    EXPECT_NEAR(got[(w.head * n + w.query) * m + w.key], w.score, 1e-15)
        << w.head << " " << w.query << " " << w.key;
}

// FunnelRelMultiheadAttention of block 0 with separate_cls, attention_type relative_shift; its
// factorized form gives the same numbers to 1e-16.
TEST(Funnel, FirstBlock) {
  const ScoreAt want[] = {{0, 0, 0, 0.16129874797095956},   {0, 0, 3, -0.05630002811974649},
                          {1, 3, 0, 0.028177573116158487},  {0, 1, 2, -0.14628989948370336},
                          {0, 2, 1, -0.37846042031904287},  {1, 4, 2, 0.16301767886672378},
                          {1, 5, 5, -0.027229021938863646}, {0, 1, 5, -0.05529565365213725}};
  expect_scores({.query_at = {0, 1, 2, 3, 4, 5},
                 .key_at = {0, 1, 2, 3, 4, 5},
                 .query_segment = {2, 0, 0, 1, 1, 1},
                 .key_segment = {2, 0, 0, 1, 1, 1}},
                want);
}

// Block 1 pools: its queries are the class token at 1 - 2^1 and the tokens 1 and 3.
TEST(Funnel, PooledQueries) {
  const ScoreAt want[] = {{0, 0, 0, 0.29858207777905754},  {0, 1, 0, -0.00205881002790842},
                          {0, 1, 1, -0.35143171076136287}, {0, 1, 5, 0.3375923985613897},
                          {1, 2, 4, 0.08301093904676086},  {1, 2, 1, -0.2360310699144088}};
  expect_scores({.query_at = {-1, 1, 3},
                 .key_at = {0, 1, 2, 3, 4, 5},
                 .query_segment = {2, 0, 1},
                 .key_segment = {2, 0, 0, 1, 1, 1},
                 .q = 8},
                want);
}

TEST(Funnel, PooledQueriesAndKeys) {
  const ScoreAt want[] = {{0, 0, 0, 0.0769576295484006},
                          {0, 1, 0, -0.014230948248159462},
                          {0, 1, 1, -0.3328419146905332},
                          {0, 1, 2, 0.30672281430134635},
                          {1, 2, 1, 0.02298836314929702}};
  expect_scores({.query_at = {-1, 1, 3},
                 .key_at = {-1, 1, 3},
                 .query_segment = {2, 0, 1},
                 .key_segment = {2, 0, 1},
                 .q = 8,
                 .k = 9},
                want);
}

TEST(Funnel, Laws) {
  LawCall call;
  call.classes = {{"query_segment", 3}, {"key_segment", 3}};
  check_scheme_laws(kFunnel, call);
  check_scheme_laws(XlNet{.d_model = 4, .class_token = true});
}

TEST(Funnel, Refusals) {
  const ScoreShape s{.heads = 1, .head_dim = 2, .distance = {{-1, 1}}};
  const auto of = [&](const XlNet& x) { return refusal([&] { (void)x.parameters(s); }); };
  EXPECT_THAT(of({.d_model = 4, .segments = 2, .shared_segment = 2}),
              HasSubstr("shared_segment must be -1 or lie below segments, got 2"));
}

// InklingRelativeLogits of 2 heads, 3 curves of 4 distances, times tau with n_floor 2, alpha 0.1.
const RelativeProjection kInkling{
    .basis = 3, .max_distance = 4, .width = 5, .projection_bias = false, .log_scaling_n_floor = 2};

// [heads, queries, keys] of six tokens at `first` and after it.
std::vector<double> inkling_scores(const RelativeProjection& inkling, Index first) {
  const auto bank = made_up(1, 12), w = made_up(3, 30), hidden = made_up(2, 30);
  auto scale = made_up(4, 6);
  for (double& n : scale) n += 1;
  std::vector<NamedArray> parameters{{"distance_bank", tensor(bank.data(), {3, 4})},
                                     {"w_r", tensor(w.data(), {6, 5})}};
  if (inkling.l2_clip > 0) parameters.push_back({"clip_scale", tensor(scale.data(), {2, 3})});
  const NamedArray inputs[] = {{"hidden", tensor(hidden.data(), {1, 6, 5})}};
  const AttentionPlan plan({inkling}, {.heads = 2, .head_dim = 1});
  const OwnedPositions at = arange(first, 6);
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(at, at));
  const std::vector<double> zeros(12);
  AttentionArgs a;
  a.q = a.k = a.v = heads(zeros.data(), 6, 2, 1);
  a.query_positions = a.key_positions = at;
  std::vector<double> scores(72);
  AttentionScores s;
  s.scores = tensor(scores.data(), {1, 2, 6, 6});
  lowered.scores(a, inputs, s);
  return scores;
}
void expect_inkling(const std::vector<double>& scores, const std::array<double, 6>& want) {
  constexpr std::size_t kAt[][3] = {{0, 0, 0}, {0, 1, 0}, {1, 2, 1},
                                    {1, 5, 3}, {0, 5, 2}, {1, 5, 1}};
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(scores[(kAt[i][0] * 6 + kAt[i][1]) * 6 + kAt[i][2]], want[i], 1e-15) << i;
}

TEST(RelativeProjection, GrowsWithTheLogarithmOfThePosition) {
  expect_inkling(inkling_scores(kInkling, 0),
                 {-0.06020917394703724, 0.20588191346805787, -0.16637373541442868,
                  -0.39573951014455394, 0.15098293387143152, 0});
  check_scheme_laws(kInkling);
}

// Inkling2ScaledL2Clip of threshold 0.25 before it: two of twelve vectors are shorter.
// By order, and at positions from 10 on.
TEST(RelativeProjection, LimitsTheNormOfEachHead) {
  RelativeProjection inkling2 = kInkling;
  inkling2.l2_clip = 0.25;
  inkling2.log_scaling_by = LogScalingBy::order;
  for (const Index first : {0, 10})
    expect_inkling(inkling_scores(inkling2, first),
                   {-0.052660958996906024, 0.13714859418699776, -0.11735475475931792,
                    -0.15162850538532982, 0.08368048186586159, 0});
  inkling2.log_scaling_by = LogScalingBy::position;
  expect_inkling(inkling_scores(inkling2, 10),
                 {-0.06163832593544818, 0.16172232341958465, -0.13389237468451087,
                  -0.16502852962297482, 0.091075664469362, 0});
  inkling2.l2_clip = 0.1;
  check_scheme_laws(inkling2);
  inkling2.l2_clip = -1;
  EXPECT_THAT(refusal([&] { (void)inkling2.parameters({.heads = 1, .head_dim = 2}); }),
              HasSubstr("l2_clip must be finite and not negative, got -1"));
}

}  // namespace
}  // namespace posenc
