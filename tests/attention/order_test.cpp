// SPDX-License-Identifier: Apache-2.0
// Where queries are among their keys, what positions follow from it, and when given ones contradict it.
#include "posenc/attention/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "posenc/attention/plan.h"
#include "posenc/attention/selective.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"
#include "support/refusal.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A call of one head and channel; lists stay alive.
struct OrderCall {
  OrderCall(Index batch, Index queries, Index keys)
      : q(static_cast<std::size_t>(batch * queries), 1.0),
        k(static_cast<std::size_t>(batch * keys), 1.0),
        out(q) {
    args.q = heads(tensor(std::as_const(q).data(), {batch, queries, 1, 1}), HeadsLayout::bthd);
    args.k = args.v =
        heads(tensor(std::as_const(k).data(), {batch, keys, 1, 1}), HeadsLayout::bthd);
    args.scale = 1;
  }
  void pack(std::vector<Index> queries, std::vector<Index> keys) {
    cq = std::move(queries), ck = std::move(keys);
    args.mask.query_cu_seqlens = tensor(std::span<const Index>(cq));
    args.mask.key_cu_seqlens = tensor(std::span<const Index>(ck));
  }
  // Keys in pages of 2, row b from page 2 b on.
  void page(std::vector<Index> held) {
    lengths = std::move(held);
    const auto rows = static_cast<Index>(lengths.size());
    for (Index n = 0; n < 2 * rows; ++n) table.push_back(n);
    args.k = args.v =
        heads(tensor(std::as_const(k).data(), {2 * rows, 2, 1, 1}), HeadsLayout::bthd);
    args.block_table = tensor(std::as_const(table).data(), {rows, 2});
    args.mask.key_length = tensor(std::span<const Index>(lengths));
  }
  AttentionResult result() {
    return {heads(tensor(out.data(), {args.q.batch, args.q.tokens, 1, 1}), HeadsLayout::bthd), {}};
  }

  std::vector<double> q, k, out;
  std::vector<Index> cq, ck, lengths, table;
  AttentionArgs args;
};

TEST(CallOrder, QueriesAreTheLastOrFirstKeysOfTheirOwnSequence) {
  OrderCall plain(1, 2, 5);
  EXPECT_EQ(query_offsets(plain.args, QueriesAt::end).offset, 3);
  EXPECT_EQ(query_offsets(plain.args, QueriesAt::start).offset, 0);
  OrderCall packed(1, 5, 12);
  packed.pack({0, 3, 5}, {0, 5, 12});
  EXPECT_EQ(query_offsets(packed.args, QueriesAt::end).offset, 0);
  EXPECT_THAT(query_offsets(packed.args, QueriesAt::end).offsets, IsEmpty());
  EXPECT_THAT(query_offsets(packed.args, QueriesAt::start).offsets, ElementsAre(-2, -5));
  OrderCall alike(1, 5, 11);  // as many more keys in both
  alike.pack({0, 3, 5}, {0, 6, 11});
  EXPECT_THAT(query_offsets(alike.args, QueriesAt::start).offsets, IsEmpty());
  EXPECT_EQ(query_offsets(alike.args, QueriesAt::start).offset, -3);
  OrderCall paged(2, 1, 4);
  paged.page({3, 2});
  EXPECT_THAT(query_offsets(paged.args, QueriesAt::end).offsets, ElementsAre(2, 1));
  EXPECT_EQ(query_offsets(paged.args, QueriesAt::start).offset, 0);
}

TEST(CallOrder, DefaultPositionsCountInsideTheSequence) {
  OrderCall c(1, 5, 12);
  c.pack({0, 3, 5}, {0, 5, 12});
  CallPositions p = default_positions(c.args);
  EXPECT_THAT(std::get<0>(p.query.value), ElementsAre(2, 3, 4, 5, 6));
  EXPECT_THAT(std::get<0>(p.key.value), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6));
  const std::vector<Index> offsets{-2, -5};
  c.args.mask.query_offsets = tensor(std::span<const Index>(offsets));
  EXPECT_THAT(std::get<0>(default_positions(c.args).query.value), ElementsAre(0, 1, 2, 0, 1));
  OrderCall shard(1, 2, 3);
  const std::vector<Index> query{7, 2}, key{2, 5, 7};
  shard.args.mask.query_order = tensor(std::as_const(query).data(), {1, 2});
  shard.args.mask.key_order = tensor(std::as_const(key).data(), {1, 3});
  p = default_positions(shard.args);
  EXPECT_EQ(std::get<0>(p.query.value), query);
  EXPECT_EQ(std::get<0>(p.key.value), key);
}

