// SPDX-License-Identifier: Apache-2.0
// ALiBi of a shard of heads, of the sequences of a ragged call, and in Falcon's rounding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Scores of 0 for q.k, [heads, queries, keys], and the learned and given arrays by name.
std::vector<double> alibi_bias(const Alibi& a, Index n_heads, const OwnedPositions& query,
                               const OwnedPositions& key,
                               std::span<const NamedArray> parameters = {},
                               std::span<const NamedArray> inputs = {}) {
  const AttentionPlan plan({a}, {.heads = n_heads, .head_dim = 1, .scale = 1});
  const LoweredAttention lowered = plan.lower(parameters, distance_ranges(query, key));
  const Index n = query.count(), m = key.count();
  const std::vector<double> zeros(static_cast<std::size_t>(std::max(n, m) * n_heads));
  AttentionArgs c;
  c.q = heads(zeros.data(), n, n_heads, 1);
  c.k = c.v = heads(zeros.data(), m, n_heads, 1);
  c.query_positions = query;
  c.key_positions = key;
  std::vector<double> scores(static_cast<std::size_t>(n_heads * n * m));
  AttentionScores s;
  s.scores = tensor(scores.data(), {1, n_heads, n, m});
  lowered.scores(c, inputs, s);
  return scores;
}

// Rank 1 of 2 of a model of 8 heads has heads 4 to 7, whose slopes are 2^-5 .. 2^-8.
TEST(AlibiShard, HasTheSlopesOfItsOwnHeads) {
  EXPECT_THAT((Alibi{.total_heads = 8, .first_head = 4}.slope(4)),
              ElementsAre(0.03125, 0.015625, 0.0078125, 0.00390625));
  EXPECT_THAT((Alibi{.total_heads = 8}.slope(2)), ElementsAre(0.5, 0.25));
}

// Every rule for head counts, 12 heads over ranks of 1 to 4.
TEST(AlibiShard, IsRowsOfTheUnshardedCall) {
  for (const Alibi& rule : {Alibi{}, Alibi{.slopes = AlibiSlopes::literal},
                            Alibi{.future = AlibiFuture::half_heads}, Alibi{.alibi_heads = 7}}) {
    const std::vector<double> all = alibi_bias(rule, 12, arange(0, 5), arange(0, 5));
    for (const Index shard : {1, 2, 3, 4})
      for (Index first = 0; first < 12; first += shard) {
        Alibi part = rule;
        part.total_heads = 12, part.first_head = first;
        const std::vector<double> b = alibi_bias(part, shard, arange(0, 5), arange(0, 5));
        for (std::size_t i = 0; i < b.size(); ++i)
          EXPECT_EQ(b[i], all[static_cast<std::size_t>(first) * 25 + i]) << first << " " << i;
      }
  }
}

TEST(AlibiShard, StartsLearnedSlopesAtItsOwn) {
  const Alibi a{.learned = AlibiLearned::slopes, .total_heads = 4, .first_head = 2};
  EXPECT_THAT((a.parameters({.heads = 2, .head_dim = 1})[0].initial_values),
              ElementsAre(0.015625, 0.00390625));
}

TEST(AlibiShard, RefusesHeadsThatAreNotThere) {
  const auto of = [](const Alibi& a) {
    return refusal([&] { (void)a.parameters({.heads = 4, .head_dim = 1}); });
  };
  EXPECT_THAT(of({.total_heads = 8, .first_head = 5}),
              HasSubstr("first_head must lie between 0 and total_heads - heads = 4, got 5"));
  EXPECT_THAT(of({.total_heads = 3}), HasSubstr("total_heads - heads = -1"));
  EXPECT_THAT(of({.first_head = 2}), HasSubstr("total_heads, which must be given"));
  EXPECT_THAT(of({.alibi_heads = 9, .total_heads = 8}), HasSubstr("between 0 and 8"));
}

