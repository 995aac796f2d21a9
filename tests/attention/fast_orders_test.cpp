// SPDX-License-Identifier: Apache-2.0
// Given orders of queries and keys in the fast engine: those that ascend are runs of keys, as an offset is; the others
// hide single pairs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "attention/call/visible_runs.h"
#include "attention/float_call.h"

namespace posenc {
namespace {

using namespace detail;

constexpr Index kFirstOrder = std::numeric_limits<Index>::min(), kLastOrder = kUnbounded;

// One sequence, or rows of keys with orders of their own.
struct OrdersCall : FloatCall {
  OrdersCall(Index batch, Index queries, Index keys, std::uint64_t seed)
      : FloatCall(batch, queries, keys, 4, 2, 16, 12, seed), random(seed) {
    args.mask.causal = true;
  }
  void order(std::vector<Index> queries, std::vector<Index> keys) {
    of_queries = std::move(queries), of_keys = std::move(keys);
    Mask& m = args.mask;
    m.query_offset = 0;
    m.query_order =
        tensor(std::as_const(of_queries).data(), {static_cast<Index>(of_queries.size()) / Tq, Tq});
    m.key_order =
        tensor(std::as_const(of_keys).data(), {static_cast<Index>(of_keys.size()) / Tk, Tk});
  }
  // The orders of an offset, moved by so much.
  void order_in_storage(Index by = 0) {
    std::vector<Index> queries(static_cast<std::size_t>(Tq)), keys(static_cast<std::size_t>(Tk));
    std::iota(queries.begin(), queries.end(), Tk - Tq + by);
    std::iota(keys.begin(), keys.end(), by);
    order(std::move(queries), std::move(keys));
  }
  // The first `count` keys of each row are padding, whose orders are `padding`.
  void pad(Index count, Index padding) {
    visible.assign(static_cast<std::size_t>(Tk), 1);
    std::fill_n(visible.begin(), count, std::uint8_t{0});
    args.mask.key_visible = tensor(std::as_const(visible).data(), {1, Tk});
    std::fill_n(of_keys.begin(), std::min(count, static_cast<Index>(of_keys.size())), padding);
  }
  bool ascends() const {
    CallArena arena;
    return ReadyCall(args, arena).ascends;
  }

  test::Random random;
  std::vector<Index> of_queries, of_keys;
  std::vector<std::uint8_t> visible;
};

constexpr Index kQueryCounts[] = {1, 3, 16, 50}, kKeyCounts[] = {50, 65, 100, 257};

// A mask by order in two forms: causal, with a window, with sinks.
void set_window(Mask& m, std::uint64_t seed) {
  if (seed % 3 > 0) m.window_left = 20;
  if (seed % 3 == 2) m.sink_tokens = 5;
}

TEST(FastOrders, ThoseOfStorageGiveTheBitsOfAnOffset) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kQueryCounts)
      for (const Index keys : kKeyCounts) {
        OrdersCall call(1 + static_cast<Index>(seed % 2), queries, keys, seed);
        set_window(call.args.mask, seed);
        const CallResult want = gradients_of_fast(call.args);
        call.order_in_storage();
        ASSERT_TRUE(call.ascends());
        const CallResult got = gradients_of_fast(call.args);
        ASSERT_EQ(got.out, want.out) << isa_name(isa) << ' ' << queries << ' ' << keys;
        ASSERT_EQ(got.log_sum_exp, want.log_sum_exp);
        for (std::size_t n = 0; n < want.gradients.size(); ++n)
          ASSERT_EQ(got.gradients[n], want.gradients[n]) << want.names[n];
        ++seed;
      }
  }
  reset_isa();
}

// Left padding: orders of the hidden keys do not matter, whatever they are.
TEST(FastOrders, PaddingMayHaveAnyOrder) {
  std::uint64_t seed = 0;
  for (const Index padding : {Index{0}, Index{-1}, Index{1}, Index{1000}, kFirstOrder, kLastOrder})
    for (const Index queries : kQueryCounts)
      for (const Index count : {1, 40}) {
        OrdersCall call(2, queries, 130, ++seed);
        call.order_in_storage(-count);
        call.pad(count, padding);
        ASSERT_TRUE(call.ascends());
        for (Index j = 0; j < count; ++j)
          for (Index n = 0; n < 2 * 16; ++n)
            call.narrow[1][static_cast<std::size_t>(j * 2 * 16 + n)] = std::nanf("");
        call.args.mask.window_left = seed % 2 == 0 ? 30 : kUnbounded;
        ASSERT_EQ(call.wrong(), "") << padding << ' ' << queries << ' ' << count;
        ASSERT_EQ(call.wrong_backward(), "") << padding << ' ' << queries << ' ' << count;
      }
}