TEST(CallOrder, AQueryOffsetOfEachRowMovesItsMask) {
  OrderCall c(2, 1, 4);
  for (std::size_t n = 0; n < c.k.size(); ++n) c.k[n] = static_cast<double>(n);
  const std::vector<Index> offsets{1, 3};
  c.args.mask.causal = true;
  c.args.mask.query_offsets = tensor(std::span<const Index>(offsets));
  c.args.mask.window_left = 0;
  attend(c.args, c.result());
  EXPECT_THAT(c.out, ElementsAre(1, 7));
  c.args.mask.query_offset = -1;
  attend(c.args, c.result());
  EXPECT_THAT(c.out, ElementsAre(0, 6));
  const std::vector<Index> wrong{1, Index{1} << 62}, three{0, 0, 0};
  c.args.mask.query_offsets = tensor(std::span<const Index>(wrong));
  EXPECT_THAT(refusal([&] { attend(c.args, c.result()); }),
              HasSubstr("query_offsets must lie between"));
  c.args.mask.query_offsets = tensor(std::span<const Index>(three));
  EXPECT_THAT(refusal([&] { attend(c.args, c.result()); }),
              HasSubstr("query_offsets must be [1 or 2]"));
  const std::vector<Index> orders{0, 1, 2, 3};
  c.args.mask.query_offset = 0;
  c.args.mask.query_offsets = tensor(std::span<const Index>(offsets));
  c.args.mask.query_order = tensor(std::as_const(orders).data(), {1, 1});
  c.args.mask.key_order = tensor(std::as_const(orders).data(), {1, 4});
  EXPECT_THAT(refusal([&] { attend(c.args, c.result()); }),
              HasSubstr("query_offsets excludes query_order"));
}

TEST(CallOrder, PositionsThatContradictACausalOrderAreFound) {
  OrderCall c(1, 2, 4);
  const OwnedPositions key = arange(0, 4), late = arange(2, 2), early = arange(0, 2);
  c.args.key_positions = key;
  c.args.mask.causal = true;
  c.args.mask.query_offset = 2;
  c.args.query_positions = late;
  EXPECT_EQ(order_conflict(c.args), "");
  c.args.query_positions = early;
  EXPECT_THAT(order_conflict(c.args), HasSubstr("query 0 at position 0 sees key 1 at position 1"));
  c.args.mask.query_offset = 0;
  c.args.query_positions = late;
  EXPECT_THAT(order_conflict(c.args),
              HasSubstr("query 0 at position 2 does not see key 1 at position 1"));
  const std::vector<std::uint8_t> visible{1, 0, 1, 1, 1, 1, 0, 1};
  c.args.mask.visible = tensor(visible.data(), {2, 4});
  EXPECT_EQ(order_conflict(c.args), "");
  c.args.mask.visible = {};
  c.args.mask.causal = false;
  EXPECT_EQ(order_conflict(c.args), "");
}

// Gates of a ragged batch: those of each sequence, also where it has more keys than queries.
TEST(CallOrder, GatesAreReadAtTheKeysOfTheQueries) {
  OrderCall c(1, 3, 6);
  c.pack({0, 1, 3}, {0, 2, 6});
  c.args.mask.causal = true;
  for (std::size_t n = 0; n < c.k.size(); ++n) c.k[n] = 0.1 * static_cast<double>(n);
  const std::vector<double> gate{-1, -2, -3, -4, -5, -6};
  const AttentionPlan plan("forgetting", {.heads = 1, .head_dim = 1, .scale = 1});
  const LoweredAttention lowered = plan.lower({});
  const NamedArray input{"log_gate", tensor(gate.data(), {1, 6, 1})};
  lowered.forward(c.args, std::span(&input, 1), c.result());
  const auto want = [&](std::initializer_list<std::pair<double, double>> scores) {
    double sum = 0, out = 0;
    for (const auto& [score, value] : scores)
      sum += std::exp(score), out += std::exp(score) * value;
    return out / sum;
  };
  EXPECT_NEAR(c.out[0], want({{0.0 - 2, 0.0}, {0.1, 0.1}}), 1e-15);
  EXPECT_NEAR(c.out[1], want({{0.2 - 9, 0.2}, {0.3 - 5, 0.3}, {0.4, 0.4}}), 1e-15);
  EXPECT_NEAR(c.out[2], want({{0.2 - 15, 0.2}, {0.3 - 11, 0.3}, {0.4 - 6, 0.4}, {0.5, 0.5}}),
              1e-15);
}

// Blocks of 64 rows: positions of the whole call are not those of a block, and nothing goes by them.
TEST(CallOrder, SelectiveAttentionTakesPositionsOfAnyNumberOfQueries) {
  OrderCall c(1, 150, 150);
  for (std::size_t n = 0; n < c.k.size(); ++n) c.k[n] = std::sin(static_cast<double>(n));
  c.args.mask.causal = true;
  attend_selective(c.args, c.result());
  const std::vector<double> want = c.out;
  const OwnedPositions at = arange(0, 150);
  c.args.query_positions = c.args.key_positions = at;
  attend_selective(c.args, c.result());
  EXPECT_EQ(c.out, want);
}

TEST(CallOrder, AnExecutorEndsACallEarly) {
  OrderCall c(1, 256, 256);
  std::atomic<int> asked{0};
  Executor e = default_executor();
  e.cancel_context = &asked;
  e.cancelled = [](void* n) { return ++*static_cast<std::atomic<int>*>(n) > 2; };
  EXPECT_THROW(attend(c.args, c.result(), e), Cancelled);
  const int after = asked;
  EXPECT_LT(after, 20);  // of 32 blocks of rows
  std::vector<double> d(c.q);
  AttentionGradients g;
  g.q = heads(tensor(d.data(), {1, 256, 1, 1}), HeadsLayout::bthd);
  EXPECT_THROW(attend_backward(c.args, c.result(), c.result(), g, e), Cancelled);
  e.cancelled = [](void*) { return false; };
  attend(c.args, c.result(), e);
}

}  // namespace
}  // namespace posenc
