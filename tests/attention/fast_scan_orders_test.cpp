// SPDX-License-Identifier: Apache-2.0
// Gates and stick-breaking of the fast engine with given orders that ascend: they are passed back in storage, as with an
// offset.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "attention/gated_call.h"
#include "attention/stick_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// Given orders, and what they point to.
struct ScanOrders {
  void give(AttentionArgs& a, std::vector<Index> queries, std::vector<Index> keys) {
    of_queries = std::move(queries), of_keys = std::move(keys);
    const auto view = [](const std::vector<Index>& x, Index tokens) {
      return tensor(x.data(), {static_cast<Index>(x.size()) / tokens, tokens});
    };
    a.mask.query_offset = 0;
    a.mask.query_order = view(of_queries, a.q.tokens), a.mask.key_order = view(of_keys, a.k.tokens);
  }
  // Those of an offset, moved by so much.
  void in_storage(AttentionArgs& a, Index by = 0) {
    std::vector<Index> queries(static_cast<std::size_t>(a.q.tokens)),
        keys(static_cast<std::size_t>(a.k.tokens));
    std::iota(queries.begin(), queries.end(), a.k.tokens - a.q.tokens + by);
    std::iota(keys.begin(), keys.end(), by);
    give(a, std::move(queries), std::move(keys));
  }
  // Each is at least that of the key before, or with `gaps` beyond it; queries are near keys.
  void random(AttentionArgs& a, test::Random& r, bool ties) {
    std::vector<Index> queries, keys;
    Index at = r.integer(-5, 5);
    for (Index j = 0; j < a.k.tokens; ++j)
      keys.push_back(at), at += ties ? r.integer(0, 2) : r.integer(1, 3);
    for (Index i = 0; i < a.q.tokens; ++i)
      queries.push_back(keys[static_cast<std::size_t>(r.integer(0, a.k.tokens - 1))] +
                        r.integer(-1, 1));
    give(a, std::move(queries), std::move(keys));
  }
  // Left padding of one row of keys, with NaN in its keys and any order.
  void pad(AttentionArgs& a, FloatCall& call, Index count) {
    visible.assign(static_cast<std::size_t>(a.k.tokens), 1);
    std::fill_n(visible.begin(), count, std::uint8_t{0});
    std::fill_n(of_keys.begin(), count, Index{1000});
    a.mask.key_visible = tensor(std::as_const(visible).data(), {1, a.k.tokens});
    std::fill_n(call.narrow[1].begin(), count * a.k.heads * a.k.dim, std::nanf(""));
  }
  std::vector<Index> of_queries, of_keys;
  std::vector<std::uint8_t> visible;
};

void expect_equal(const CallResult& got, const CallResult& want) {
  EXPECT_EQ(got.out, want.out);
  EXPECT_EQ(got.log_sum_exp, want.log_sum_exp);
  ASSERT_EQ(got.gradients.size(), want.gradients.size());
  for (std::size_t n = 0; n < want.gradients.size(); ++n)
    EXPECT_EQ(got.gradients[n], want.gradients[n]) << want.names[n];
}

GatedCall gated(Index queries, Index keys, std::uint64_t seed) {
  GatedCall call(queries, keys, 12, seed);
  if (seed % 3 == 1) call.without_table(seed % 2 == 0 ? Gate::sigmoid : Gate::log_sigmoid);
  return call;
}

TEST(FastScanOrders, ThoseOfStorageGiveTheBitsOfAnOffset) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 3, 40}) {
      GatedCall gates = gated(queries, 90, ++seed);
      gates.of_term();
      StickCall sticks(queries, 90, seed);
      for (FloatCall* call : {static_cast<FloatCall*>(&gates), static_cast<FloatCall*>(&sticks)}) {
        const CallResult want = gradients_of_fast(call->args);
        ScanOrders orders;
        orders.in_storage(call->args);
        EXPECT_EQ(explain_plan(call->args).backward_engine, "fast");
        expect_equal(gradients_of_fast(call->args), want);
      }
    }
  }
  reset_isa();
}

TEST(FastScanOrders, GapsTiesAndPadding) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : {1, 7, 60})
      for (const bool padded : {false, true}) {
        GatedCall gates = gated(queries, 130, ++seed);
        gates.of_term();
        StickCall sticks(queries, 130, seed);
        for (FloatCall* call :
             {static_cast<FloatCall*>(&gates), static_cast<FloatCall*>(&sticks)}) {
          ScanOrders orders;
          orders.random(call->args, gates.random, seed % 2 == 0);
          if (seed % 5 == 2) call->args.mask.window_left = 50;
          if (padded) orders.pad(call->args, *call, 33);
          ASSERT_EQ(call->wrong(), "") << isa_name(isa) << ' ' << seed;
          ASSERT_EQ(call->wrong_backward(), "") << isa_name(isa) << ' ' << seed;
        }
      }
  }
  reset_isa();
}

// The gate of a query's own key does not count: of one key, which the order tells.
TEST(FastScanOrders, OwnGates) {
  for (const Index queries : {2, 50})
    for (const bool padded : {false, true}) {
      GatedCall call(queries, 120, 12, 6);
      call.term.gate_own = false;
      call.of_term();
      ScanOrders orders;
      orders.random(call.args, call.random, false);
      if (padded) orders.pad(call.args, call, 20);
      EXPECT_EQ(call.wrong(), "") << queries;
      EXPECT_EQ(call.wrong_backward(), "") << queries;
      // Two keys of one order, and both gates would be left out.
      orders.of_keys[70] = orders.of_queries[0] = orders.of_keys[71];
      EXPECT_THAT(explain_plan(call.args).others[0].why_not, testing::HasSubstr("several keys"));
      call.term.gate_own = true;
      call.of_term();
      EXPECT_EQ(call.wrong(), "") << queries;
    }
}

TEST(FastScanOrders, OfPackedSequences) {
  const std::vector<Index> cq{0, 20, 21, 40}, ck{0, 100, 101, 170};
  GatedCall gates(40, 170, 12, 8);
  gates.term.gate_own = false;
  gates.of_term();
  StickCall sticks(40, 170, 7);
  for (FloatCall* call : {static_cast<FloatCall*>(&gates), static_cast<FloatCall*>(&sticks)}) {
    std::vector<Index> queries(40), keys(170);
    for (std::size_t s = 0; s < 3; ++s) {
      std::iota(keys.begin() + ck[s], keys.begin() + ck[s + 1], Index{7});
      std::iota(queries.begin() + cq[s], queries.begin() + cq[s + 1],
                5 + ck[s + 1] - ck[s] - (cq[s + 1] - cq[s]));
    }
    ScanOrders orders;
    orders.give(call->args, std::move(queries), std::move(keys));
    call->args.mask.query_cu_seqlens = tensor(std::span<const Index>(cq));
    call->args.mask.key_cu_seqlens = tensor(std::span<const Index>(ck));
    EXPECT_EQ(call->wrong(), "");
    EXPECT_EQ(call->wrong_backward(), "");
  }
}

}  // namespace
}  // namespace posenc