// Behind key_length too.
TEST(FastOrders, SlotsThatAreNotInUseHaveNoOrder) {
  OrdersCall call(2, 3, 100, 5);
  call.order_in_storage(-20);
  std::fill(call.of_keys.begin() + 77, call.of_keys.end(), Index{0});
  const std::vector<Index> length{77, 60};
  call.args.mask.key_length = tensor(length.data(), {2});
  EXPECT_TRUE(call.ascends());
  EXPECT_EQ(call.wrong(), "");
  EXPECT_EQ(call.wrong_backward(), "");
}

// Orders that ascend, each at least that of the key before it.
std::vector<Index> ascending(test::Random& r, Index count, std::uint64_t kind) {
  std::vector<Index> x(static_cast<std::size_t>(count));
  Index at = kind == 2 ? kFirstOrder : r.integer(-5, 5);
  for (Index& o : x) o = at, at += r.integer(0, kind == 0 ? 1 : 9) / (kind == 0 ? 1 : 4);
  if (kind == 2) std::fill(x.begin() + count / 2, x.end(), kLastOrder);
  return x;
}

TEST(FastOrders, TiesGapsAndTheEndsOf64Bits) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kQueryCounts)
      for (const Index keys : kKeyCounts) {
        const Index batch = 1 + static_cast<Index>(++seed % 2);
        OrdersCall call(batch, queries, keys, seed);
        std::vector<Index> of_queries, of_keys;
        for (Index b = 0; b < batch; ++b)
          for (const Index o : ascending(call.random, keys, seed % 3)) of_keys.push_back(o);
        for (Index n = 0; n < batch * queries; ++n)
          of_queries.push_back(
              of_keys[static_cast<std::size_t>(call.random.integer(0, batch * keys - 1))] +
              (seed % 3 == 2 ? 0 : call.random.integer(-1, 1)));
        call.order(std::move(of_queries), std::move(of_keys));
        set_window(call.args.mask, seed / 3);
        call.args.mask.causal = seed % 4 > 0;
        ASSERT_TRUE(call.ascends());
        ASSERT_EQ(call.wrong(), "") << isa_name(isa) << ' ' << queries << ' ' << keys;
        ASSERT_EQ(call.wrong_backward(), "") << isa_name(isa) << ' ' << queries << ' ' << keys;
      }
  }
  reset_isa();
}

// A ring buffer whose newest keys overwrote the oldest ones, or keys in any order.
TEST(FastOrders, ThatDoNotAscend) {
  std::uint64_t seed = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Index queries : kQueryCounts)
      for (const Index keys : kKeyCounts) {
        ++seed;
        OrdersCall call(1 + static_cast<Index>(seed % 2), queries, keys, seed);
        call.order_in_storage();
        std::vector<Index>& x = call.of_keys;
        std::rotate(x.begin(), x.begin() + keys / 3, x.end());
        if (seed % 2 == 0)
          for (std::size_t n = 1; n < x.size(); ++n)
            std::swap(x[n],
                      x[static_cast<std::size_t>(call.random.integer(0, static_cast<Index>(n)))]);
        set_window(call.args.mask, seed);
        if (seed % 5 == 0) call.pad(7, 3);
        ASSERT_FALSE(call.ascends());
        ASSERT_EQ(call.wrong(), "") << isa_name(isa) << ' ' << queries << ' ' << keys;
        ASSERT_EQ(call.wrong_backward(), "") << isa_name(isa) << ' ' << queries << ' ' << keys;
      }
  }
  reset_isa();
}

