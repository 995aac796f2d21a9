// SPDX-License-Identifier: Apache-2.0
// Ranks that compute all tokens of some heads: rows and gradients of the whole
// call, in float and in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/ring_world.h"
#include "posenc/parallel/ulysses.h"

namespace posenc {
namespace {

using ::testing::HasSubstr;

CallResult by_heads(const AttentionArgs& whole, const TokenList& tokens, const Communicator& c) {
  const ShardCall shard(whole, tokens, tokens);
  const ShardUpstream up(whole, tokens);
  ResultArrays to(shard.args, shard.args.q.dtype);
  GradientArrays g(shard.args);
  ulysses_attend(shard.args, to.r, c, {.seconds = 60}, inline_executor());
  ulysses_attend_backward(shard.args, to.r, {up.d_out, up.d_lse}, g.g, c, {.seconds = 60},
                          inline_executor());
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}

void expect_whole(const RingWorld& w, Index ranks, ShardLayout layout) {
  const Index tokens = w.narrow.q.tokens;
  const CallResult want = of_reference(w.plain);
  for (const std::string& s : on_ranks(ranks, [&](const Communicator&c, Index r) {
         const TokenList own = shard_tokens(tokens, ranks, r, layout);
         EXPECT_LT(error_of(by_heads(w.plain, own, c), shard_of(want, w.plain, own, own)), 1e-12);
         EXPECT_LT(error_of(by_heads(w.narrow, own, c), shard_of(want, w.plain, own, own)), 3e-6);
       }))
    EXPECT_EQ(s, "");
}

TEST(Ulysses, EveryLayout) {
  RingWorld w(64);
  const std::vector<double> scale{0.5, 1, 2, 1.5};
  for (AttentionArgs* a : {&w.narrow, &w.plain}) {
    a->mask.window_left = 40;
    a->head_scale = tensor(scale.data(), {1, 4});
  }
  for (const ShardLayout layout :
       {ShardLayout::contiguous, ShardLayout::zigzag, ShardLayout::striped})
    for (const Index ranks : {1, 2}) expect_whole(w, ranks, layout);
}

// What does not merge: gates with a table by head, read by content; sticks of
// any layout.
TEST(Ulysses, WhatDoesNotMerge) {
  RingWorld w(32);
  const std::vector<double> rows = test::Random(3).normals(4 * 6 * 16);
  GatesTerm gates{.table = tensor(rows.data(), {1, 4, 6, 16}),
                  .query = kContent,
                  .key = kContent,
                  .gate_scale = 0.2};
  w.terms.push_back(gates);
  for (AttentionArgs* a : {&w.narrow, &w.plain}) a->terms = w.terms;
  expect_whole(w, 2, ShardLayout::zigzag);
  w.terms.pop_back();
  for (AttentionArgs* a : {&w.narrow, &w.plain}) {
    a->terms = w.terms;
    a->sink = {}, a->normalisation = Normalisation::stick_breaking_own;
  }
  expect_whole(w, 2, ShardLayout::striped);
}

TEST(Ulysses, DocumentsAndFactorsOfQueries) {
  RingWorld w(64, {0, 24, 64}, true);
  std::vector<double> factor;
  for (int t = 0; t < 64; ++t) factor.push_back(1 + 0.01 * t);
  for (AttentionArgs* a : {&w.narrow, &w.plain})
    a->query_factor = tensor(std::as_const(factor).data(), {1, 64});
  expect_whole(w, 2, ShardLayout::zigzag);
}

template <class F>
std::string all_say_by_heads(Index ranks, const F& change) {
  const RingWorld w(32);
  const std::vector<std::string> says = on_ranks(ranks, [&](const Communicator& c, Index r) {
    const TokenList tokens = shard_tokens(32, ranks, r, ShardLayout::zigzag);
    ShardCall shard(w.narrow, tokens, tokens);
    change(shard.args);
    ResultArrays to(shard.args, shard.args.q.dtype);
    ulysses_attend(shard.args, to.r, c, {.seconds = 20}, inline_executor());
  });
  for (const std::string& s : says) EXPECT_EQ(s, says[0]);
  return says[0];
}

TEST(Ulysses, RefusesOnEveryRankAlike) {
  EXPECT_EQ(all_say_by_heads(4, [](AttentionArgs&) {}),
            "[ulysses] heads of k must be a multiple of the ranks, 4, got 2");
  const std::vector<double> mix(16, 0.25);
  EXPECT_EQ(all_say_by_heads(2,
                             [&](AttentionArgs& a) {
                               a.mix_before = tensor(mix.data(), {4, 4});
                             }),
            "[ulysses] mix_before must be empty");
  EXPECT_EQ(all_say_by_heads(2, [](AttentionArgs& a) { a.mask.key_order = {}; }),
            "[ulysses] query_order and key_order must state where the tokens stand, "
            "[1, tokens]");
  const BlockKeys blocks(16);
  EXPECT_EQ(all_say_by_heads(2, [&](AttentionArgs& a) { blocks.put(a, true, true); }),
            "[ulysses] k must be of a float type: blocks do not travel");
  const std::vector<Index> far(16, 7);
  EXPECT_THAT(all_say_by_heads(2,
                               [&](AttentionArgs& a) {
                                 a.mask.key_order = tensor(far.data(), {1, 16});
                               }),
              HasSubstr("must count up without gaps, got 7"));
  const std::vector<double> given(16 * 4, 1.0);
  ProductTerm vectors;
  vectors.key.given = heads(tensor(given.data(), {1, 16, 1, 4}), HeadsLayout::bthd);
  vectors.query.given = vectors.key.given;
  const Term term = vectors;
  EXPECT_EQ(all_say_by_heads(2, [&](AttentionArgs& a) { a.terms = std::span(&term, 1); }),
            "[ulysses] vectors of a term must be of one token, not of each");
}

}  // namespace
}  // namespace posenc
