// SPDX-License-Identifier: Apache-2.0
// Calls at random, their tokens dealt to ranks at random: each rank gets its rows and gradients of the call that the
// reference computes at once.
#include <gtest/gtest.h>

#include <set>

#include "attention/random_call.h"
#include "parallel/shard_call.h"
#include "posenc/parallel/ulysses.h"

namespace posenc {
namespace {

// Orders of the tokens of a call that counts, as its masks mean them.
class WithOrders {
 public:
  explicit WithOrders(const AttentionArgs& a) : args(a) {
    Mask& m = args.mask;
    const bool given = !m.query_order.empty() || !m.key_order.empty();
    if (m.query_cu_seqlens.empty()) {
      for (Index i = 0; i < a.q.tokens; ++i) query_.push_back(m.query_offset + i);
      for (Index j = 0; j < a.k.tokens; ++j) key_.push_back(j);
    } else {
      for (Index s = 0; s + 1 < m.query_cu_seqlens.shape[0]; ++s) {
        const Index q0 = cu(m.query_cu_seqlens, s), q1 = cu(m.query_cu_seqlens, s + 1);
        const Index k0 = cu(m.key_cu_seqlens, s), k1 = cu(m.key_cu_seqlens, s + 1);
        for (Index i = q0; i < q1; ++i)
          query_.push_back(m.query_offset + k1 - k0 - (q1 - q0) + i - q0);
        for (Index j = k0; j < k1; ++j) key_.push_back(j - k0);
      }
    }
    query_.reserve(1), key_.reserve(1);
    if (given) return;
    m.query_offset = 0;
    m.query_order = tensor(std::as_const(query_).data(), {1, a.q.tokens});
    m.key_order = tensor(std::as_const(key_).data(), {1, a.k.tokens});
  }
  AttentionArgs args;

