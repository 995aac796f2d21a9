// SPDX-License-Identifier: Apache-2.0
// Checks of an attention call that pass build no string and no list.
#include <gtest/gtest.h>

#include <vector>

#include "no_allocation/counted_new.h"
#include "posenc/attention/attend.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

// A call with much of what a call may have, on dense memory.
struct CheckedCall {
  static constexpr Index kTokens = 8, kHeads = 4, kGroups = 2, kDim = 4;
  std::vector<double> numbers = std::vector<double>(2048);
  std::vector<double> written = std::vector<double>(16384);
  std::vector<std::uint8_t> flags = std::vector<std::uint8_t>(kTokens * kTokens, 1);
  const std::int32_t rows[3] = {0, 1, 2};
  const Index length = kTokens;
  const OwnedPositions at = arange(0, kTokens);
  const RotarySpec rotary = resolve(Rope{.head_dim = kDim, .pairing = Pairing::half_split});
  Stage stages[2];
  Term terms[3];
  StageGradient stage_gradients[2];
  TermGradient term_gradients[3];
  AttentionArgs a;
  AttentionGradients g;
  std::size_t used = 0;

  Heads output(Index n) { return heads(output({1, kTokens, n, kDim}), HeadsLayout::bthd); }
  TensorView output(std::initializer_list<Index> shape) {
    const TensorView v = tensor(written.data() + used, shape);
    used += static_cast<std::size_t>(v.count());
    return v;
  }
  ConstTensorView input(std::initializer_list<Index> shape) const {
    return tensor(numbers.data(), shape);
  }
  CheckedCall() {
    a.q = heads(numbers.data(), kTokens, kHeads, kDim);
    a.k = a.v = heads(numbers.data(), kTokens, kGroups, kDim);
    a.scale = 0.5, a.softcap = 30;
    a.query_positions = a.key_positions = at;
    a.sink = input({kHeads}), a.head_scale = input({1, kHeads});
    a.mask.causal = true, a.mask.window_left = 5, a.mask.sink_tokens = 1;
    a.mask.key_length = tensor(&length, {1});
    a.mask.visible = tensor(std::as_const(flags).data(), {kTokens, kTokens});
    a.mask.bias = input({1, 1, kTokens, kTokens});
    stages[0] = {.kind = StageKind::rms, .q = input({1, kDim}), .epsilon = 1e-6};
    stages[1] = {.kind = StageKind::rotate, .rotary = &rotary};
    a.prepare = stages;
    ProductTerm table;
    table.lines[0] = {rows, 3, -1};
    table.table = input({1, kHeads, 3, 1});
    terms[0] = table;
    LinearTerm linear;
    linear.table = input({1, kHeads, 1, 2});
    terms[1] = linear;
    DistanceMlpTerm mlp;
    mlp.table = input({1, kHeads, 1, 2});
    mlp.mlp = {input({3, 1, 1}), input({3}), input({kHeads, 3, 1}), input({kHeads})};
    terms[2] = mlp;
    a.terms = terms;
    g.q = output(kHeads), g.k = output(kGroups), g.v = output(kGroups);
    g.bias = output({1, 1, kTokens, kTokens}), g.sink = output({kHeads});
    stage_gradients[0].q = output({1, kDim});
    term_gradients[0].table = output({1, kHeads, 3, 1});
    term_gradients[2].mlp.out_bias = output({kHeads});
    g.prepare = stage_gradients, g.terms = term_gradients;
  }
};

template <class Check>
long new_allocations(const Check& check) {
  const long before = test::allocations();
  check();
  return test::allocations() - before;
}

TEST(NoAllocation, ChecksOfAttention) {
  CheckedCall call;
  const AttentionResult result{call.output(CheckedCall::kHeads),
                               call.output({1, CheckedCall::kHeads, CheckedCall::kTokens})};
  EXPECT_EQ(new_allocations([&] { check_attention(call.a, result); }), 0);
  EXPECT_EQ(new_allocations([&] { check_attention(call.a, call.g); }), 0);
  EXPECT_EQ(new_allocations([&] { check_attention_indices(call.a); }), 0);
  AttentionArgs plain = call.a;
  plain.terms = {}, plain.prepare = {}, plain.mask = {.causal = true};
  EXPECT_EQ(new_allocations([&] { check_attention(plain, result); }), 0);
}

}  // namespace
}  // namespace posenc
