// SPDX-License-Identifier: Apache-2.0
// A whole call of attention in the caller's workspace allocates nothing: checks, both passes, on one
// thread and on several.
#include <gtest/gtest.h>

#include <numeric>

#include "no_allocation/counted_new.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/sequence.h"

namespace posenc {
namespace {

// A call of 80 tokens, 4 heads over 2 key heads, 16 channels, in f32, and all that it writes.
struct WholeCall {
  static constexpr Index kTokens = 80, kHeads = 4, kGroups = 2, kDim = 16;
  std::vector<float> x = std::vector<float>(kTokens * kHeads * kDim, 0.25F);
  std::vector<double> numbers = std::vector<double>(4096, 0.5);
  std::vector<double> out = numbers, d_numbers = numbers;
  std::vector<float> y = x;
  std::vector<double> lse = std::vector<double>(kHeads * kTokens);
  std::vector<double> d_q = std::vector<double>(x.size()), d_k = d_q, d_v = d_q;
  const OwnedPositions at = arange(0, kTokens);
  AttentionArgs a;
  AttentionGradients g;

  WholeCall() {
    a.q = heads(std::as_const(x).data(), kTokens, kHeads, kDim);
    a.k = a.v = heads(std::as_const(x).data(), kTokens, kGroups, kDim);
    a.scale = 0.25;
    a.mask.causal = true;
    g.q = heads(d_q.data(), kTokens, kHeads, kDim);
    g.k = heads(d_k.data(), kTokens, kGroups, kDim),
    g.v = heads(d_v.data(), kTokens, kGroups, kDim);
  }
  // Of all three calls: forward without and with log_sum_exp, backward.
  long allocations(const Executor& executor) {
    const AttentionResult plain{heads(y.data(), kTokens, kHeads, kDim), {}};
    const AttentionResult both{plain.out, tensor(lse.data(), {1, kHeads, kTokens})};
    std::vector<std::byte> forward(workspace_bytes(a, executor));
    std::vector<std::byte> backward(workspace_bytes(a, g, executor));
    const auto all = [&] {
      attend(a, plain, executor, forward);
      attend(a, both, executor, forward);
      attend_backward(a, both, both, g, executor, backward);
    };
    all();  // the pool starts
    const long before = test::allocations();
    all();
    return test::allocations() - before;
  }
  // Of one query.
  void expect_none_forward() {
    const AttentionResult both{heads(y.data(), 1, kHeads, kDim),
                               tensor(lse.data(), {1, kHeads, 1})};
    std::vector<std::byte> memory(workspace_bytes(a, inline_executor()));
    const long before = test::allocations();
    attend(a, both, inline_executor(), memory);
    EXPECT_EQ(test::allocations() - before, 0);
  }
  void expect_none() {
    EXPECT_EQ(allocations(inline_executor()), 0);
    set_default_threads(3);
    EXPECT_EQ(allocations(default_executor()), 0);
    set_default_threads(0);
  }
};

TEST(NoAllocation, AttentionPlainAndWithMasks) {
  WholeCall call;
  call.expect_none();
  call.a.mask.window_left = 8, call.a.mask.sink_tokens = 2;
  call.expect_none();
  call.a.mask = {.query_offset = -3, .chunk = 16};
  call.expect_none();
  const std::vector<std::uint8_t> flags(WholeCall::kTokens * WholeCall::kTokens, 1);
  call.a.mask = {.visible = tensor(flags.data(), {WholeCall::kTokens, WholeCall::kTokens})};
  call.expect_none();
}

// T5's table by distance: the band is of the call. Then gates and a network over the scores.
TEST(NoAllocation, AttentionWithTerms) {
  WholeCall call;
  std::vector<std::int32_t> rows(32);
  std::iota(rows.begin(), rows.end(), 0);
  ProductTerm table;
  table.lines[0] = {rows.data(), 32, -16};
  table.table = tensor(std::as_const(call.numbers).data(), {1, WholeCall::kHeads, 32, 1});
  LinearTerm slopes;
  slopes.table = tensor(std::as_const(call.numbers).data(), {1, WholeCall::kHeads, 1, 2});
  GatesTerm gates;
  gates.query = gates.key = {.content = true};
  ScoreMlpTerm network;
  const ConstTensorView in = tensor(std::as_const(call.numbers).data(), {2, WholeCall::kHeads, 1});
  network.mlp = {in, tensor(std::as_const(call.numbers).data(), {2}),
                 tensor(std::as_const(call.numbers).data(), {WholeCall::kHeads, 2, 1}),
                 tensor(std::as_const(call.numbers).data(), {WholeCall::kHeads})};
  call.a.query_positions = call.a.key_positions = call.at;
  TermGradient d[4];
  d[0].table = tensor(call.d_numbers.data(), {1, WholeCall::kHeads, 32, 1});
  for (const std::vector<Term>& terms :
       {std::vector<Term>{table, slopes}, {table, gates}, {table, network}}) {
    call.a.terms = terms;
    call.g.terms = std::span(d).first(terms.size());
    call.expect_none();
  }
}

// Gates that select rows of a table (CoPE), and stick-breaking.
TEST(NoAllocation, AttentionThatPassesBack) {
  WholeCall call;
  const std::vector<double> rows(4 * WholeCall::kDim, 0.1);
  std::vector<double> d_rows(rows.size());
  GatesTerm gates;
  gates.query = gates.key = {.content = true};
  gates.table = tensor(rows.data(), {1, 1, 4, WholeCall::kDim});
  const std::vector<Term> terms{gates};
  TermGradient d;
  d.table = tensor(d_rows.data(), {1, 1, 4, WholeCall::kDim});
  call.a.terms = terms, call.g.terms = std::span(&d, 1);
  call.expect_none();
  call.a.terms = {}, call.g.terms = {};
  for (const Normalisation how :
       {Normalisation::stick_breaking, Normalisation::stick_breaking_own}) {
    call.a.normalisation = how;
    call.expect_none();
  }
}

TEST(NoAllocation, AttentionOfPackedSequences) {
  WholeCall call;
  const std::vector<Index> ends{0, 30, 31, WholeCall::kTokens};
  call.a.mask.query_cu_seqlens = call.a.mask.key_cu_seqlens = tensor(ends.data(), {4});
  call.expect_none();
}

// Without a workspace the thread keeps the memory of its last call, also where a call runs inside of another.
TEST(NoAllocation, AttentionKeepsTheMemoryOfItsLastCall) {
  WholeCall call;
  std::vector<float> other(call.y.size());
  const AttentionResult to{heads(call.y.data(), WholeCall::kTokens, 4, 16), {}};
  const AttentionResult inner{heads(other.data(), WholeCall::kTokens, 4, 16), {}};
  attend(call.a, to, inline_executor());
  attend(call.a, to, inline_executor());
  const std::vector<float> want = call.y;
  const auto some = [&] {
    const long before = test::allocations();
    attend(call.a, to, inline_executor());
    return test::allocations() - before;
  };
  EXPECT_EQ(some(), 0);
  struct Both {
    const AttentionArgs& a;
    const AttentionResult& inner;
  } both{call.a, inner};
  const Executor nested{&both, 1, [](void* p, Index count, void (*task)(void*, Index), void* arg) {
                          const auto& x = *static_cast<const Both*>(p);
                          for (Index i = 0; i < count; ++i) {
                            attend(x.a, x.inner, inline_executor());
                            task(arg, i);
                          }
                        }};
  for (int n = 0; n < 3; ++n) {
    std::fill(call.y.begin(), call.y.end(), 0.0F);
    std::fill(other.begin(), other.end(), 0.0F);
    attend(call.a, to, nested);
    EXPECT_EQ(call.y, want);
  }
  some();
  EXPECT_EQ(some(), 0);
}

// One query, whose keys are read as they lie.
TEST(NoAllocation, AttentionOfOneQueryThatPassesBack) {
  WholeCall call;
  call.a.q = heads(std::as_const(call.x).data(), 1, WholeCall::kHeads, WholeCall::kDim);
  call.a.mask.query_offset = WholeCall::kTokens - 1;
  const std::vector<double> rows(4 * WholeCall::kDim, 0.1);
  GatesTerm gates;
  gates.query = gates.key = {.content = true};
  gates.table = tensor(rows.data(), {1, 1, 4, WholeCall::kDim});
  const std::vector<Term> terms{gates};
  call.a.terms = terms;
  call.expect_none_forward();
  call.a.terms = {}, call.a.normalisation = Normalisation::stick_breaking_own;
  call.expect_none_forward();
}

// Given orders are sorted.
TEST(NoAllocation, AttentionByGivenOrders) {
  WholeCall call;
  std::vector<Index> order(WholeCall::kTokens);
  std::iota(order.rbegin(), order.rend(), 0);
  call.a.mask.query_order = call.a.mask.key_order =
      tensor(std::as_const(order).data(), {1, WholeCall::kTokens});
  call.a.normalisation = Normalisation::stick_breaking;
  call.expect_none();
}

// Ten pages of eight tokens, in reverse order; a prompt and one query that streams them.
TEST(NoAllocation, AttentionOverPages) {
  WholeCall call;
  const std::vector<Index> pages{9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  const Index length = 75;
  const std::vector<Index> shape{10, 8, WholeCall::kGroups, WholeCall::kDim};
  call.a.k = call.a.v =
      heads(tensor(static_cast<const void*>(call.x.data()), DType::f32, shape), HeadsLayout::bthd);
  call.g.k =
      heads(tensor(static_cast<void*>(call.d_k.data()), DType::f64, shape), HeadsLayout::bthd);
  call.g.v =
      heads(tensor(static_cast<void*>(call.d_v.data()), DType::f64, shape), HeadsLayout::bthd);
  call.a.block_table = tensor(pages.data(), {1, 10});
  call.a.mask.key_length = tensor(&length, {1});
  call.expect_none();
  const AttentionArgs& a = call.a;
  AttentionArgs one = a;
  one.q.tokens = 1;
  const AttentionResult r{heads(call.y.data(), 1, WholeCall::kHeads, WholeCall::kDim), {}};
  std::vector<std::byte> memory(workspace_bytes(one));
  attend(one, r, default_executor(), memory);
  const long before = test::allocations();
  attend(one, r, default_executor(), memory);
  EXPECT_EQ(test::allocations(), before);
}

// Plans that rotate, T5 and ALiBi: the schemes are bound in the workspace too. Positions are given,
// or are those of the order.
TEST(NoAllocation, AttentionOfPlans) {
  for (const char* scheme :
       {"rope head_dim=16 pairing=half_split", "t5 bidirectional=false", "alibi"})
    for (const bool given : {true, false}) {
      SCOPED_TRACE(std::string(scheme) + (given ? " given" : ""));
      WholeCall call;
      const AttentionPlan plan(scheme, {.heads = WholeCall::kHeads,
                                        .head_dim = WholeCall::kDim,
                                        .key_heads = WholeCall::kGroups});
      std::vector<NamedArray> parameters;
      const std::vector<Parameter> needed = plan.parameters();
      for (const Parameter& p : needed)
        parameters.push_back(
            {p.name, tensor(static_cast<const void*>(call.numbers.data()), DType::f64, p.shape)});
      const LoweredAttention lowered = plan.lower(parameters, distance_ranges(call.at, call.at));
      call.a.scale.reset();
      if (given) call.a.query_positions = call.a.key_positions = call.at;
      const AttentionResult r{
          heads(call.y.data(), WholeCall::kTokens, WholeCall::kHeads, WholeCall::kDim),
          tensor(call.lse.data(), {1, WholeCall::kHeads, WholeCall::kTokens})};
      std::vector<std::byte> memory(std::max(lowered.workspace_bytes(call.a, {}),
                                             lowered.workspace_bytes(call.a, {}, call.g, {})));
      const auto all = [&] {
        lowered.forward(call.a, {}, r, default_executor(), memory);
        lowered.backward(call.a, {}, r, r, call.g, {}, default_executor(), memory);
      };
      all();
      const long before = test::allocations();
      all();
      EXPECT_EQ(test::allocations(), before);
    }
}

}  // namespace
}  // namespace posenc