 private:
  static Index cu(const ConstTensorView& v, Index n) {
    return detail::integer_element(v.data, v.dtype, n * v.stride[0]);
  }
  std::vector<Index> query_, key_;
};

// Pages are no tokens of a sequence.
bool is_spread(const AttentionArgs& a) {
  return a.block_table.empty();
}

// Sums over the keys in between, in the order of storage among keys of one order, which ranks do not keep.
bool has_ties(const AttentionArgs& a) {
  const auto is_gates = [](const Term& t) { return std::holds_alternative<GatesTerm>(t); };
  return !a.mask.key_order.empty() && (a.normalisation != Normalisation::softmax ||
                                       std::any_of(a.terms.begin(), a.terms.end(), is_gates));
}

bool is_float_call(const AttentionArgs& a) {
  const auto wide = [](DType t) { return t == DType::f32 || t == DType::f64; };
  return a.q.dtype == DType::f32 && wide(a.k.dtype) && wide(a.v.dtype);
}

struct RankRun {
  TokenList queries, keys;
  CallResult got;
};

using RingForward = void (*)(const AttentionArgs&, const AttentionResult&, const Communicator&,
                             const RingOptions&, const Executor&);
using RingBackward = void (*)(const AttentionArgs&, const ConstAttentionResult&,
                              const ConstAttentionResult&, const AttentionGradients&,
                              const Communicator&, const RingOptions&, const Executor&);
CallResult run_rank(Spread by, const AttentionArgs& whole, const RankRun& run,
                    const Communicator& c) {
  const ShardCall shard(whole, run.queries, run.keys);
  const ShardUpstream up(whole, run.queries);
  ResultArrays to(shard.args, shard.args.q.dtype);
  GradientArrays g(shard.args);
  const RingOptions options{.seconds = 20};
  const RingForward forward =
      by == Spread::keys ? RingForward{ring_attend} : RingForward{ulysses_attend};
  const RingBackward backward = by == Spread::keys ? RingBackward{ring_attend_backward}
                                                   : RingBackward{ulysses_attend_backward};
  forward(shard.args, to.r, c, options, inline_executor());
  backward(shard.args, to.r, {up.d_out, up.d_lse}, g.g, c, options, inline_executor());
  return {widened(to.r.out), to.lse, std::move(g.value), std::move(g.name)};
}

// What is wrong, and what was refused, of one call over so many ranks.
std::string of_call(Spread by, std::uint64_t seed, Index ranks, bool narrow,
                    std::set<std::string>& refused, int& ran) {
  test::Random r(seed);
  const Index queries = ranks * r.integer(2, 5), keys = ranks * r.integer(2, 5);
  const RandomCall random(seed, {.for_scheme = false,
                                 .queries = queries,
                                 .keys = keys,
                                 .heads = by == Spread::heads ? 4 : -1});
  if (!is_spread(random.args) || (narrow && !is_float_call(random.args))) return {};
  if (by == Spread::heads && has_ties(random.args)) return {};
  const WithOrders call(narrow ? random.args : random.plain), plain(random.plain);
  std::vector<RankRun> run(static_cast<std::size_t>(ranks));
  const std::vector<TokenList> q = dealt(call.args.q.tokens, ranks, r),
                               k = dealt(call.args.k.tokens, ranks, r);
  for (std::size_t n = 0; n < run.size(); ++n) run[n].queries = q[n], run[n].keys = k[n];
  const std::vector<std::string> says = on_ranks(ranks, [&](const Communicator& c, Index rank) {
    RankRun& own = run[static_cast<std::size_t>(rank)];
    own.got = run_rank(by, call.args, own, c);
  });
  for (const std::string& s : says)
    if (s != says[0]) return "ranks say \"" + says[0] + "\" and \"" + s + "\"";
  if (!says[0].empty()) {
    refused.insert(says[0]);
    return {};
  }
  ++ran;
  const CallResult want = of_reference(plain.args);
  const double out = call.args.q.dtype == DType::f64 ? 2e-11 : 1e-6,
               tolerance = call.args.q.dtype == DType::f64 ? 2e-11 : 5e-6;
  std::string text;
  for (const RankRun& own : run)
    text += differences(own.got, shard_of(want, plain.args, own.queries, own.keys), out, tolerance);
  return text;
}

class RingRandom : public ::testing::TestWithParam<Index> {};

TEST_P(RingRandom, RanksGetTheRowsAndGradientsOfTheWhole) {
  std::set<std::string> refused;
  int ran = 0, wrong = 0;
  for (std::uint64_t seed = 0; seed < 250 && wrong < 5; ++seed) {
    const std::string text = of_call(Spread::keys, seed, GetParam(), false, refused, ran);
    EXPECT_EQ(text, "") << "seed " << seed;
    wrong += text.empty() ? 0 : 1;
  }
  EXPECT_GT(ran, 60);
}

TEST(RingRandomFloat, RanksGetTheRowsAndGradientsOfTheWhole) {
  std::set<std::string> refused;
  int ran = 0, wrong = 0;
  for (std::uint64_t seed = 0; seed < 3000 && wrong < 5; ++seed) {
    const std::string text = of_call(Spread::keys, seed, 2, true, refused, ran);
    EXPECT_EQ(text, "") << "seed " << seed;
    wrong += text.empty() ? 0 : 1;
  }
  EXPECT_GT(ran, 50);
}

class UlyssesRandom : public ::testing::TestWithParam<Index> {};

TEST_P(UlyssesRandom, RanksGetTheRowsAndGradientsOfTheWhole) {
  std::set<std::string> refused;
  int ran = 0, wrong = 0;
  for (std::uint64_t seed = 0; seed < 200 && wrong < 5; ++seed) {
    const std::string text = of_call(Spread::heads, seed, GetParam(), seed % 5 == 0, refused, ran);
    EXPECT_EQ(text, "") << "seed " << seed;
    wrong += text.empty() ? 0 : 1;
  }
  EXPECT_GT(ran, 60);
}

INSTANTIATE_TEST_SUITE_P(Ranks, UlyssesRandom, ::testing::Values(1, 2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, RingRandom, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace posenc