// Keys that no query sees may hold anything, also where heads see different keys or have numbers of their own.
TEST(FastOrders, HideWhateverNoQuerySees) {
  // Of two heads that share keys, both may see fewer than the other two.
  const std::vector<std::uint8_t> sides[] = {{0, 1, 1, 2}, {2, 2, 1, 0}};
  const std::vector<double> slopes{-0.1, 0.1, -30, 30, -0.2, 0.2, -1e13, 1e13};
  const Term linear[] = {LinearTerm{.table = tensor(slopes.data(), {1, 4, 1, 2})}};
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    OrdersCall call(1, kQueryCounts[seed % 3], 90, seed);
    call.order_in_storage();
    std::rotate(call.of_keys.begin(), call.of_keys.begin() + 30, call.of_keys.end());
    for (Index& o : call.of_queries) o -= 45;
    if (seed % 4 == 1) call.args.mask.head_side = tensor(sides[seed / 4 % 2].data(), {4});
    if (seed % 4 == 2) call.args.terms = linear;
    if (seed % 8 > 3) call.args.mask.window_left = 10;
    const Index first = call.of_queries.front(), last = call.of_queries.back();
    for (std::size_t j = 0; j < 90; ++j)
      if (call.of_keys[j] > last ||
          (call.args.mask.window_left == 10 && call.of_keys[j] < first - 10))
        for (std::size_t n = 0; n < 2 * 16; ++n) call.narrow[1][j * 2 * 16 + n] = std::nanf("");
    ASSERT_FALSE(call.ascends());
    ASSERT_EQ(call.wrong(), "") << seed;
  }
}

// Each packed sequence has orders of its own.
TEST(FastOrders, OfPackedSequences) {
  const std::vector<Index> cq{0, 20, 21, 40}, ck{0, 100, 101, 170};
  for (const bool ascends : {true, false}) {
    OrdersCall call(1, 40, 170, 8);
    std::vector<Index> of_queries(40), of_keys(170);
    for (std::size_t s = 0; s < 3; ++s) {
      std::iota(of_keys.begin() + ck[s], of_keys.begin() + ck[s + 1], Index{7});
      std::iota(of_queries.begin() + cq[s], of_queries.begin() + cq[s + 1],
                7 + ck[s + 1] - ck[s] - (cq[s + 1] - cq[s]));
    }
    if (!ascends) std::swap(of_keys[3], of_keys[70]);
    call.order(std::move(of_queries), std::move(of_keys));
    call.args.mask.query_cu_seqlens = tensor(std::span<const Index>(cq));
    call.args.mask.key_cu_seqlens = tensor(std::span<const Index>(ck));
    EXPECT_EQ(call.ascends(), ascends);
    EXPECT_EQ(call.wrong(), "");
    EXPECT_EQ(call.wrong_backward(), "");
    call.args.mask.window_left = 9;
    EXPECT_EQ(call.wrong(), "");
  }
}

// No key is read to find which ones a query sees.
TEST(FastOrders, AscendingOnesAreBounds) {
  OrdersCall call(1, 3, 300, 4);
  call.order(ascending(call.random, 3, 1), ascending(call.random, 300, 1));
  CallArena arena;
  const ReadyCall c(call.args, arena);
  EXPECT_FALSE(reads_keys(c));
  std::vector<detail::Run> memory(static_cast<std::size_t>(most_runs(c)));
  RunList runs(memory);
  for (Index i = 0; i < 3; ++i) {
    find_visible(c, 0, 0, i, c.place(0, i), runs);
    Index seen = 0, want = 0;
    each_key(Runs(runs.data(), runs.size()), [&](Index) { ++seen; });
    for (const Index o : call.of_keys) want += o <= call.of_queries[static_cast<std::size_t>(i)];
    EXPECT_EQ(seen, want);
    EXPECT_LE(runs.size(), 1u);
  }
  std::swap(call.of_keys.front(), call.of_keys.back());
  EXPECT_TRUE(reads_keys(ReadyCall(call.args, arena)));
}

// A workspace serves the next step, whose orders may not ascend.
TEST(FastOrders, ShareAWorkspace) {
  for (const bool exact : {false, true}) {
    OrdersCall call(2, 3, 300, 4);
    call.order_in_storage();
    if (!exact) call.pad(20, -1);
    call.args.exact = exact;
    const std::size_t bytes = workspace_bytes(call.args);
    std::swap(call.of_keys[30], call.of_keys[250]);
    EXPECT_FALSE(call.ascends());
    EXPECT_EQ(workspace_bytes(call.args), bytes);
  }
}

}  // namespace
}  // namespace posenc
