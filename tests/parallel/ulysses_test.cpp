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

// Each document is divided by itself; tokens of a rank go back to their places in all of them.
TEST(Ulysses, PackedDocuments) {
  RingWorld w(96, {0, 8, 8, 56, 96});
  for (AttentionArgs* a : {&w.narrow, &w.plain}) a->mask.window_left = 30;
  const CallResult want = of_reference(w.plain);
  for (const ShardLayout layout :
       {ShardLayout::contiguous, ShardLayout::zigzag, ShardLayout::striped})
    for (const std::string& s : on_ranks(4, [&](const Communicator&c, Index r) {
           const TokenList own = shard_tokens(w.cu, 4, r, layout);
           EXPECT_LT(error_of(by_heads(w.narrow, own, c), shard_of(want, w.plain, own, own)), 3e-6);
         }))
      EXPECT_EQ(s, "");
}

// Four ranks, two key heads: two ranks compute with one key head, and their gradients are added.
TEST(Ulysses, FewerKeyHeadsThanRanks) {
  expect_whole(RingWorld(64), 4, ShardLayout::zigzag);
}

// Norms with weights by head, a rotation after them, and a region that rotates the call's own q and k.
TEST(Ulysses, StagesAndRegionsOfTheCallsOwnKeys) {
  RingWorld w(32);
  const std::vector<double> weight = test::Random(5).normals(4 * 16);
  const RotarySpec spec =
      resolve(Rope{.head_dim = 16, .base = 500, .pairing = Pairing::half_split});
  const Stage stages[] = {
      {.kind = StageKind::rms, .q = tensor(weight.data(), {4, 16}), .epsilon = 1e-3}, w.stage};
  ScoreRegion far{.low = 8};
  far.rotary = &spec;
  std::vector<Index> at;
  for (Index t = 0; t < 32; ++t) at.push_back(t / 2);
  far.query_positions = far.key_positions = positions(std::span<const Index>(at));
  for (AttentionArgs* a : {&w.narrow, &w.plain})
    a->prepare = stages, a->regions = std::span(&far, 1);
  expect_whole(w, 2, ShardLayout::zigzag);
}

// A length of keys counts the rank's own.
TEST(Ulysses, LengthsOfKeys) {
  RingWorld w(32);
  const std::vector<Index> length{25};
  for (AttentionArgs* a : {&w.narrow, &w.plain}) a->mask.key_length = tensor(length.data(), {1});
  expect_whole(w, 2, ShardLayout::striped);
}

// Orders that do not count up are read as they are, as those of several rows.
TEST(Ulysses, OrdersWithGaps) {
  RingWorld w(32);
  for (Index t = 20; t < 32; ++t) w.orders[static_cast<std::size_t>(t)] += 5;
  for (AttentionArgs* a : {&w.narrow, &w.plain}) a->terms = {}, a->mask.window_left = 9;
  expect_whole(w, 2, ShardLayout::striped);
}

// Chunks and sink tokens are counted from order 0, which no token has.
TEST(Ulysses, OrdersThatBeginLater) {
  for (const bool chunks : {true, false}) {
    RingWorld w(32);
    for (Index& order : w.orders) order += 3;
    for (AttentionArgs* a : {&w.narrow, &w.plain}) {
      a->terms = {};
      if (chunks)
        a->mask.chunk = 8;
      else
        a->mask.window_left = 6, a->mask.sink_tokens = 5;
    }
    expect_whole(w, 2, ShardLayout::zigzag);
  }
}

TEST(Ulysses, LengthsAreThoseOfTheSequence) {
  RingWorld w(64);
  w.spec.blocks[0].spectrum.valid_from = 40;
  w.spec.blocks[0].spectrum.valid_to = 64;
  expect_whole(w, 2, ShardLayout::contiguous);
  w.spec.blocks[0].spectrum.valid_to = 63;
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         by_heads(w.narrow, shard_tokens(64, 2, r, ShardLayout::contiguous), c);
       }))
    EXPECT_THAT(s, HasSubstr("[rotary] length"));
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
  EXPECT_EQ(all_say_by_heads(8, [](AttentionArgs&) {}),
            "[ulysses] heads of q must be a multiple of the ranks, 8, got 4");
  const auto refused = [](const auto& change) { return all_say_by_heads(2, change); };
  const std::vector<double> mix(16, 0.25);
  EXPECT_EQ(refused([&](AttentionArgs& a) {
              a.mix_before = tensor(mix.data(), {4, 4});
            }),
            "[ulysses] mix_before must be empty: it mixes heads");
  EXPECT_EQ(
      refused([](AttentionArgs& a) { a.mask.key_order = {}; }),
      "[ulysses] mask.key_order must state where the tokens of the rank stand in the sequence");
  const BlockKeys blocks(16);
  EXPECT_EQ(refused([&](AttentionArgs& a) { blocks.put(a, true, true); }),
            "[ulysses] k must be of a float type: blocks do not travel");
  const std::vector<std::uint8_t> flags(16 * 16, 1);
  EXPECT_EQ(refused([&](AttentionArgs& a) {
              a.mask.visible = tensor(flags.data(), {16, 16});
            }),
            "[ulysses] mask.visible must be empty: it holds every pair of tokens");
  const std::vector<Index> pages(8, 0);
  EXPECT_EQ(refused([&](AttentionArgs& a) {
              a.block_table = tensor(pages.data(), {1, 8});
            }),
            "[ulysses] block_table must be empty: pages are not exchanged");
  const std::vector<double> units(8, 0.5);
  const Term network = ScoreMlpTerm{.mlp = {.in = tensor(units.data(), {1, 4, 1}),
                                            .in_bias = tensor(units.data(), {1}),
                                            .out = tensor(units.data(), {4, 1, 1}),
                                            .out_bias = tensor(units.data(), {4})}};
  EXPECT_EQ(refused([&](AttentionArgs& a) { a.terms = std::span(&network, 1); }),
            "[ulysses] networks over scores mix heads");
}

// Six heads in three groups: the second group would be divided between two ranks.
TEST(Ulysses, RefusesGroupsThatDoNotDivide) {
  const std::vector<float> x(16 * 6 * 16, 0.5F);
  EXPECT_EQ(all_say_by_heads(2,
                             [&](AttentionArgs& a) {
                               a.q = heads(x.data(), 16, 6, 16);
                               a.k = a.v = heads(x.data(), 16, 3, 16);
                             }),
            "[ulysses] heads of k must be a multiple or a divisor of the ranks, 2, got 3");
}

TEST(Ulysses, RefusesRegionsThatDisagree) {
  const RingWorld w(32);
  const RotarySpec specs[] = {
      resolve(Rope{.head_dim = 16, .base = 500, .pairing = Pairing::half_split}),
      resolve(Rope{.head_dim = 16, .base = 600, .pairing = Pairing::half_split})};
  for (const std::string& s : on_ranks(2, [&](const Communicator&c, Index r) {
         const TokenList tokens = shard_tokens(32, 2, r, ShardLayout::zigzag);
         ShardCall shard(w.narrow, tokens, tokens);
         ScoreRegion far{.low = 8};
         far.rotary = &specs[r];
         far.query_positions = far.key_positions = shard.args.query_positions;
         shard.args.regions = std::span(&far, 1);
         ResultArrays to(shard.args, DType::f32);
         ulysses_attend(shard.args, to.r, c, {.seconds = 20}, inline_executor());
       }))
    EXPECT_EQ(
        s,
        "[ulysses] all ranks must make the same call; rank 0 and rank 1 differ in arrays that "
        "all tokens share");
}

}  // namespace
}  // namespace posenc