// transformers 5.23: build_alibi_tensor of models/falcon for 12 and 71 heads and 2048 tokens.
TEST(AlibiFalcon, IsWhatTransformersComputes) {
  const Alibi falcon{.precision = AlibiPrecision::falcon_bfloat16};
  const struct {
    Index heads, head, key;
    double bias;
  } want[] = {{12, 0, 255, 127.5},    {12, 0, 257, 128},     {12, 0, 258, 129},
              {12, 6, 100, 0.78125},  {12, 6, 299, 2.34375}, {12, 11, 2047, 181},
              {71, 0, 256, 235},      {71, 0, 258, 237},     {71, 35, 3, 0.1328125},
              {71, 35, 257, 11.3125}, {71, 70, 2047, 1168}};
  for (const auto& w : want) {
    const std::vector<double> b = alibi_bias(falcon, w.heads, arange(3, 1), arange(w.key, 1));
    EXPECT_EQ(b[static_cast<std::size_t>(w.head)], w.bias)
        << w.heads << " " << w.head << " " << w.key;
  }
  // The exact number of the last.
  const std::vector<double> exact = alibi_bias(Alibi{}, 71, arange(0, 1), arange(2047, 1));
  EXPECT_NEAR(exact[70], -2047 * std::exp2(-0.8125), 1e-9);
}

TEST(AlibiFalcon, IsOfFixedPublishedSlopesAlone) {
  for (const Alibi& a :
       {Alibi{.learned = AlibiLearned::slopes}, Alibi{.slopes = AlibiSlopes::literal},
        Alibi{.past_offset = 0.5}, Alibi{.axis = 1}, Alibi{.future = AlibiFuture::half_heads}}) {
    Alibi falcon = a;
    falcon.precision = AlibiPrecision::falcon_bfloat16;
    EXPECT_THAT(refusal([&] { (void)falcon.parameters({.heads = 4, .head_dim = 1}); }),
                HasSubstr("precision falcon_bfloat16 requires the published fixed slopes"));
  }
}

TEST(AlibiSequences, Laws) {
  LawCall call;
  call.classes = {{"query_sequence", 3}};
  check_scheme_laws(Alibi{.learned = AlibiLearned::slopes, .sequences = 3}, call);
  check_scheme_laws(Alibi{.future = AlibiFuture::own_slopes,
                          .learned = AlibiLearned::logits,
                          .past_offset = 0.5,
                          .bias_scale = 0.3,
                          .sequences = 3},
                    call);
  check_scheme_laws(Alibi{.future = AlibiFuture::signed_distance,
                          .learned = AlibiLearned::log_slopes,
                          .sequences = 3},
                    call);
}

// Three sequences in one row, each with the numbers of a call of its own.
TEST(AlibiSequences, AreCallsOfTheirOwn) {
  const std::vector<double> slopes{0.5, 0.25, 2, 3, 0.125, 1};  // [3, 2]
  const std::vector<Index> of{0, 0, 1, 1, 1, 2}, at{0, 1, 0, 1, 2, 0};
  const OwnedPositions p = explicit_positions(at, 1, 1);
  const NamedArray all[] = {{"slopes", tensor(slopes.data(), {3, 2})}};
  const NamedArray in[] = {
      {"query_sequence", tensor(static_cast<const void*>(of.data()), DType::i64, {1, 6})}};
  const std::vector<double> b =
      alibi_bias({.learned = AlibiLearned::slopes, .sequences = 3}, 2, p, p, all, in);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t j = 0; j < 6; ++j)
        EXPECT_EQ(b[(h * 6 + i) * 6 + j], -slopes[static_cast<std::size_t>(of[i]) * 2 + h] *
                                              std::abs(double(at[i] - at[j])));
}

TEST(AlibiSequences, RefusesAnotherNumberAndFixedSlopes) {
  EXPECT_THAT(refusal([] { (void)Alibi{.sequences = 2}.parameters({.heads = 1, .head_dim = 1}); }),
              HasSubstr("sequences needs learned numbers"));
  const std::vector<double> slopes{0.5, 0.25};
  const std::vector<Index> of{0, 2};
  const NamedArray all[] = {{"slopes", tensor(slopes.data(), {2, 1})}};
  const NamedArray in[] = {
      {"query_sequence", tensor(static_cast<const void*>(of.data()), DType::i64, {1, 2})}};
  EXPECT_THAT(refusal([&] {
                (void)alibi_bias({.learned = AlibiLearned::slopes, .sequences = 2}, 1, arange(0, 2),
                                 arange(0, 2), all, in);
              }),
              HasSubstr("query_sequence must lie between 0 and sequences - 1 = 1, got 2"));
}

}  // namespace
}  // namespace posenc
